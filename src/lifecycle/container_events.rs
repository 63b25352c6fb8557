//! Events that a runtime reports without being called: an OOM kill in a container, the exit of a container or sandbox. containerd
//! has its events service for that ([`super::containerd::events`]); the built-in runtime reports them directly.

use std::sync::Arc;

use lru::LruCache;

use crate::cri::subject::{ContainerIdentity, ExitReason, PodIdentity};
use crate::lifecycle::episode_store::{
    EXIT_FOLLOWS_OOM_WITHIN, ExitRecord, SandboxEnd, UNSEEN_EXIT_CODE,
};

pub use crate::lifecycle::episode_store::ReachedLimit;

/// Running containers that are remembered. A node has some hundred.
const KNOWN: usize = 4096;

/// An event of a container or sandbox.
#[derive(Clone, Debug)]
pub struct ContainerEvent {
    /// The id of the container or sandbox.
    pub id: Arc<str>,
    /// The pod, with the attempt of the sandbox.
    pub pod: Arc<PodIdentity>,
    /// The container; `None` for a sandbox.
    pub container: Option<Arc<ContainerIdentity>>,
    /// What happened.
    pub what: What,
    /// When, in microseconds since 1970.
    pub at: u64,
}

/// What happened to a container or sandbox. Times in microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It was started.
    Started,
    /// The kernel killed a process of it for lack of memory, perhaps not the first one.
    OutOfMemory {
        /// Processes of it that were killed so far, if the runtime counts them.
        kills: Option<u32>,
    },
    /// Its first process has ended.
    Ended {
        /// Exit code; 128 plus the number of the signal that killed it. `None` if the runtime did not see it, and of the init
        /// of a shared PID namespace, of which the built-in runtime knows only that it has ended.
        code: Option<i32>,
        /// When it was started, if the event says so.
        started: Option<u64>,
        /// Who evicted it and why, if it was evicted: the built-in runtime does so for an NRI plugin.
        evicted: Option<Box<str>>,
    },
    /// The sandbox container of a sandbox that the built-in runtime runs with a shim of containerd has ended.
    SandboxContainerEnded {
        /// The limit that its cgroup had reached.
        limit: Option<ReachedLimit>,
    },
}

/// What follows from an event for the story of a pod.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ContainerFact {
    /// A container has ended.
    Ended(ExitRecord),
    /// The kernel killed a process of this container for lack of memory; and how many so far, if known.
    OutOfMemory(Arc<ContainerIdentity>, Option<u32>),
    /// The first process of the sandbox has ended.
    SandboxEnded(SandboxEnd),
}

/// A container or sandbox that runs. Times in microseconds since 1970.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    started: Option<u64>,
    /// The last time that the kernel killed a process of it.
    oom_at: Option<u64>,
}

/// What runs, as far as events tell.
#[derive(Debug)]
pub(crate) struct Runs(LruCache<Arc<str>, Run>);

impl Default for Runs {
    fn default() -> Self {
        Self(LruCache::unbounded())
    }
}

impl Runs {
    /// Takes in an event.
    pub(crate) fn note(&mut self, event: &ContainerEvent) -> Option<ContainerFact> {
        match &event.what {
            What::Started => {
                self.run(&event.id).started = Some(event.at);
                None
            }
            What::OutOfMemory { kills } => {
                let container = event.container.clone()?;
                self.run(&event.id).oom_at = Some(event.at);
                Some(ContainerFact::OutOfMemory(container, *kills))
            }
            What::SandboxContainerEnded { limit } => {
                let end = SandboxEnd::from_container(event.at, *limit);
                Some(ContainerFact::SandboxEnded(end))
            }
            What::Ended {
                code,
                started,
                evicted,
            } => {
                let mut run = self.0.pop(&event.id).unwrap_or_default();
                run.started = started.or(run.started);
                Some(match event.container.as_deref() {
                    Some(container) => {
                        let exit = exit(container, event.at, *code, run);
                        ContainerFact::Ended(exit.evicted_by(evicted.clone()))
                    }
                    None => ContainerFact::SandboxEnded(SandboxEnd::new(event.at, *code)),
                })
            }
        }
    }

