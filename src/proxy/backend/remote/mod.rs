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

use crate::grpc::CriService;
use crate::proxy::backend::local::Local;

/// A runtime: behind a unix socket, or in this process. Shared by all connections.
#[derive(Debug)]
pub struct Upstream {
    name: Arc<str>,
    link: Link,
    health: Health,
}

/// Where a runtime is.
#[derive(Debug)]
enum Link {
    Socket(PathBuf),
    Local(CriService),
}

impl Upstream {
    /// The runtime `name` behind the socket at `path`. Nothing is connected yet.
    pub fn new(name: &str, path: PathBuf) -> Self {
        Self {
            name: name.into(),
            link: Link::Socket(path),
            health: Health::default(),
        }
    }

    /// The runtime `name` in this process.
    pub fn local(name: &str, service: CriService) -> Self {
        Self {
            name: name.into(),
            link: Link::Local(service),
            health: Health::default(),
        }
    }

    /// The runtime as a new connection of a caller sees it.
    pub fn service(self: &Arc<Self>) -> CriService {
        match &self.link {
            Link::Socket(_) => CriService::new(Forward::new(Arc::clone(self))),
            Link::Local(service) => CriService::new(Local::new(service.clone())),
        }
    }

    /// Whether it is in this process.
    pub fn is_local(&self) -> bool {
        matches!(self.link, Link::Local(_))
    }

    /// Its name in the configuration.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Where it is, for humans.
    pub fn endpoint(&self) -> String {
        match &self.link {
            Link::Socket(path) => format!("unix://{}", path.display()),
            Link::Local(_) => "this process".to_owned(),
        }
    }

    /// The path of its socket; empty for one in this process, which no error of a connection names.
    fn path(&self) -> &Path {
        match &self.link {
            Link::Socket(path) => path,
            Link::Local(_) => Path::new(""),
        }
    }

    /// What is known about it.
    pub fn health(&self) -> &Health {
        &self.health
    }
}
