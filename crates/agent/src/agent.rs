//! `criscope-agent serve`: the parts put together.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use criscope::install::AGENT_SOCKET;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::certificate::{AgentCertificate, AgentCertificateError};
use crate::daemon::{DaemonAddress, DaemonClient};
use crate::events::EventWriter;
use crate::guard::AccessGuard;
use crate::serve::{AgentService, serve};

/// Report what criscope knows of this node to its Kubernetes cluster
///
/// Runs unprivileged in a pod, with the service account of this pod: events on slow and failing pods, and a TLS port for metrics
/// and stories. It reads a socket of the daemon. deploy/kubernetes has its manifests.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The name of this node
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node: String,
    /// admin.agent_socket of the daemon as unix:///path, or its admin.listen
    #[arg(long, value_name = "ADDR", default_value = AGENT_SOCKET)]
    pub daemon: DaemonAddress,
    /// Address to serve metrics and stories on, with TLS
    #[arg(long, value_name = "ADDR", default_value = "[::]:9479")]
    pub listen: SocketAddr,
    /// Certificate chain, PEM; read again when it changes [default: one signed by itself]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Write events on pods
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub events: bool,
    /// A start, restart or stop that takes this many seconds is an event
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub slow: u64,
}

/// The reason why the agent ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// There is no usable certificate.
    #[error(transparent)]
    Certificate(#[from] AgentCertificateError),
    /// The address cannot be used.
    #[error("{0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// No API server is configured.
    #[error("no API server: {0}")]
    Cluster(#[from] kube::Error),
    /// Signals cannot be received, or a thread cannot be started.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Runs until `stop`.
///
/// # Errors
/// If the certificate or the address cannot be used.
pub async fn run(
    args: &Args,
    client: kube::Client,
    stop: impl Future<Output = ()>,
) -> Result<(), AgentError> {
    let certificate = match (&args.tls_cert, &args.tls_key) {
        (Some(chain), Some(key)) => AgentCertificate::from_files(chain, key)?,
        _ => AgentCertificate::self_signed(&args.node)?,
    };
    let bound = TcpListener::bind(args.listen).await;
    let listener = bound.map_err(|error| AgentError::Listen(args.listen, error))?;
    tracing::info!(event = "agent.listening", address = %listener.local_addr()?, events = args.events, "serving");
    let daemon = DaemonClient::new(args.daemon.clone());
    let stopping = Arc::new(Notify::new());
    let end = Arc::clone(&stopping);
    let events = args.events.then(|| {
        let slow = Duration::from_secs(args.slow);
        let events = EventWriter::new(client.clone(), &args.node, slow);
        let daemon = daemon.clone();
        tokio::spawn(async move { events.run(daemon, end.notified()).await })
    });
    let service = AgentService::new(daemon, AccessGuard::new(client), args.node.clone());
    serve(listener, certificate, service, stop).await;
    stopping.notify_one();
    if let Some(events) = events {
        // One request to the API server takes at most 10 s; the pod has 30 s to end.
        let _ = events.await;
    }
    Ok(())
}
