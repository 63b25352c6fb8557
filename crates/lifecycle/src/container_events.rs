//! Events that a runtime reports without being called: an OOM kill in a container, the exit of a container or sandbox. containerd
//! has its events service for that ([`super::containerd::events`]); the built-in runtime reports them directly.

use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;

use crate::episode_store::{EXIT_FOLLOWS_OOM_WITHIN, ExitRecord, SandboxEnd, UNSEEN_EXIT_CODE};
use criscope_cri::subject::{ContainerIdentity, ExitReason, PodIdentity};
use criscope_cri::units::times::UnixMicros;

pub use crate::episode_store::ReachedLimit;

/// Upper bound of running containers that are remembered. A node has some hundred.
const MAX_RUNNING: usize = 4096;

/// An event of a container or sandbox.
#[derive(Clone, Debug)]
pub struct ContainerEvent {
    /// The id of the container or sandbox.
    pub id: Arc<str>,
    /// The pod, with the attempt of the sandbox.
    pub pod: Arc<PodIdentity>,
    /// The container; `None` for a sandbox.
    pub container: Option<Arc<ContainerIdentity>>,
    /// The kind of the event.
    pub kind: ContainerEventKind,
    /// Time of the event.
    pub at: UnixMicros,
}

/// Kinds of events of a container or sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerEventKind {
    /// The container or sandbox was started.
    Started,
    /// The kernel killed a process for lack of memory, not necessarily the first process of the container.
    OutOfMemory {
        /// Processes of the container that were killed so far, if the runtime counts them.
        kills: Option<u32>,
    },
    /// The first process has ended.
    Ended {
        /// Exit code; 128 plus the number of the signal that killed the process. `None` if the runtime did not see it, and for
        /// the init of a shared PID namespace: the built-in runtime knows only that it has ended.
        code: Option<i32>,
        /// The signal that ended it, 0 if it exited by itself; `None` if the runtime tells only the code, as containerd does.
        signal: Option<i32>,
        /// Start time, if the event has it.
        started: Option<UnixMicros>,
        /// The evictor and its reason, if the container was evicted. The built-in runtime evicts for NRI plugins.
        evicted: Option<Box<str>>,
    },
    /// The sandbox container of a sandbox that the built-in runtime runs with a shim of containerd has ended.
    SandboxContainerEnded {
        /// The limit that the cgroup had reached.
        limit: Option<ReachedLimit>,
    },
}

/// The consequence of an event for the story of a pod.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ContainerFact {
    /// A container has ended.
    Ended(ExitRecord),
    /// The kernel killed a process of this container for lack of memory; the number is the total so far, if known.
    OutOfMemory(Arc<ContainerIdentity>, Option<u32>),
    /// The first process of the sandbox has ended.
    SandboxEnded(SandboxEnd),
}

/// A container or sandbox that runs.
#[derive(Clone, Copy, Debug, Default)]
struct RunningContainer {
    started: Option<UnixMicros>,
    /// The last time that the kernel killed a process of the container.
    oom_at: Option<UnixMicros>,
}

/// The containers and sandboxes that run according to events, by id.
#[derive(Debug)]
pub(crate) struct RunningContainers(LruCache<Arc<str>, RunningContainer>);

impl Default for RunningContainers {
    fn default() -> Self {
        Self(LruCache::unbounded())
    }
}

impl RunningContainers {
    /// Takes in an event.
    pub(crate) fn handle_event(&mut self, event: &ContainerEvent) -> Option<ContainerFact> {
        match &event.kind {
            ContainerEventKind::Started => {
                self.run(&event.id).started = Some(event.at);
                None
            }
            ContainerEventKind::OutOfMemory { kills } => {
                let container = event.container.clone()?;
                self.run(&event.id).oom_at = Some(event.at);
                Some(ContainerFact::OutOfMemory(container, *kills))
            }
            ContainerEventKind::SandboxContainerEnded { limit } => {
                let end = SandboxEnd::from_container(event.at, *limit);
                Some(ContainerFact::SandboxEnded(end))
            }
            ContainerEventKind::Ended {
                code,
                signal,
                started,
                evicted,
            } => {
                let mut run = self.0.pop(&event.id).unwrap_or_default();
                run.started = started.or(run.started);
                Some(match event.container.as_deref() {
                    Some(container) => {
                        let exit = ExitRecord {
                            signal: *signal,
                            ..exit(container, event.at, *code, run)
                        };
                        ContainerFact::Ended(exit.evicted_by(evicted.clone()))
                    }
                    None => ContainerFact::SandboxEnded(SandboxEnd::new(event.at, *code)),
                })
            }
        }
    }