    fn run(&mut self, id: &Arc<str>) -> &mut Run {
        if !self.0.contains(id) && self.0.len() >= KNOWN {
            self.0.pop_lru();
        }
        self.0.get_or_insert_mut(Arc::clone(id), Run::default)
    }
}

fn exit(container: &ContainerIdentity, at: u64, code: Option<i32>, run: Run) -> ExitRecord {
    let is_oom = run
        .oom_at
        .is_some_and(|oom_at| at.saturating_sub(oom_at) <= EXIT_FOLLOWS_OOM_WITHIN);
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
        // One that ends at once may be told to have started after its end.
        ran: run
            .started
            .map_or(0, |started| at.saturating_sub(started).max(1)),
        at,
        stop_requested: false,
        oom_kills: 0,
        oom_at: run.oom_at,
        evicted: None,
        node_restarted: None,
        by_event: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OOM: What = What::OutOfMemory { kills: None };

    fn end(code: i32) -> What {
        let code = Some(code);
        What::Ended {
            code,
            started: None,
            evicted: None,
        }
    }

    fn event(id: &str, what: What, at: u64) -> ContainerEvent {
        let container = id.starts_with('c').then(|| ContainerIdentity {
            name: "app".into(),
            attempt: 2,
        });
        ContainerEvent {
            id: id.into(),
            pod: Arc::default(),
            container: container.map(Arc::new),
            what,
            at,
        }
    }

    fn ended(runs: &mut Runs, id: &str, code: i32, at: u64) -> ExitRecord {
        match runs.note(&event(id, end(code), at)) {
            Some(ContainerFact::Ended(exit)) => exit,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_exit_has_its_run_and_the_last_kill() {
        let mut runs = Runs::default();
        runs.note(&event("c1", What::Started, 1_000_000));
        let oom = runs.note(&event("c1", OOM, 2_000_000));
        assert!(matches!(oom, Some(ContainerFact::OutOfMemory(it, None)) if it.attempt == 2));
        let exit = ended(&mut runs, "c1", 137, 2_100_000);
        assert_eq!(
            (exit.ran, exit.reason, exit.oom_at),
            (1_100_000, ExitReason::OomKilled, Some(2_000_000))
        );
        // A later task with this id has nothing of it.
        let exit = ended(&mut runs, "c1", 137, 3_000_000);
        assert_eq!((exit.ran, exit.reason), (0, ExitReason::Error));
        // Its child was killed long before, or it ended by itself.
        for (code, at, reason) in [
            (137, 60_000_000, ExitReason::Error),
            (5, 2_100_000, ExitReason::Error),
            (0, 2_100_000, ExitReason::Completed),
        ] {
            runs.note(&event("c2", OOM, 2_000_000));
            assert_eq!(ended(&mut runs, "c2", code, at).reason, reason, "{code}");
        }
        let ended = runs.note(&event("s", end(137), 5));
        let died = SandboxEnd::new(5, Some(137));
        assert_eq!(ended, Some(ContainerFact::SandboxEnded(died)));
        assert_eq!(runs.0.len(), 0);
        for n in 0..2 * KNOWN {
            runs.note(&event(&format!("c{n}"), What::Started, 1));
        }
        assert_eq!(runs.0.len(), KNOWN);
    }

    /// As the built-in runtime tells it.
    #[test]
    fn an_exit_that_was_not_seen_is_that_of_container_status() {
        let mut runs = Runs::default();
        let ended = What::Ended {
            code: None,
            started: Some(1_000_000),
            evicted: None,
        };
        let Some(ContainerFact::Ended(exit)) = runs.note(&event("c1", ended, 3_000_000)) else {
            panic!("no exit");
        };
        assert_eq!(
            (exit.code, exit.reason, exit.ran),
            (255, ExitReason::Unknown, 2_000_000)
        );
    }
}
