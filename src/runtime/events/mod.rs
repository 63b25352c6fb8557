//! Events of pods and containers (GetContainerEvents), and of their processes.

mod processes;

use std::sync::Arc;

use tokio::sync::broadcast;

use self::processes::ProcessEvents;
pub use self::processes::{ProcessChange, ProcessEvent};
use super::Runtime;
use super::id;
use super::store::{Container, Sandbox};
use crate::cri::v1::{ContainerEventResponse, ContainerEventType, ContainerStatus};

/// Length of the event queue. The stream of a listener that falls behind ends; the listener then lists again.
const WAITING: usize = 1024;

/// The event queue and its listeners.
#[derive(Debug)]
pub struct Events {
    /// The queue reserves room for all that may wait: for pointers, since an event has the statuses of a whole pod.
    to: broadcast::Sender<Arc<ContainerEventResponse>>,
    processes: ProcessEvents,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            to: broadcast::Sender::new(WAITING),
            processes: ProcessEvents::default(),
        }
    }
}

impl Events {
    /// Subscribes to future events.
    pub fn listen(&self) -> broadcast::Receiver<Arc<ContainerEventResponse>> {
        self.to.subscribe()
    }

    /// Subscribes to what happens to containers and sandboxes by itself.
    pub fn listen_to_processes(&self) -> broadcast::Receiver<ProcessEvent> {
        self.processes.listen()
    }
}

impl Runtime {
    /// Emits an event of a sandbox.
    pub(super) fn emit_sandbox_event(&self, kind: ContainerEventType, sandbox: &Sandbox) {
        self.tell(kind, &sandbox.id, sandbox);
    }

    /// Emits an event of a container.
    pub(super) fn emit_container_event(&self, kind: ContainerEventType, container: &Container) {
        // The kubelet expects the pod's status in the event; without a pod no event is sent.
        if let Ok(sandbox) = self.store.sandboxes.get(&container.record().sandbox) {
            self.tell(kind, &container.id, &sandbox);
        }
    }

    fn tell(&self, kind: ContainerEventType, id: &str, sandbox: &Sandbox) {
        // Statuses are expensive, and there is usually no listener.
        if self.events.to.receiver_count() == 0 {
            return;
        }
        let _nobody_left = self.events.to.send(Arc::new(ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: kind as i32,
            created_at: id::now(),
            pod_sandbox_status: Some(self.sandbox_status_of(sandbox)),
            containers_statuses: self.statuses_in(&sandbox.id),
        }));
    }

    /// The statuses of all containers of a sandbox.
    pub(super) fn statuses_in(&self, sandbox: &str) -> Vec<ContainerStatus> {
        let containers = self.store.containers_of(sandbox);
        let status = |container: &Arc<Container>| self.container_status_of(container);
        containers.iter().map(status).collect()
    }
}
