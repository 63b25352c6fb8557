//! Updates that plugins asked for, applied in the order of the events that they answer.
//!
//! They are applied by a task of their own and not while an event holds its lock: the runtime may hold a container's lock while
//! it waits for an event, and an update waits for that lock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::api::ContainerUpdate;
use crate::observer::Observer;
use crate::runtime::Runtime;

/// The most events whose updates wait to be applied.
const WAITING: usize = 1024;

/// How long an event waits for its updates. They are applied all the same.
const PATIENCE: Duration = Duration::from_secs(30);

struct Job {
    updates: Vec<ContainerUpdate>,
    failed: oneshot::Sender<Vec<ContainerUpdate>>,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct UpdateQueue {
    jobs: mpsc::Sender<Job>,
    observer: Arc<dyn Observer>,
}

/// Updates that are being applied.
pub(crate) struct Applied {
    /// Those that failed, when all are applied; `None` if there are none, or they cannot be applied.
    failed: Option<oneshot::Receiver<Vec<ContainerUpdate>>>,
    /// Those that count as failed if that takes too long.
    unsure: Vec<ContainerUpdate>,
}

impl UpdateQueue {
    /// Starts the task, which ends with the queue.
    pub(crate) fn start(runtime: Arc<dyn Runtime>, observer: Arc<dyn Observer>) -> Self {
        let (jobs, to_do) = mpsc::channel(WAITING);
        tokio::spawn(apply(to_do, runtime, Arc::clone(&observer)));
        Self { jobs, observer }
    }

    /// Adds updates. Those for which there is no room fail.
    pub(crate) fn add(&self, updates: Vec<ContainerUpdate>) -> Applied {
        let told = updates.iter().filter(|update| !update.ignore_failure);
        let unsure = told.cloned().collect();
        if updates.is_empty() {
            return Applied {
                failed: None,
                unsure,
            };
        }
        let (failed, applied) = oneshot::channel();
        let added = self.jobs.try_send(Job { updates, failed });
        if added.is_err() {
            let text = format!("updates of containers: those of {WAITING} events wait already");
            self.observer.problem(&text);
        }
        Applied {
            failed: added.is_ok().then_some(applied),
            unsure,
        }
    }
}

async fn apply(
    mut jobs: mpsc::Receiver<Job>,
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn Observer>,
) {
    while let Some(job) = jobs.recv().await {
        let mut failed = Vec::new();
        for update in job.updates {
            let id = update.container_id.clone();
            let ignored = update.ignore_failure;
            if let Err(error) = runtime.update(update.clone()).await {
                observer.problem(&format!("update of container {id}: {error}"));
                if !ignored {
                    failed.push(update);
                }
            }
        }
        let _unreceived = job.failed.send(failed);
    }
}

impl Applied {
    /// Waits for the updates, and returns those that failed.
    pub(crate) async fn failed(self) -> Vec<ContainerUpdate> {
        let Some(failed) = self.failed else {
            return self.unsure;
        };
        match tokio::time::timeout(PATIENCE, failed).await {
            Ok(Ok(failed)) => failed,
            _ => self.unsure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Container, PodSandbox};
    use crate::observer::NoObserver;
    use crate::runtime::{BoxFuture, Eviction};

    /// A runtime on which no update ends.
    #[derive(Debug)]
    struct Hangs;

    impl Runtime for Hangs {
        fn list(&self) -> BoxFuture<'_, (Vec<PodSandbox>, Vec<Container>)> {
            Box::pin(async { Default::default() })
        }
        fn update(&self, _: ContainerUpdate) -> BoxFuture<'_, Result<(), String>> {
            Box::pin(std::future::pending())
        }
        fn evict(&self, _: Eviction) -> BoxFuture<'_, Result<(), String>> {
            Box::pin(async { Ok(()) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn updates_that_hang_delay_no_call_and_do_not_pile_up() {
        let queue = UpdateQueue::start(Arc::new(Hangs), Arc::new(NoObserver));
        let one = |ignore_failure| ContainerUpdate {
            container_id: "c".to_owned(),
            ignore_failure,
            ..Default::default()
        };
        let waiting = queue.add(vec![one(false), one(true)]);
        assert_eq!(waiting.failed().await.len(), 1, "after a while");
        // The first has been taken out of the queue.
        let queued = (0..WAITING).map(|_| queue.add(vec![one(false)]));
        let queued: Vec<_> = queued.collect();
        assert!(queued.iter().all(|applied| applied.failed.is_some()));
        let refused = queue.add(vec![one(false)]);
        assert!(refused.failed.is_none());
        assert_eq!(refused.failed().await.len(), 1);
        assert!(queue.add(Vec::new()).failed().await.is_empty());
    }
}
