//! Layers: fetched once, regardless of how many pulls want them; unpacked while they arrive; renamed into the store when
//! every digest has been checked.

mod artifact;
mod download;
mod flight;
mod get;
mod permits;
mod pieces;
mod slice;
mod spool;
mod windows;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use self::flight::{Ending, Flights, Joined, Waiter, ended};
use self::get::Flight;
use self::permits::{Permits, Requester};
pub(super) use self::slice::ArchiveSlice;
use self::windows::WindowSemaphore;
use super::artifact::ArtifactFile;
use super::config::ImageStoreConfig;
use super::decrypt::LayerKey;
use super::digest::Digest;
use super::error::{Error, Result};
use super::manifest::Descriptor;
use super::observer::Steps;
use super::progress::LayerProgress;
use super::registry::Repository;
use super::store::{ContentStore, LayerClaim};

/// Where the bytes of a layer come from.
#[derive(Clone, Debug)]
pub(super) enum LayerSource {
    /// With the key, if the blob is encrypted.
    Registry(Arc<Repository>, Descriptor, Option<Arc<LayerKey>>),
    /// The files of an artifact.
    Artifact(Arc<Repository>, Arc<[ArtifactFile]>),
    /// Part of an archive on disk. It has its own digest unless the archive is one of `docker save`.
    Archive(Arc<ArchiveSlice>),
}

/// Fetches and unpacks layers.
#[derive(Debug)]
pub(super) struct LayerFetcher {
    store: Arc<ContentStore>,
    config: ImageStoreConfig,
    flights: Flights,
    permits: Permits,
    windows: WindowSemaphore,
}

/// A layer that is in the store or being fetched. Pulls of the same blob from the same registry share one flight; another
/// registry may be slower, or send different content.
#[derive(Debug)]
pub(super) enum PendingLayer {
    Ready(Arc<LayerProgress>),
    Flying(Waiter),
    /// A flight that all waiters have left. Once it has ended, a new one begins.
    Ending(Arc<LayerProgress>, Ending),
}

impl LayerFetcher {
    pub(super) fn new(store: Arc<ContentStore>, config: ImageStoreConfig) -> Self {
        let permits = Permits::new(config.max_concurrent_downloads, config.timeouts.slow_layer);
        Self {
            store,
            config,
            flights: Flights::default(),
            permits,
            windows: WindowSemaphore::default(),
        }
    }

    /// A fetcher with other settings, which shares the layers that are being fetched.
    pub(super) fn with_settings(&self, config: ImageStoreConfig) -> Self {
        Self {
            store: Arc::clone(&self.store),
            config,
            flights: self.flights.clone(),
            permits: self.permits.clone(),
            windows: self.windows.clone(),
        }
    }

    /// Starts fetching a layer, or joins the flight that fetches it. The caller holds the layer in the store.
    pub(super) fn request(
        self: &Arc<Self>,
        layer: &Digest,
        source: &LayerSource,
        steps: &Arc<dyn Steps>,
    ) -> PendingLayer {
        let size = source.size();
        let claim = source.claim(layer);
        if self.store.has_layer(layer, claim) {
            let progress = Arc::new(LayerProgress::new(layer.clone(), size));
            progress.finished();
            return PendingLayer::Ready(progress);
        }
        let key = (layer.clone(), source.requester().registry, claim);
        let joined = self.flights.join(&key, |cancel| {
            let progress = Arc::new(LayerProgress::new(layer.clone(), size));
            let flight = Flight {
                layers: Arc::clone(self),
                layer: layer.clone(),
                claim,
                progress: Arc::clone(&progress),
                steps: Arc::clone(steps),
                requester: source.requester(),
                cancel,
                give_up: CancellationToken::new(),
            };
            let source = source.clone();
            // Another flight may have ended since the check above.
            let is_ready = self.store.has_layer(layer, claim);
            let task = async move {
                if is_ready {
                    Ok(())
                } else {
                    flight.run(source).await
                }
            };
            (progress, task)
        });
        match joined {
            Joined::Waiter(waiter) => PendingLayer::Flying(waiter),
            Joined::Ending(ending) => {
                let progress = LayerProgress::new(layer.clone(), size);
                PendingLayer::Ending(Arc::new(progress), ending)
            }
        }
    }

    /// Waits until a layer is in the store. If a flight started by another pull fails, this one tries as well: the other
    /// may have had different credentials. After silence of the registry it does not: each of many pulls would wait in turn.
    pub(super) async fn get(
        self: &Arc<Self>,
        layer: &Digest,
        source: &LayerSource,
        mut pending: PendingLayer,
        steps: &Arc<dyn Steps>,
    ) -> Result<()> {
        loop {
            match pending {
                PendingLayer::Ready(_) => return Ok(()),
                PendingLayer::Flying(waiter) => {
                    let is_first = waiter.is_first;
                    match waiter.wait().await {
                        Err(error) if !is_first && !error.is_silence() => {}
                        result => return result,
                    }
                }
                PendingLayer::Ending(_, mut ending) => drop(ended(&mut ending).await),
            }
            pending = self.request(layer, source, steps);
        }
    }
}

impl PendingLayer {
    pub(super) fn progress(&self) -> Arc<LayerProgress> {
        match self {
            Self::Ready(progress) | Self::Ending(progress, _) => Arc::clone(progress),
            Self::Flying(waiter) => Arc::clone(&waiter.progress),
        }
    }
}

impl LayerSource {
    /// Identifies the requester of a permit. The address of an object that each pull owns identifies the pull.
    fn requester(&self) -> Requester {
        match self {
            Self::Registry(repository, ..) | Self::Artifact(repository, _) => Requester {
                registry: repository.registry().into(),
                pull: Arc::as_ptr(repository).addr(),
            },
            Self::Archive(slice) => Requester {
                registry: "".into(),
                pull: Arc::as_ptr(&slice.file).addr(),
            },
        }
    }

    /// The proof of a layer that a pull with this source shows.
    fn claim(&self, layer: &Digest) -> LayerClaim {
        /// All archives are imported by root.
        const ARCHIVES: &str = "";
        match self {
            Self::Registry(_, _, Some(key)) => LayerClaim::Key(key.proof()),
            Self::Registry(repository, blob, None) => {
                LayerClaim::blob(layer, Some(&blob.digest), &repository.full_name())
            }
            Self::Artifact(..) => LayerClaim::artifact(layer),
            Self::Archive(slice) => LayerClaim::blob(layer, slice.digest.as_ref(), ARCHIVES),
        }
    }

    fn size(&self) -> u64 {
        match self {
            Self::Registry(_, descriptor, _) => descriptor.size,
            Self::Artifact(_, files) => {
                let sizes = files.iter().map(|file| file.blob.size);
                sizes.fold(0, u64::saturating_add)
            }
            Self::Archive(slice) => slice.size,
        }
    }
}

/// Runs blocking work on a separate thread. The work completes even if the future is dropped.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let result = tokio::task::spawn_blocking(work).await;
    result.unwrap_or_else(|_| Err(Error::internal("a blocking task has ended early")))
}
