//! Reads the state of the node for `lifecycle`, which knows neither backends nor the listener.

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
        pid: health.pid(),
    }
}
