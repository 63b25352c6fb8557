//! A sandbox in memory: its record, its shim, and whose turn it is.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::durable::Durable;
use super::record::{SandboxRecord, SandboxState};
use crate::runtime::error::{Error, Result};
use crate::runtime::paths::Paths;
use crate::runtime::shim_client::Shim;

/// A sandbox.
#[derive(Debug)]
pub struct Sandbox {
    /// 64 hexadecimal digits.
    pub id: String,
    /// Stop, remove and the like have it alone; creating and starting a container share it.
    pub turn: tokio::sync::RwLock<()>,
    record: Durable<SandboxRecord>,
    shim: Mutex<Option<Shim>>,
}

impl Sandbox {
    /// A sandbox with a record that is on disk already, or soon.
    pub fn new(paths: &Paths, record: SandboxRecord) -> Self {
        let (dir, copy) = (paths.sandbox(&record.id), paths.copy(&record.id));
        Self {
            id: record.id.clone(),
            turn: tokio::sync::RwLock::default(),
            record: Durable::new(dir, copy, record),
            shim: Mutex::default(),
        }
    }

    /// Where its record and its files are: below the root, which outlives a reboot.
    pub fn dir(&self) -> &Path {
        self.record.dir()
    }

    /// What is known of it now.
    pub fn record(&self) -> Arc<SandboxRecord> {
        self.record.get()
    }

    /// Changes what is known of it, on disk first.
    ///
    /// # Errors
    /// It cannot be written; then nothing has changed.
    pub async fn update(
        &self,
        change: impl FnOnce(&mut SandboxRecord),
    ) -> Result<Arc<SandboxRecord>> {
        self.record.change(change, |_| ()).await
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

    /// The same for what is true whether it can be written or not. To stop a pod frees a disk that is full, so that must not
    /// need room; after a restart what was not written is done once more.
    pub async fn note(&self, change: impl FnOnce(&mut SandboxRecord)) {
        let noted = self.record.note(
            |record| {
                change(record);
                true
            },
            |_| (),
        );
        if let Some(Err(error)) = noted.await {
            tracing::warn!(event = "runtime.record", sandbox.id = %self.id, %error, "how far a pod is stopped is only in memory");
        }
    }

    /// Whether it can have containers.
    ///
    /// # Errors
    /// [`Error::State`], with the state.
    pub fn ready(&self) -> Result<()> {
        match self.record().state {
            SandboxState::Ready => Ok(()),
            SandboxState::Making => Err(Error::state(format!(
                "pod sandbox {} is being made",
                self.id
            ))),
            SandboxState::Stopped if self.record().lost_processes() => Err(Error::state(format!(
                "pod sandbox {} is not ready: the init of its shared PID namespace has ended",
                self.id
            ))),
            SandboxState::Stopped => Err(Error::state(format!(
                "pod sandbox {} is not ready",
                self.id
            ))),
        }
    }

    /// Its shim, if there is a connection to one.
    pub fn shim(&self) -> Option<Shim> {
        self.shim
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Takes note of its shim, or that there is none any more.
    pub fn set_shim(&self, shim: Option<Shim>) {
        *self.shim.lock().unwrap_or_else(PoisonError::into_inner) = shim;
    }
}
