//! Updates that plugins asked for, applied in the order of the events that they answer.
//!
//! They are applied by a task of their own and not while an event holds its lock: the runtime may hold a container's lock while
//! it waits for an event, and an update waits for that lock.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::api::ContainerUpdate;
use crate::observer::Observer;
use crate::runtime::Runtime;

struct Job {
    updates: Vec<ContainerUpdate>,
    failed: oneshot::Sender<Vec<ContainerUpdate>>,
}

/// The queue. It has no bound of its own: each entry belongs to an event, or to the only request of a plugin in progress.
#[derive(Debug)]
pub(crate) struct UpdateQueue(mpsc::UnboundedSender<Job>);

/// The failed updates, when all are applied.
pub(crate) struct Applied(Option<oneshot::Receiver<Vec<ContainerUpdate>>>);

impl UpdateQueue {
    /// Starts the task, which ends with the queue.
    pub(crate) fn start(runtime: Arc<dyn Runtime>, observer: Arc<dyn Observer>) -> Self {
        let (sender, mut jobs) = mpsc::unbounded_channel::<Job>();
        tokio::spawn(async move {
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
                let _nobody_waits = job.failed.send(failed);
            }
        });
        Self(sender)
    }

    /// Adds updates.
    pub(crate) fn add(&self, updates: Vec<ContainerUpdate>) -> Applied {
        if updates.is_empty() {
            return Applied(None);
        }
        let (failed, applied) = oneshot::channel();
        // The task lives as long as this.
        let _sent = self.0.send(Job { updates, failed });
        Applied(Some(applied))
    }
}

impl Applied {
    /// Waits for the updates, and returns those that failed.
    pub(crate) async fn failed(self) -> Vec<ContainerUpdate> {
        match self.0 {
            Some(applied) => applied.await.unwrap_or_default(),
            None => Vec::new(),
        }
    }
}
