//! Why a call could not be passed on. The caller gets each as `UNAVAILABLE` with this text: it may try again, and the
//! kubelet does.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// See the module documentation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket cannot be connected to.
    #[error("backend {name} at unix://{}: {source}", path.display())]
    Connect {
        /// Name of the backend.
        name: Arc<str>,
        /// Its socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Connected, but the other end does not speak HTTP/2 or broke its rules.
    #[error("backend {name} at unix://{}: not a gRPC server: {source}", path.display())]
    Protocol {
        /// Name of the backend.
        name: Arc<str>,
        /// Its socket.
        path: PathBuf,
        /// What went wrong.
        source: h2::Error,
    },
    /// The connection broke while the call was under way. It may or may not have been carried out.
    #[error("backend {name} at unix://{}: connection lost during the call", path.display())]
    Lost {
        /// Name of the backend.
        name: Arc<str>,
        /// Its socket.
        path: PathBuf,
        /// What went wrong.
        source: h2::Error,
    },
}

/// Returns whether the runtime reset this one stream.
pub(super) fn was_reset_by_runtime(error: &h2::Error) -> bool {
    error.is_reset() && error.is_remote()
}
