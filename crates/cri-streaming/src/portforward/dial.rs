//! Connections to the ports of a pod.

use tokio::net::TcpStream;

use crate::context::SessionContext;

/// Connects to a port of the pod.
///
/// # Errors
/// An error with the message for the client.
pub(super) async fn dial(
    context: &SessionContext,
    sandbox: &str,
    port: u16,
) -> Result<TcpStream, String> {
    context.meter.connection();
    match context.runtime.dial(sandbox, port).await {
        Ok(pod) => {
            // Disables Nagle's algorithm: interactive protocols write little and wait for the response.
            let _ = pod.set_nodelay(true);
            Ok(pod)
        }
        Err(error) => Err(failed(sandbox, port, &error)),
    }
}

/// The error message for a client, in the words of the reference server.
pub(super) fn failed(sandbox: &str, port: u16, error: &dyn std::error::Error) -> String {
    format!("error forwarding port {port} to pod {sandbox}, uid : {error}")
}
