//! Layers: fetched once, regardless of how many pulls want them; unpacked while they arrive; renamed into the store when
//! every digest has been checked.

mod artifact;
mod download;
mod flight;
mod get;
mod permits;
mod pieces;
mod slice;
mod source;
mod spool;
mod task;
mod windows;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use self::flight::{Ending, Flights, Joined, Waiter, ended};
use self::permits::Permits;
pub(super) use self::source::{ArchiveSlice, LayerSource};
use self::task::{FetchTools, LayerTask};
use self::windows::WindowSemaphore;
use super::config::ImageStoreConfig;
use super::digest::Digest;
use super::error::Result;
use super::observer::Steps;
use super::progress::LayerProgress;
use super::store::ContentStore;

/// Fetches and unpacks layers.
#[derive(Debug)]
pub(super) struct LayerFetcher {
    tools: FetchTools,
    flights: Flights,
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
    pub(super) fn new(store: Arc<ContentStore>, config: Arc<ImageStoreConfig>) -> Self {
        let tools = FetchTools {
            permits: Permits::new(config.max_concurrent_downloads, config.timeouts.slow_layer),
            windows: WindowSemaphore::default(),
            store,
            config,
        };
        Self {
            tools,
            flights: Flights::default(),
        }
    }

    /// A fetcher with other settings, which shares the layers that are being fetched.
    pub(super) fn with_settings(&self, config: Arc<ImageStoreConfig>) -> Self {
        let tools = FetchTools {
            config,
            ..self.tools.clone()
        };
        Self {
            tools,
            flights: self.flights.clone(),
        }
    }

    /// Starts fetching a layer, or joins the flight that fetches it. The caller holds the layer in the store.
    pub(super) fn request(
        &self,
        layer: &Digest,
        source: &LayerSource,
        steps: &Arc<dyn Steps>,
    ) -> PendingLayer {
        let size = source.size();
        let claim = source.claim(layer);
        if self.tools.store.has_layer(layer, claim) {
            let progress = Arc::new(LayerProgress::new(layer.clone(), size));
            progress.finished();
            return PendingLayer::Ready(progress);
        }
        let key = (layer.clone(), source.requester().registry, claim);
        let joined = self.flights.join(&key, |cancel| {
            let progress = Arc::new(LayerProgress::new(layer.clone(), size));
            let task = LayerTask {
                tools: self.tools.clone(),
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
            let is_ready = self.tools.store.has_layer(layer, claim);
            let work = async move {
                if is_ready {
                    Ok(())
                } else {
                    task.run(source).await
                }
            };
            (progress, work)
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
        &self,
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
