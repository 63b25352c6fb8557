//! Port-forward: TCP connections into a pod, many over one connection of the client.

mod client_writer;
mod copy;
mod pairs;
mod pod_writer;
mod spdy;
mod tunnel;
mod websocket;

use tokio::net::TcpStream;

pub(super) use self::spdy::serve as serve_spdy;
pub(super) use self::tunnel::WebSocketTunnel;
pub(super) use self::websocket::{MAX_PORTS, serve as serve_websocket};
use super::context::SessionContext;

/// Connects to a port of the pod.
///
/// # Errors
/// An error with the message for the client.
async fn dial(context: &SessionContext, sandbox: &str, port: u16) -> Result<TcpStream, String> {
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
fn failed(sandbox: &str, port: u16, error: &dyn std::error::Error) -> String {
    format!("error forwarding port {port} to pod {sandbox}, uid : {error}")
}
