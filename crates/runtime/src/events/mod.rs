//! Events of pods and containers (GetContainerEvents), and of their processes.

mod processes;

use std::cmp::Reverse;
use std::sync::Arc;

use tokio::sync::broadcast;

use self::processes::ProcessEvents;
pub use self::processes::{ProcessChange, ProcessEvent};
use super::Runtime;
use super::id;
use super::store::{Container, Sandbox};
pub use crate::sandbox::SandboxLimit;
use criscope_cri::v1::{
    ContainerEventResponse, ContainerEventType, ContainerStatus, PodSandboxStatus,
};

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
        let (created_at, (pod, containers)) = dated(|| self.pod_status(sandbox));
        let _unreceived = self.events.to.send(Arc::new(ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: kind as i32,
            created_at,
            pod_sandbox_status: Some(pod),
            containers_statuses: containers,
        }));
    }

    /// The status of a sandbox, and those of its containers, the newest first: of several runs of a container the kubelet takes the
    /// first for the current one, and with EventedPLEG it does not sort those of PodSandboxStatus itself.
    pub(super) fn pod_status(&self, sandbox: &Sandbox) -> (PodSandboxStatus, Vec<ContainerStatus>) {
        let containers = self.store.containers_of(&sandbox.id);
        let mut statuses: Vec<_> = containers
            .iter()
            .map(|container| self.container_status_of(container))
            .collect();
        statuses.sort_by_key(|status| {
            let metadata = status.metadata.as_ref();
            let attempt = metadata.map_or(0, |metadata| metadata.attempt);
            Reverse((status.created_at, attempt))
        });
        (self.sandbox_status_of(sandbox), statuses)
    }
}

/// Returns a time before `look`, in nanoseconds since 1970, and what it sees. A time after it would be later than a change that was not
/// seen any more: with EventedPLEG the kubelet keeps the status with the latest time, and would drop the event of that change.
pub(super) fn dated<T>(look: impl FnOnce() -> T) -> (i64, T) {
    let time = id::now();
    (time, look())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_not_dated_later_than_it_was_seen() {
        let (time, seen) = dated(id::now);
        assert!(time <= seen, "{time} is later than {seen}");
    }
}
