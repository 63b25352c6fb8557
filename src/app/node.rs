//! Reads the state of the node for `lifecycle`, which knows neither backends nor the listener.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use crate::cri::subject::REQUIRED_CONDITIONS;
use crate::lifecycle::node::{BackendState, FalseCondition, NodeSource};
use crate::proxy::backend::{Backend, HealthState};
use crate::proxy::listener::metrics::ConnectionMetrics;

/// Gives `lifecycle` the state of backends and connections.
pub(super) struct NodeStateReader {
    pub(super) backends: Vec<Arc<Backend>>,
    pub(super) connections: Arc<ConnectionMetrics>,
}

impl NodeSource for NodeStateReader {
    fn backends(&self) -> Vec<BackendState> {
        self.backends.iter().map(|backend| state(backend)).collect()
    }

    fn kubelets(&self) -> u64 {
        self.connections.kubelets()
    }
}

fn state(backend: &Backend) -> BackendState {
    let health = backend.health();
    let HealthState {
        up,
        reason,
        changed,
        conditions,
        image_fs,
        runtime,
        found_driver,
        ..
    } = health.state();
    let not_ready = conditions
        .into_iter()
        .filter(|condition| !condition.status && REQUIRED_CONDITIONS.contains(&&*condition.kind))
        .map(|condition| FalseCondition {
            reason: condition.said().to_owned(),
            condition: condition.kind,
            since: condition.since,
        });
    BackendState {
        name: Arc::clone(backend.name()),
        up: changed.map(|_| up),
        since: changed,
        reason,
        not_ready: not_ready.collect(),
        image_fs,
        runtime: runtime_name(backend, runtime.map(|(name, _)| name)),
        pid: health.pid(),
        answered_driver: found_driver.map(|found| found.to_string().into()),
    }
}

/// The name of a runtime: as it says itself, else as its socket is usually called.
fn runtime_name(backend: &Backend, said: Option<String>) -> Option<Box<str>> {
    if backend.is_local() {
        return Some("criscope".into());
    }
    let socket = backend.socket().and_then(Path::file_name);
    let usual = match socket.and_then(OsStr::to_str) {
        Some("containerd.sock") => Some("containerd"),
        Some("crio.sock") => Some("cri-o"),
        Some("cri-dockerd.sock") => Some("docker"),
        _ => None,
    };
    let said = said.filter(|name| !name.is_empty());
    said.map(Into::into).or_else(|| usual.map(Into::into))
}
