//! Why a call could not be forwarded. The caller gets `UNAVAILABLE` with this text: it may retry, and the kubelet does.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Errors of forwarding a call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Connecting to the socket failed.
    #[error("backend {name} at unix://{}: {source}", path.display())]
    Connect {
        /// Name of the backend.
        name: Arc<str>,
        /// Socket of the runtime.
        path: PathBuf,
        /// The system call's error.
        source: io::Error,
    },
    /// Connected, but the peer does not speak HTTP/2 or violated the protocol.
    #[error("backend {name} at unix://{}: not a gRPC server: {source}", path.display())]
    Protocol {
        /// Name of the backend.
        name: Arc<str>,
        /// Socket of the runtime.
        path: PathBuf,
        /// The error of the HTTP/2 connection.
        source: h2::Error,
    },
    /// The connection broke during the call. The runtime may or may not have executed it.
    #[error("backend {name} at unix://{}: connection lost during the call", path.display())]
    Lost {
        /// Name of the backend.
        name: Arc<str>,
        /// Socket of the runtime.
        path: PathBuf,
        /// The error of the HTTP/2 connection.
        source: h2::Error,
    },
}

/// Returns whether the runtime reset this one stream.
pub(super) fn was_reset_by_runtime(error: &h2::Error) -> bool {
    error.is_reset() && error.is_remote()
}
