//! Updates that plugins want, applied in the order of the events that they answer.
//!
//! A separate task applies updates, and not while an event holds its lock: the runtime may hold a container's lock while it waits
//! for an event, and an update waits for that lock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::api::ContainerUpdate;
use crate::observer::PluginObserver;
use crate::runtime::Runtime;

/// Upper bound of events whose updates wait to be applied.
const MAX_WAITING_EVENTS: usize = 1024;

/// How long an event waits for its updates. Later updates are still applied.
const UPDATE_TIMEOUT: Duration = Duration::from_secs(30);

struct UpdateJob {
    updates: Vec<ContainerUpdate>,
    failed: oneshot::Sender<Vec<ContainerUpdate>>,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct UpdateQueue {
    jobs: mpsc::Sender<UpdateJob>,
    observer: Arc<dyn PluginObserver>,
}

/// Updates that are being applied.
pub(crate) struct PendingUpdates {
    /// Receives the failed updates when all are applied; `None` if there are no updates, or they cannot be applied.
    failed: Option<oneshot::Receiver<Vec<ContainerUpdate>>>,
    /// The updates that count as failed after the timeout.
    unsure: Vec<ContainerUpdate>,
}

impl UpdateQueue {
    /// Starts the task, which ends with the queue.
    pub(crate) fn start(runtime: Arc<dyn Runtime>, observer: Arc<dyn PluginObserver>) -> Self {
        let (jobs, to_do) = mpsc::channel(MAX_WAITING_EVENTS);
        tokio::spawn(apply(to_do, runtime, Arc::clone(&observer)));
        Self { jobs, observer }
    }

    /// Adds updates. Updates for which there is no room fail.
    pub(crate) fn add(&self, updates: Vec<ContainerUpdate>) -> PendingUpdates {
        let reported = updates.iter().filter(|update| !update.ignore_failure);
        let unsure = reported.cloned().collect();
        if updates.is_empty() {
            return PendingUpdates {
                failed: None,
                unsure,
            };
        }
        let (failed, applied) = oneshot::channel();
        let added = self.jobs.try_send(UpdateJob { updates, failed });
        if added.is_err() {
            let text =
                format!("updates of containers: those of {MAX_WAITING_EVENTS} events wait already");
            self.observer.problem(&text);
        }
        PendingUpdates {
            failed: added.is_ok().then_some(applied),
            unsure,
        }
    }
}

async fn apply(
    mut jobs: mpsc::Receiver<UpdateJob>,
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn PluginObserver>,
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

impl PendingUpdates {
    /// Waits for the updates, and returns the failed ones.
    pub(crate) async fn failed(self) -> Vec<ContainerUpdate> {
        let Some(failed) = self.failed else {
            return self.unsure;
        };
        match tokio::time::timeout(UPDATE_TIMEOUT, failed).await {
            Ok(Ok(failed)) => failed,
            _ => self.unsure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Container, PodSandbox};
    use crate::observer::NoPluginObserver;
    use crate::runtime::{BoxFuture, EvictionRequest};

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
        fn evict(&self, _: EvictionRequest) -> BoxFuture<'_, Result<(), String>> {
            Box::pin(async { Ok(()) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn updates_that_hang_delay_no_call_and_do_not_pile_up() {
        let queue = UpdateQueue::start(Arc::new(Hangs), Arc::new(NoPluginObserver));
        let one = |ignore_failure| ContainerUpdate {
            container_id: "c".to_owned(),
            ignore_failure,
            ..Default::default()
        };
        let waiting = queue.add(vec![one(false), one(true)]);
        assert_eq!(waiting.failed().await.len(), 1, "after a while");
        // The first has been taken out of the queue.
        let queued = (0..MAX_WAITING_EVENTS).map(|_| queue.add(vec![one(false)]));
        let queued: Vec<_> = queued.collect();
        assert!(queued.iter().all(|applied| applied.failed.is_some()));
        let refused = queue.add(vec![one(false)]);
        assert!(refused.failed.is_none());
        assert_eq!(refused.failed().await.len(), 1);
        assert!(queue.add(Vec::new()).failed().await.is_empty());
    }
}
