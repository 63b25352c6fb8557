//! A sandbox in memory: its record, its shim, and its locks.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::durable::Durable;
use super::record::{SandboxRecord, SandboxState};
use crate::error::{Error, Result};
use crate::paths::Paths;
use crate::shim_client::Shim;

/// A sandbox.
#[derive(Debug)]
pub(crate) struct Sandbox {
    /// 64 hexadecimal digits.
    pub id: String,
    /// Held for writing by verbs on the sandbox, such as stop, and for reading while a container is created or started.
    pub op_lock: tokio::sync::RwLock<()>,
    record: Durable<SandboxRecord>,
    shim: Mutex<Option<Shim>>,
    nri_stopped: AtomicBool,
}

impl Sandbox {
    /// Creates a sandbox with a record that has been or is about to be written.
    pub(crate) fn new(paths: &Paths, record: SandboxRecord) -> Self {
        let (dir, copy) = (paths.sandbox(&record.id), paths.copy(&record.id));
        Self {
            id: record.id.clone(),
            op_lock: tokio::sync::RwLock::default(),
            record: Durable::new(dir, copy, record),
            shim: Mutex::default(),
            nri_stopped: AtomicBool::new(false),
        }
    }

    /// The directory of its record and files, below the root, which survives a reboot.
    pub(crate) fn dir(&self) -> &Path {
        self.record.dir()
    }

    /// The current record.
    pub(crate) fn record(&self) -> Arc<SandboxRecord> {
        self.record.get()
    }

    /// Changes the record, on disk first.
    ///
    /// # Errors
    /// If the record cannot be written; it is then unchanged.
    pub(crate) async fn update(
        &self,
        change: impl FnOnce(&mut SandboxRecord),
    ) -> Result<Arc<SandboxRecord>> {
        self.record.change(change, |_| ()).await
    }

    /// Runs work with the files of the sandbox on the pool of blocking threads, one piece at a time.
    ///
    /// # Errors
    /// The errors of the work.
    pub(crate) async fn work<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<R> + Send + 'static,
    ) -> Result<R> {
        self.record.work(work).await
    }

    /// Changes the record in memory even if it cannot be written: it must be possible to stop pods on a full disk, which frees
    /// space. Steps that were not written are repeated after a restart.
    pub(crate) async fn note(&self, change: impl FnOnce(&mut SandboxRecord)) {
        let noted = self.record.note(
            |record| {
                change(record);
                true
            },
            |_| (),
        );
        if let Some(Err(error)) = noted.await {
            tracing::warn!(target: "criscope::runtime::store::sandbox", event = "runtime.record", criscope.sandbox.id = %self.id, error.message = %error, "the progress of stopping a pod is recorded in memory only");
        }
    }

    /// Checks that the sandbox is ready, as required to create containers.
    ///
    /// # Errors
    /// [`Error::State`], with the actual state.
    pub(crate) fn ready(&self) -> Result<()> {
        let record = self.record();
        match record.state {
            SandboxState::Ready => Ok(()),
            SandboxState::Making => Err(Error::state(format!(
                "pod sandbox {} is being created",
                self.id
            ))),
            SandboxState::Stopped => {
                let id = &self.id;
                Err(Error::state(match record.lost_init() {
                    Some(lost) => format!("pod sandbox {id} is not ready: {lost} has exited"),
                    None => format!("pod sandbox {id} is not ready"),
                }))
            }
        }
    }

    /// Returns whether NRI plugins are still to be told that it is stopped; true once.
    pub(crate) fn claim_nri_stop(&self) -> bool {
        !self.nri_stopped.swap(true, Ordering::Relaxed)
    }

    /// The connection to its shim, if there is one.
    pub(crate) fn shim(&self) -> Option<Shim> {
        self.shim
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Sets or clears the connection to its shim.
    pub(crate) fn set_shim(&self, shim: Option<Shim>) {
        *self.shim.lock().unwrap_or_else(PoisonError::into_inner) = shim;
    }
}
