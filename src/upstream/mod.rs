//! Passes calls on to another CRI runtime, byte for byte.
//!
//! Each connection of a caller gets connections of its own to the runtime, opened at its first call: flow control,
//! stream limits and a slow reader then concern nobody else. Calls that stay open get one more connection each, so that
//! a consumer that stalls holds up nothing.

pub mod body;
pub mod connect;
pub mod error;
pub mod exchange;
pub mod forward;
pub mod health;
pub mod probe;
pub mod resync;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use error::Error;
pub use forward::Forward;
pub use health::{Health, State};

/// A runtime behind a unix socket. Shared by all connections.
#[derive(Debug)]
pub struct Upstream {
    name: Arc<str>,
    path: PathBuf,
    health: Health,
}

impl Upstream {
    /// The runtime `name` behind the socket at `path`. Nothing is connected yet.
    pub fn new(name: &str, path: PathBuf) -> Self {
        Self {
            name: name.into(),
            path,
            health: Health::default(),
        }
    }

    /// Its name in the configuration.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The path of its socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is known about it.
    pub fn health(&self) -> &Health {
        &self.health
    }
}
