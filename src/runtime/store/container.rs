//! A container in memory: its record, its layers, and whose turn it is.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::durable::Durable;
use super::record::{ContainerRecord, ContainerState, Exit};
use crate::runtime::error::{Error, Result};
use crate::runtime::paths::Paths;
use criscope_image::LayerLease;

/// A container.
#[derive(Debug)]
pub struct Container {
    /// 64 hexadecimal digits.
    pub id: String,
    /// Start, update and remove have it one after the other. Stop does not need it while it waits.
    pub turn: tokio::sync::Mutex<()>,
    record: Durable<ContainerRecord>,
    state: watch::Sender<ContainerState>,
    settled: watch::Sender<bool>,
    asked: AtomicBool,
    untold: AtomicBool,
    forgotten: AtomicBool,
    layers: Mutex<Vec<LayerLease>>,
}

impl Container {
    /// A container with a record that is on disk already, or soon. `layers` keeps those of its image, and of images that are
    /// its volumes, until it is dropped.
    pub fn new(paths: &Paths, record: ContainerRecord, layers: Vec<LayerLease>) -> Self {
        let (dir, copy) = (paths.container(&record.id), paths.copy(&record.id));
        Self {
            id: record.id.clone(),
            turn: tokio::sync::Mutex::default(),
            state: watch::Sender::new(record.state),
            settled: watch::Sender::new(record.state == ContainerState::Exited),
            asked: AtomicBool::new(false),
            untold: AtomicBool::new(false),
            forgotten: AtomicBool::new(false),
            record: Durable::new(dir, copy, record),
            layers: Mutex::new(layers),
        }
    }

    /// Where its record, bundle and root are.
    pub fn dir(&self) -> &Path {
        self.record.dir()
    }

    /// What is known of it now.
    pub fn record(&self) -> Arc<ContainerRecord> {
        self.record.get()
    }

    /// Changes what is known of it, on disk first.
    ///
    /// # Errors
    /// It cannot be written; then nothing has changed.
    pub async fn update(
        &self,
        change: impl FnOnce(&mut ContainerRecord),
    ) -> Result<Arc<ContainerRecord>> {
        let told = |now: &ContainerRecord| self.tell(now.state);
        self.record.change(change, told).await
    }

    /// Does some work with its files, when it is its turn, on a thread that may wait.
    ///
    /// # Errors
    /// Those of the work.
    pub async fn work<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<R> + Send + 'static,
    ) -> Result<R> {
        self.record.work(work).await
    }

    /// Takes note of its end, once: the first that says so is believed. Whether this was the first.
    ///
    /// That the record could not be written changes nothing about the end: it is in memory, and in the shim's own record.
    pub async fn ended(&self, exit: Exit, at: i64) -> bool {
        let end = |record: &mut ContainerRecord| {
            if record.state == ContainerState::Exited {
                return false;
            }
            record.state = ContainerState::Exited;
            record.finished_at = at;
            record.exit = Some(exit);
            true
        };
        let noted = self.record.note(end, |now| self.tell(now.state)).await;
        if let Some(Err(error)) = &noted {
            tracing::warn!(event = "runtime.record", container.id = %self.id, %error, "an exit is only in memory");
        }
        noted.is_some()
    }

    fn tell(&self, state: ContainerState) {
        self.state.send_if_modified(|now| {
            let changed = *now != state;
            *now = state;
            changed
        });
    }

    /// Whether its process runs.
    pub fn is_running(&self) -> bool {
        self.record().state == ContainerState::Running
    }

    /// Waits until its process has ended.
    pub async fn exited(&self) {
        let mut state = self.state.subscribe();
        // The sender is in `self`: it cannot go away meanwhile.
        let _gone = state
            .wait_for(|state| *state == ContainerState::Exited)
            .await;
    }

    /// What follows from its end is done: the OCI runtime has forgotten it, its root is unmounted.
    pub fn settle(&self) {
        self.settled.send_replace(true);
    }

    /// Waits until what follows from its end is done.
    pub async fn is_settled(&self) {
        let mut settled = self.settled.subscribe();
        // The sender is in `self`: it cannot go away meanwhile.
        let _gone = settled.wait_for(|settled| *settled).await;
    }

    /// The OCI runtime has forgotten it. Not on disk: whoever does not know asks it to forget once more.
    pub fn forget(&self) {
        self.forgotten.store(true, Ordering::Relaxed);
    }

    /// Whether the OCI runtime is known to have forgotten it: a call less.
    pub fn is_forgotten(&self) -> bool {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// Whether this is the first time that it is asked to end.
    pub fn ask_once(&self) -> bool {
        !self.asked.swap(true, Ordering::Relaxed)
    }

    /// It could not be asked.
    pub fn not_asked(&self) {
        self.asked.store(false, Ordering::Relaxed);
    }

    /// It was started by a daemon that may have ended before it said so.
    pub fn offer_start(&self) {
        self.untold.store(true, Ordering::Relaxed);
    }

    /// Whether it was started and nobody was told; from here on somebody was.
    pub fn take_start(&self) -> bool {
        self.untold.swap(false, Ordering::Relaxed)
    }

    /// Lets go of its layers, once its root is unmounted.
    pub fn release_layers(&self) {
        self.layers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// Whether it can be worked with from inside.
    ///
    /// # Errors
    /// [`Error::State`], with the state.
    pub fn running(&self) -> Result<()> {
        match self.record().state {
            ContainerState::Running => Ok(()),
            state => Err(Error::state(format!(
                "container {} is {}, not running",
                self.id,
                state.name()
            ))),
        }
    }
}

impl ContainerState {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Making => "being made",
            Self::Created => "created",
            Self::Starting => "being started",
            Self::Running => "running",
            Self::Exited => "exited",
        }
    }
}
