//! What happens to pods and containers, told to those who listen (GetContainerEvents).

use std::sync::Arc;

use tokio::sync::broadcast;

use super::Runtime;
use super::id;
use super::store::{Container, Sandbox};
use crate::cri::v1::{ContainerEventResponse, ContainerEventType, ContainerStatus};

/// Events that wait for a slow listener. One that falls behind is told so by the end of its stream, and lists anew.
const WAITING: usize = 1024;

/// Everyone who listens.
#[derive(Debug)]
pub struct Events {
    to: broadcast::Sender<ContainerEventResponse>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            to: broadcast::Sender::new(WAITING),
        }
    }
}

impl Events {
    /// What happens from now on.
    pub fn listen(&self) -> broadcast::Receiver<ContainerEventResponse> {
        self.to.subscribe()
    }
}

impl Runtime {
    /// Tells that something happened to a sandbox.
    pub(super) fn emit_sandbox_event(&self, kind: ContainerEventType, sandbox: &Sandbox) {
        self.tell(kind, &sandbox.id, sandbox);
    }

    /// Tells that something happened to a container.
    pub(super) fn emit_container_event(&self, kind: ContainerEventType, container: &Container) {
        // The kubelet wants the pod's status with it; without a pod there is nobody to tell.
        if let Ok(sandbox) = self.store.sandboxes.get(&container.record().sandbox) {
            self.tell(kind, &container.id, &sandbox);
        }
    }

    fn tell(&self, kind: ContainerEventType, id: &str, sandbox: &Sandbox) {
        // Statuses are costly to make, and mostly nobody listens.
        if self.events.to.receiver_count() == 0 {
            return;
        }
        let _nobody_left = self.events.to.send(ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: kind as i32,
            created_at: id::now(),
            pod_sandbox_status: Some(self.sandbox_status_of(sandbox)),
            containers_statuses: self.statuses_in(&sandbox.id),
        });
    }

    /// The statuses of all containers of a sandbox.
    pub(super) fn statuses_in(&self, sandbox: &str) -> Vec<ContainerStatus> {
        let containers = self.store.containers_of(sandbox);
        let status = |container: &Arc<Container>| self.container_status_of(container);
        containers.iter().map(status).collect()
    }
}
