//! What the events of tasks say together: when a task was started, that the kernel killed a process of it, how it ended.

use std::sync::Arc;

use lru::LruCache;

use crate::cri::subject::{ContainerIdentity, ExitReason, PodIdentity};
use crate::lifecycle::episode_store::{AT_ONCE, Exit, SandboxEnd};

/// Running tasks that are remembered. A node has some hundred.
const KNOWN: usize = 4096;

/// An event of the task of a container, or of the first process of a sandbox.
#[derive(Clone, Debug)]
pub struct TaskEvent {
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

/// What happened to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It was started.
    Started,
    /// The kernel killed a process of it for lack of memory, perhaps not the first one.
    OutOfMemory,
    /// Its first process has ended.
    Ended {
        /// Exit code; 128 plus the number of the signal that killed it.
        code: i32,
    },
}

/// What follows from an event for the story of a pod.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::lifecycle) enum TaskFact {
    /// A container has ended.
    Ended(Exit),
    /// The kernel killed a process of this container for lack of memory.
    OutOfMemory(Arc<ContainerIdentity>),
    /// The first process of the sandbox has ended.
    SandboxEnded(SandboxEnd),
}

/// A task that runs. Times in microseconds since 1970.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    started: Option<u64>,
    /// The last time that the kernel killed a process of it.
    oom_at: Option<u64>,
}

/// The tasks that run, as far as events tell.
#[derive(Debug)]
pub(in crate::lifecycle) struct Tasks(LruCache<Arc<str>, Run>);

impl Default for Tasks {
    fn default() -> Self {
        Self(LruCache::unbounded())
    }
}

impl Tasks {
    /// Takes in an event.
    pub(in crate::lifecycle) fn note(&mut self, event: &TaskEvent) -> Option<TaskFact> {
        match event.what {
            What::Started => {
                self.run(&event.id).started = Some(event.at);
                None
            }
            What::OutOfMemory => {
                let container = event.container.clone()?;
                self.run(&event.id).oom_at = Some(event.at);
                Some(TaskFact::OutOfMemory(container))
            }
            What::Ended { code } => {
                let run = self.0.pop(&event.id).unwrap_or_default();
                Some(match event.container.as_deref() {
                    Some(container) => TaskFact::Ended(exit(container, event.at, code, run)),
                    None => TaskFact::SandboxEnded(SandboxEnd::new(event.at, code)),
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

fn exit(container: &ContainerIdentity, at: u64, code: i32, run: Run) -> Exit {
    let is_oom = run
        .oom_at
        .is_some_and(|oom_at| at.saturating_sub(oom_at) <= AT_ONCE);
    Exit {
        container: container.name.clone(),
        attempt: container.attempt,
        code,
        reason: match code {
            0 => ExitReason::Completed,
            137 if is_oom => ExitReason::OomKilled,
            _ => ExitReason::Error,
        },
        // One that ends at once may be told to have started after its end.
        ran: run
            .started
            .map_or(0, |started| at.saturating_sub(started).max(1)),
        at,
        ordered: false,
        oom_kills: 0,
        oom_at: run.oom_at,
        by_event: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: &str, what: What, at: u64) -> TaskEvent {
        let container = id.starts_with('c').then(|| ContainerIdentity {
            name: "app".into(),
            attempt: 2,
        });
        TaskEvent {
            id: id.into(),
            pod: Arc::default(),
            container: container.map(Arc::new),
            what,
            at,
        }
    }

    fn ended(tasks: &mut Tasks, id: &str, code: i32, at: u64) -> Exit {
        match tasks.note(&event(id, What::Ended { code }, at)) {
            Some(TaskFact::Ended(exit)) => exit,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_exit_has_its_run_and_the_last_kill() {
        let mut tasks = Tasks::default();
        tasks.note(&event("c1", What::Started, 1_000_000));
        let oom = tasks.note(&event("c1", What::OutOfMemory, 2_000_000));
        assert!(matches!(oom, Some(TaskFact::OutOfMemory(it)) if it.attempt == 2));
        let exit = ended(&mut tasks, "c1", 137, 2_100_000);
        assert_eq!(
            (exit.ran, exit.reason, exit.oom_at),
            (1_100_000, ExitReason::OomKilled, Some(2_000_000))
        );
        // A later task with this id has nothing of it.
        let exit = ended(&mut tasks, "c1", 137, 3_000_000);
        assert_eq!((exit.ran, exit.reason), (0, ExitReason::Error));
        // Its child was killed long before, or it ended by itself.
        for (code, at, reason) in [
            (137, 60_000_000, ExitReason::Error),
            (5, 2_100_000, ExitReason::Error),
            (0, 2_100_000, ExitReason::Completed),
        ] {
            tasks.note(&event("c2", What::OutOfMemory, 2_000_000));
            assert_eq!(ended(&mut tasks, "c2", code, at).reason, reason, "{code}");
        }
        let end = tasks.note(&event("s", What::Ended { code: 137 }, 5));
        assert_eq!(end, Some(TaskFact::SandboxEnded(SandboxEnd::new(5, 137))));
        assert_eq!(tasks.0.len(), 0);
        for n in 0..2 * KNOWN {
            tasks.note(&event(&format!("c{n}"), What::Started, 1));
        }
        assert_eq!(tasks.0.len(), KNOWN);
    }
}
