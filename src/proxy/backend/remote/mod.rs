//! Forwards calls to another CRI runtime, byte for byte.
//!
//! Each connection of a caller has separate connections to the runtime, opened at its first call: flow control, stream
//! limits and slow readers then affect that caller only. A server-streaming call gets one more connection, so that a
//! consumer that stalls delays no other call.

pub mod body;
pub mod connect;
pub mod error;
pub mod exchange;
pub mod forward;
pub mod held_ping;
pub mod yielding;

use std::path::PathBuf;
use std::sync::Arc;

pub use error::Error;
pub use forward::RemoteConnection;

use self::error::ConnectionFault;
use super::health::BackendHealth;

/// A runtime behind a unix socket.
#[derive(Debug)]
pub struct RemoteBackend {
    name: Arc<str>,
    path: PathBuf,
    health: Arc<BackendHealth>,
}

impl RemoteBackend {
    pub(super) fn new(name: Arc<str>, path: PathBuf, health: Arc<BackendHealth>) -> Self {
        Self { name, path, health }
    }

    /// Socket of the runtime.
    pub(super) fn path(&self) -> &std::path::Path {
        &self.path
    }

    fn error(&self, fault: ConnectionFault) -> Error {
        Error {
            name: Arc::clone(&self.name),
            path: self.path.clone(),
            fault,
        }
    }

    /// Address of the runtime, for log lines and pages.
    pub(super) fn endpoint(&self) -> String {
        format!("unix://{}", self.path.display())
    }
}
