//! Backends: a runtime behind a unix socket ([`remote`]) or the one in this process ([`local`]). Both are probed, and their
//! lists fill the pod index.

mod conditions;
pub mod health;
pub mod local;
pub(crate) mod metrics;
pub mod probe;
pub mod remote;
pub mod resync;
pub mod settings;

use std::path::PathBuf;
use std::sync::Arc;

pub use health::{BackendHealth, HealthState};

use self::local::LocalConnection;
use self::remote::{RemoteBackend, RemoteConnection};
use crate::grpc::CriService;

/// A CRI runtime. Shared by all connections.
#[derive(Debug)]
pub struct Backend {
    name: Arc<str>,
    health: Arc<BackendHealth>,
    kind: BackendTransport,
}

#[derive(Debug)]
enum BackendTransport {
    Remote(Arc<RemoteBackend>),
    Local(CriService),
}

impl Backend {
    /// The runtime `name` behind the socket at `path`. Connects at the first call.
    pub fn remote(name: &str, path: PathBuf) -> Self {
        let (name, health) = (Arc::from(name), Arc::<BackendHealth>::default());
        let remote = RemoteBackend::new(Arc::clone(&name), path, Arc::clone(&health));
        Self {
            name,
            health,
            kind: BackendTransport::Remote(Arc::new(remote)),
        }
    }

    /// The runtime `name` in this process.
    pub fn local(name: &str, service: CriService) -> Self {
        Self {
            name: name.into(),
            health: Arc::default(),
            kind: BackendTransport::Local(service),
        }
    }

    /// The service for a new connection of a caller.
    pub fn service(&self) -> CriService {
        match &self.kind {
            BackendTransport::Remote(remote) => {
                CriService::new(RemoteConnection::new(Arc::clone(remote)))
            }
            BackendTransport::Local(service) => {
                CriService::new(LocalConnection::new(service.clone()))
            }
        }
    }

    /// Returns whether it is in this process.
    pub fn is_local(&self) -> bool {
        matches!(self.kind, BackendTransport::Local(_))
    }

    /// Name of the backend in the configuration.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Address of the backend, for log lines and pages.
    pub fn endpoint(&self) -> String {
        match &self.kind {
            BackendTransport::Remote(remote) => remote.endpoint(),
            BackendTransport::Local(_) => "this process".to_owned(),
        }
    }

    /// Socket of the backend; `None` for the built-in runtime.
    pub fn socket(&self) -> Option<&std::path::Path> {
        match &self.kind {
            BackendTransport::Remote(remote) => Some(remote.path()),
            BackendTransport::Local(_) => None,
        }
    }

    /// The findings of its probe.
    pub fn health(&self) -> &BackendHealth {
        &self.health
    }
}