    fn run(&mut self, id: &Arc<str>) -> &mut RunningContainer {
        if !self.0.contains(id) && self.0.len() >= MAX_RUNNING {
            self.0.pop_lru();
        }
        self.0
            .get_or_insert_mut(Arc::clone(id), RunningContainer::default)
    }
}

fn exit(
    container: &ContainerIdentity,
    at: UnixMicros,
    code: Option<i32>,
    run: RunningContainer,
) -> ExitRecord {
    let is_oom = run
        .oom_at
        .is_some_and(|oom_at| at.since(oom_at) <= EXIT_FOLLOWS_OOM_WITHIN);
    ExitRecord {
        container: container.name.clone(),
        attempt: container.attempt,
        code: code.unwrap_or(UNSEEN_EXIT_CODE),
        reason: match code {
            Some(0) => ExitReason::Completed,
            Some(137) if is_oom => ExitReason::OomKilled,
            Some(_) => ExitReason::Error,
            None => ExitReason::Unknown,
        },
        // The start of a container that ends at once may be reported with a time after its end.
        ran: run.started.map_or(Duration::ZERO, |started| {
            at.since(started).max(Duration::from_micros(1))
        }),
        at,
        stop_requested: false,
        oom_kills: 0,
        is_oom_uncounted: false,
        oom_at: run.oom_at,
        evicted: None,
        node_restarted: None,
        signal: None,
        by_event: true,
        request: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OOM: ContainerEventKind = ContainerEventKind::OutOfMemory { kills: None };

    fn end(code: i32) -> ContainerEventKind {
        let code = Some(code);
        ContainerEventKind::Ended {
            code,
            signal: None,
            started: None,
            evicted: None,
        }
    }

    fn event(id: &str, kind: ContainerEventKind, at: u64) -> ContainerEvent {
        let container = id.starts_with('c').then(|| ContainerIdentity {
            name: "app".into(),
            attempt: 2,
        });
        ContainerEvent {
            id: id.into(),
            pod: Arc::default(),
            container: container.map(Arc::new),
            kind,
            at: UnixMicros::new(at),
        }
    }

    fn ended(runs: &mut RunningContainers, id: &str, code: i32, at: u64) -> ExitRecord {
        match runs.handle_event(&event(id, end(code), at)) {
            Some(ContainerFact::Ended(exit)) => exit,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_exit_has_its_run_and_the_last_kill() {
        let mut runs = RunningContainers::default();
        runs.handle_event(&event("c1", ContainerEventKind::Started, 1_000_000));
        let oom = runs.handle_event(&event("c1", OOM, 2_000_000));
        assert!(matches!(oom, Some(ContainerFact::OutOfMemory(it, None)) if it.attempt == 2));
        let exit = ended(&mut runs, "c1", 137, 2_100_000);
        assert_eq!(
            (exit.ran, exit.reason, exit.oom_at),
            (
                Duration::from_millis(1100),
                ExitReason::OomKilled,
                Some(UnixMicros::new(2_000_000))
            )
        );
        // A later task with this id has nothing of it.
        let exit = ended(&mut runs, "c1", 137, 3_000_000);
        assert_eq!((exit.ran, exit.reason), (Duration::ZERO, ExitReason::Error));
        // Its child was killed long before, or it ended by itself.
        for (code, at, reason) in [
            (137, 60_000_000, ExitReason::Error),
            (5, 2_100_000, ExitReason::Error),
            (0, 2_100_000, ExitReason::Completed),
        ] {
            runs.handle_event(&event("c2", OOM, 2_000_000));
            assert_eq!(ended(&mut runs, "c2", code, at).reason, reason, "{code}");
        }
        let ended = runs.handle_event(&event("s", end(137), 5));
        let died = SandboxEnd::new(UnixMicros::new(5), Some(137));
        assert_eq!(ended, Some(ContainerFact::SandboxEnded(died)));
        assert_eq!(runs.0.len(), 0);
        for n in 0..2 * MAX_RUNNING {
            runs.handle_event(&event(&format!("c{n}"), ContainerEventKind::Started, 1));
        }
        assert_eq!(runs.0.len(), MAX_RUNNING);
    }

    /// As the built-in runtime tells it.
    #[test]
    fn an_exit_that_was_not_seen_is_that_of_container_status() {
        let mut runs = RunningContainers::default();
        let ended = ContainerEventKind::Ended {
            code: None,
            signal: None,
            started: Some(UnixMicros::new(1_000_000)),
            evicted: None,
        };
        let Some(ContainerFact::Ended(exit)) = runs.handle_event(&event("c1", ended, 3_000_000))
        else {
            panic!("no exit");
        };
        assert_eq!(
            (exit.code, exit.reason, exit.ran),
            (255, ExitReason::Unknown, Duration::from_secs(2))
        );
    }
}
