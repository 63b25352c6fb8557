//! The task that fetches one layer: its purpose and its inputs.

use std::sync::Arc;

use criscope_linux::free_space::MinFree;
use tokio_util::sync::CancellationToken;

use super::permits::{LEAST_RATE, Monitor, Permits, Requester};
use super::windows::WindowSemaphore;
use crate::config::ImageStoreConfig;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::observer::{Step, Steps, observed};
use crate::progress::LayerProgress;
use crate::registry::Repository;
use crate::store::{ContentStore, Disk, LayerClaim};

/// What all layers are fetched with. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct FetchTools {
    pub(super) store: Arc<ContentStore>,
    pub(super) config: Arc<ImageStoreConfig>,
    pub(super) permits: Permits,
    pub(super) windows: WindowSemaphore,
}

/// A layer being fetched into the store.
#[derive(Debug)]
pub(super) struct LayerTask {
    pub(super) tools: FetchTools,
    pub(super) layer: Digest,
    /// The proof that its source shows, recorded once the content is here.
    pub(super) claim: LayerClaim,
    pub(super) progress: Arc<LayerProgress>,
    /// Receives its steps.
    pub(super) steps: Arc<dyn Steps>,
    pub(super) requester: Requester,
    pub(super) cancel: CancellationToken,
    /// Cancelled if the layer is too slow while others wait for a permit: see `permits`.
    pub(super) give_up: CancellationToken,
}

impl LayerTask {
    pub(super) async fn step(
        &self,
        step: Step,
        work: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        observed(&*self.steps, step, Some(self.layer.short()), work).await
    }

    pub(super) fn monitor(&self) -> Monitor {
        Monitor {
            progress: Arc::clone(&self.progress),
            give_up: self.give_up.clone(),
        }
    }

    pub(super) fn cancelled(&self) -> Error {
        Error::cancelled(format!("layer {}", self.layer))
    }

    pub(super) fn too_slow(&self, repository: &Repository) -> Error {
        let reason = format!(
            "less than {LEAST_RATE} bytes per second of layer {} while others waited",
            self.layer
        );
        let host = repository.registry().to_owned();
        Error::RegistryUnavailable { host, reason }
    }

    pub(super) fn disk(&self) -> &Disk {
        &self.tools.store.disk
    }

    pub(super) fn min_free(&self) -> MinFree {
        self.tools.config.limits.min_free()
    }

    pub(super) fn store(&self) -> Arc<ContentStore> {
        Arc::clone(&self.tools.store)
    }

    /// Bytes have arrived.
    pub(super) fn fetched(&self, bytes: u64) {
        self.progress.fetched(bytes);
        self.tools.config.observer.bytes_fetched(bytes);
    }

    /// Checks the size and the free space. The unpacked size is checked during unpacking.
    pub(super) fn check_size(&self, size: u64) -> Result<()> {
        let limits = &self.tools.config.limits;
        if size > limits.max_layer_bytes {
            let what = format!("layer {}", self.layer);
            let reason = format!(
                "{size} bytes, at most {} are allowed",
                limits.max_layer_bytes
            );
            return Err(Error::too_large(what, reason));
        }
        self.disk().check_space(limits.min_free(), size)
    }
}
