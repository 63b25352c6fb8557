//! Backends: a runtime behind a unix socket ([`remote`]) or the one in this process ([`local`]). Both are probed, and their
//! lists fill the pod index.

mod cgroup_driver;
mod conditions;
pub mod health;
pub mod local;
pub(crate) mod metrics;
pub mod probe;
pub mod remote;
pub mod resync;
mod retries;
mod runtime_config;
pub mod settings;

use std::path::PathBuf;
use std::sync::Arc;

pub use health::{BackendHealth, HealthState};

use self::local::LocalConnection;
use self::remote::{RemoteBackend, RemoteConnection};
use self::retries::RetryJoining;
use self::retries::kept::KeptCalls;
use self::runtime_config::RuntimeConfigFallback;
use crate::grpc::CriService;

/// A CRI runtime. Shared by all connections.
#[derive(Debug)]
pub struct Backend {
    name: Arc<str>,
    health: Arc<BackendHealth>,
    kind: BackendTransport,
    /// Set if criscope answers RuntimeConfig where the runtime does not.
    answers_runtime_config: bool,
    /// Set if calls go on after the kubelet's deadline, until its retry joins them.
    kept_calls: Option<Arc<KeptCalls>>,
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
            answers_runtime_config: false,
            kept_calls: None,
        }
    }

    /// Answers RuntimeConfig with the cgroup driver, if the runtime does not implement it.
    #[must_use]
    pub fn answering_runtime_config(self, answers_runtime_config: bool) -> Self {
        Self {
            answers_runtime_config,
            ..self
        }
    }

    /// Lets calls that make a sandbox or a container go on after the kubelet's deadline, and its retries wait for them.
    #[must_use]
    pub fn joining_retries(self, joins_retries: bool) -> Self {
        Self {
            kept_calls: joins_retries.then(Arc::default),
            ..self
        }
    }

    /// The runtime `name` in this process.
    pub fn local(name: &str, service: CriService) -> Self {
        Self {
            name: name.into(),
            health: Arc::default(),
            kind: BackendTransport::Local(service),
            answers_runtime_config: false,
            kept_calls: None,
        }
    }

    /// The service for a new connection of a caller.
    pub fn service(&self) -> CriService {
        match &self.kind {
            BackendTransport::Remote(remote) => {
                let mut service = CriService::new(RemoteConnection::new(Arc::clone(remote)));
                if self.answers_runtime_config {
                    let (name, health) = (Arc::clone(&self.name), Arc::clone(&self.health));
                    service = CriService::new(RuntimeConfigFallback::new(service, name, health));
                }
                if let Some(kept) = &self.kept_calls {
                    service = CriService::new(RetryJoining::new(service, Arc::clone(kept)));
                }
                service
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

    /// The calls that outlived their callers; `None` if retries do not join.
    pub(crate) fn kept_calls(&self) -> Option<&KeptCalls> {
        self.kept_calls.as_deref()
    }

    /// The findings of its probe.
    pub fn health(&self) -> &BackendHealth {
        &self.health
    }
}
