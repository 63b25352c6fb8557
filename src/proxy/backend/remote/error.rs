//! Why a call could not be forwarded. The caller gets `UNAVAILABLE` with this text: it may retry, and the kubelet does.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// A call could not be forwarded to a backend.
#[derive(Debug, thiserror::Error)]
#[error("backend {name} at unix://{}: {fault}", path.display())]
pub struct Error {
    /// Name of the backend.
    pub name: Arc<str>,
    /// Socket of the runtime.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub fault: ConnectionFault,
}

/// What is wrong with a connection to a runtime.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionFault {
    /// Connecting to the socket failed.
    #[error("{0}")]
    Connect(#[source] io::Error),
    /// Connected, but the peer does not speak HTTP/2 or violated the protocol.
    #[error("not a gRPC server: {0}")]
    Protocol(#[source] h2::Error),
    /// The connection broke during the call. The runtime may or may not have executed it.
    #[error("connection lost during the call")]
    Lost(#[source] h2::Error),
}

/// Returns whether the runtime reset this one stream.
pub(super) fn was_reset_by_runtime(error: &h2::Error) -> bool {
    error.is_reset() && error.is_remote()
}
