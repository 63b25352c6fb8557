//! A container in memory: its record, its layers, and its locks.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::durable::Durable;
use super::record::{ContainerRecord, ContainerState, Exit};
use crate::error::{Error, Result};
use crate::paths::Paths;
use criscope_image::LayerLease;

/// The reason of the exit of a container that an NRI plugin evicted; that of pods that the kubelet evicts.
pub(crate) const EVICTED: &str = "Evicted";

/// The exit code after SIGKILL.
const KILLED: i32 = 137;

/// A container.
#[derive(Debug)]
pub(crate) struct Container {
    /// 64 hexadecimal digits.
    pub id: String,
    /// Serialises start, update and remove. StopContainer does not hold it while it waits.
    pub op_lock: tokio::sync::Mutex<()>,
    /// Serialises checkpoints, and the removal of their directory. Taken after `op_lock`.
    pub checkpoint_lock: tokio::sync::Mutex<()>,
    record: Durable<ContainerRecord>,
    state: watch::Sender<ContainerState>,
    settled: watch::Sender<bool>,
    stop_signalled: AtomicBool,
    start_unacknowledged: AtomicBool,
    forgotten: AtomicBool,
    layers: Mutex<Vec<LayerLease>>,
}

impl Container {
    /// Creates a container with a record that has been or is about to be written. `layers` are leases on the layers of its
    /// image and image volumes.
    pub(crate) fn new(paths: &Paths, record: ContainerRecord, layers: Vec<LayerLease>) -> Self {
        let (dir, copy) = (paths.container(&record.id), paths.copy(&record.id));
        Self {
            id: record.id.clone(),
            op_lock: tokio::sync::Mutex::default(),
            checkpoint_lock: tokio::sync::Mutex::default(),
            state: watch::Sender::new(record.state),
            settled: watch::Sender::new(record.state == ContainerState::Exited),
            stop_signalled: AtomicBool::new(false),
            start_unacknowledged: AtomicBool::new(false),
            forgotten: AtomicBool::new(false),
            record: Durable::new(dir, copy, record),
            layers: Mutex::new(layers),
        }
    }

    /// The directory of its record, bundle and root file system.
    pub(crate) fn dir(&self) -> &Path {
        self.record.dir()
    }

    /// The current record.
    pub(crate) fn record(&self) -> Arc<ContainerRecord> {
        self.record.get()
    }

    /// Changes the record, on disk first.
    ///
    /// # Errors
    /// If the record cannot be written; it is then unchanged.
    pub(crate) async fn update(
        &self,
        change: impl FnOnce(&mut ContainerRecord),
    ) -> Result<Arc<ContainerRecord>> {
        self.record
            .change(change, |now| self.publish(now.state))
            .await
    }

    /// Runs work with the files of the container on the pool of blocking threads, one piece at a time.
    ///
    /// # Errors
    /// The errors of the work.
    pub(crate) async fn work<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<R> + Send + 'static,
    ) -> Result<R> {
        self.record.work(work).await
    }

    /// Records the exit, unless one is already recorded; returns whether it was recorded.
    ///
    /// The exit is recorded in memory even if the record cannot be written, because the shim keeps its own exit record.
    pub(crate) async fn ended(&self, exit: Exit, at: i64) -> bool {
        let noted = self.record.note(
            |record| {
                if record.state == ContainerState::Exited {
                    return false;
                }
                record.state = ContainerState::Exited;
                record.finished_at = at;
                record.exit = Some(evicted(exit, record.evicted.take()));
                true
            },
            |now| self.publish(now.state),
        );
        let noted = noted.await;
        if let Some(Err(error)) = &noted {
            tracing::warn!(target: "criscope::runtime::store::container", event = "runtime.record", container.id = %self.id, error.message = %error, "an exit is recorded in memory only");
        }
        noted.is_some()
    }

    fn publish(&self, state: ContainerState) {
        self.state.send_if_modified(|now| {
            let changed = *now != state;
            *now = state;
            changed
        });
    }

    /// Returns whether the container is running.
    pub(crate) fn is_running(&self) -> bool {
        self.record().state == ContainerState::Running
    }

    /// Waits until the container has exited.
    pub(crate) async fn exited(&self) {
        let mut state = self.state.subscribe();
        // Cannot fail: `self` owns the sender.
        let _gone = state
            .wait_for(|state| *state == ContainerState::Exited)
            .await;
    }

    /// Marks the cleanup after the exit as done: the container is deleted from the OCI runtime, its root file system unmounted.
    pub(crate) fn settle(&self) {
        self.settled.send_replace(true);
    }

    /// Waits until the cleanup after the exit is done.
    pub(crate) async fn is_settled(&self) {
        let mut settled = self.settled.subscribe();
        // Cannot fail: `self` owns the sender.
        let _gone = settled.wait_for(|settled| *settled).await;
    }

    /// Marks the container as deleted from the OCI runtime. Kept in memory only, because deleting it again is harmless.
    pub(crate) fn forget(&self) {
        self.forgotten.store(true, Ordering::Relaxed);
    }

    /// Returns whether the container is known to be deleted from the OCI runtime.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// Returns whether the stop signal is still to be sent, and marks it as sent.
    pub(crate) fn claim_stop_signal(&self) -> bool {
        !self.stop_signalled.swap(true, Ordering::Relaxed)
    }

    /// Reverts [`Self::claim_stop_signal`] after the signal could not be sent.
    pub(crate) fn release_stop_signal(&self) {
        self.stop_signalled.store(false, Ordering::Relaxed);
    }

    /// Lets the next StartContainer succeed: the previous daemon may have started the container without responding.
    pub(crate) fn allow_repeated_start(&self) {
        self.start_unacknowledged.store(true, Ordering::Relaxed);
    }

    /// Returns whether [`Self::allow_repeated_start`] was called since the last call of this method.
    pub(crate) fn take_repeated_start(&self) -> bool {
        self.start_unacknowledged.swap(false, Ordering::Relaxed)
    }

    /// Releases the leases on its layers, once its root file system is unmounted.
    pub(crate) fn release_layers(&self) {
        self.layers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// Checks that the container is running.
    ///
    /// # Errors
    /// [`Error::State`], with the actual state.
    pub(crate) fn running(&self) -> Result<()> {
        match self.record().state {
            ContainerState::Running => Ok(()),
            state => Err(Error::state(format!(
                "container {} is {}, not running",
                self.id,
                state.in_error()
            ))),
        }
    }
}

/// The exit of a container that a plugin wanted to be gone, if it follows from the signal that was sent for it.
fn evicted(exit: Exit, by: Option<String>) -> Exit {
    match by {
        Some(message) if exit.code == KILLED && exit.reason == "Error" => Exit {
            reason: EVICTED.to_owned(),
            message,
            ..exit
        },
        _ => exit,
    }
}

impl ContainerState {
    /// The state for error messages.
    pub(crate) fn in_error(self) -> &'static str {
        match self {
            Self::Making => "being created",
            Self::Created => "created",
            Self::Starting => "being started",
            Self::Running => "running",
            Self::Exited => "exited",
        }
    }
}
