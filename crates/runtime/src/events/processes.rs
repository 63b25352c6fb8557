//! Events of containers and sandboxes for subscribers in this process. Unlike those of GetContainerEvents they have no
//! statuses, and include what the CRI does not define, such as OOM kills.

use tokio::sync::broadcast;

use crate::container::watch::was_seen_to_end;
use crate::error::shown;
use crate::sandbox::SandboxLimit;
use crate::store::{Container, EVICTED, Sandbox};
use crate::{Runtime, id};

/// Events that wait for a listener. One that falls behind misses the oldest.
const WAITING: usize = 1024;

/// Something that happened to a container or sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessEvent {
    /// The id of the container or sandbox.
    pub id: String,
    /// The event.
    pub what: ProcessChange,
    /// When, in nanoseconds since 1970.
    pub at: i64,
}

/// An event of a container or sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessChange {
    /// The kernel killed a process of the container for lack of memory, perhaps not its init.
    OutOfMemory {
        /// Processes of the container that were killed so far.
        kills: u64,
    },
    /// The container has exited.
    Exited {
        /// Exit code; 128 plus the number of the signal that killed it. `None` if its exit was not observed.
        code: Option<i32>,
        /// The signal that ended it, 0 if it exited by itself. `None` if only the code is known: a shim of containerd tells no more.
        signal: Option<i32>,
        /// When it was started, in nanoseconds since 1970.
        started_at: i64,
        /// Who evicted it and why, without possible secrets.
        evicted: Option<Box<str>>,
    },
    /// The init of the sandbox's shared PID namespace has exited, and with it all containers.
    InitExited,
    /// The sandbox container, which a sandbox with a shim of containerd has, has exited, and with it the pod.
    SandboxContainerExited {
        /// The limit that its cgroup had reached.
        limit: Option<SandboxLimit>,
    },
}

/// The event queue and its listeners.
#[derive(Debug)]
pub(super) struct ProcessEvents(broadcast::Sender<ProcessEvent>);

impl Default for ProcessEvents {
    fn default() -> Self {
        Self(broadcast::Sender::new(WAITING))
    }
}

impl ProcessEvents {
    pub(super) fn listen(&self) -> broadcast::Receiver<ProcessEvent> {
        self.0.subscribe()
    }

    fn send(&self, id: &str, what: ProcessChange, at: i64) {
        let _unreceived = self.0.send(ProcessEvent {
            id: id.to_owned(),
            what,
            at,
        });
    }
}

impl Runtime {
    /// Tells that a container has exited. One that was never started has not: StartContainer failed, and says why.
    pub(crate) fn tell_exit(&self, container: &Container) {
        let record = container.record();
        let Some(exit) = record.exit.as_ref().filter(|_| record.started_at > 0) else {
            return;
        };
        let by_containerd_shim = self.handler_of(container).has_containerd_shim();
        let what = ProcessChange::Exited {
            code: was_seen_to_end(container).then_some(exit.code),
            signal: exit.signal.filter(|_| !by_containerd_shim),
            started_at: record.started_at,
            evicted: (exit.reason == EVICTED).then(|| shown(&exit.message)),
        };
        let processes = &self.events.processes;
        processes.send(&container.id, what, record.finished_at);
    }

    /// Tells that the kernel has killed so many processes of a container.
    pub(crate) fn tell_oom(&self, container: &str, kills: u64) {
        let what = ProcessChange::OutOfMemory { kills };
        self.events.processes.send(container, what, id::now());
    }

    /// Tells that the init of a sandbox's shared PID namespace, or its sandbox container, has exited, at this time in nanoseconds
    /// since 1970.
    pub(crate) fn tell_init_exit(&self, sandbox: &Sandbox, at: i64) {
        let record = sandbox.record();
        let what = if record.has_containerd_shim() {
            ProcessChange::SandboxContainerExited {
                limit: self.sandbox_limit(&record),
            }
        } else {
            ProcessChange::InitExited
        };
        self.events.processes.send(&sandbox.id, what, at);
    }
}
