//! Layers: fetched once however many want them, unpacked as they come, and named when all of it is right.

mod flight;
mod get;
mod part;
mod spool;
mod turns;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use self::flight::{Ending, Flights, Joined, Waiter, ended};
use self::get::Flight;
pub(super) use self::part::Part;
use self::turns::{Turns, Whose, WideTurn};
use super::config::ImagesConfig;
use super::digest::Digest;
use super::error::{Error, Result};
use super::manifest::Descriptor;
use super::progress::LayerProgress;
use super::registry::Session;
use super::store::Store;
use crate::runtime::observe::{carried, carried_over};

/// Where the bytes of a layer come from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// A registry.
    Registry(Arc<Session>, Descriptor),
    /// A part of an archive on disk. It has a digest of its own unless the archive is Docker's.
    Archive(Arc<Part>),
}

/// Fetches and unpacks layers.
#[derive(Debug)]
pub(super) struct Layers {
    store: Arc<Store>,
    config: ImagesConfig,
    flights: Flights,
    turns: Turns,
    wide: WideTurn,
}

/// A layer that is there, or will be. Who wants the same layer from the same registry waits for one flight; another
/// registry may be slower, or send something else.
#[derive(Debug)]
pub(super) enum Wanted {
    Here(Arc<LayerProgress>),
    Flying(Waiter),
    Ending(Arc<LayerProgress>, Ending),
}

impl Layers {
    pub(super) fn new(store: Arc<Store>, config: ImagesConfig) -> Self {
        let turns = Turns::new(config.max_concurrent_downloads, config.patience.turn);
        Self {
            store,
            config,
            flights: Flights::default(),
            turns,
            wide: WideTurn::default(),
        }
    }

    /// Begins to get a layer, or joins those who have. The caller holds it in the store.
    pub(super) fn want(self: &Arc<Self>, layer: &Digest, source: &Source) -> Wanted {
        let size = source.size();
        let progress = || Arc::new(LayerProgress::new(layer.clone(), size));
        if self.store.layer(layer).is_some() {
            let progress = progress();
            progress.finished();
            return Wanted::Here(progress);
        }
        let whose = source.whose();
        let key = (layer.clone(), Arc::clone(&whose.registry));
        let joined = self.flights.join(&key, |cancel| {
            let progress = progress();
            let flight = Flight {
                layers: Arc::clone(self),
                layer: layer.clone(),
                progress: Arc::clone(&progress),
                cancel,
                give_up: CancellationToken::new(),
            };
            let source = source.clone();
            // Another flight may have ended between the two questions.
            let here = self.store.layer(layer).is_some();
            let task = async move {
                if here {
                    Ok(())
                } else {
                    flight.run(source).await
                }
            };
            (progress, carried(task))
        });
        match joined {
            Joined::Waiter(waiter) => Wanted::Flying(waiter),
            Joined::Ending(ending) => Wanted::Ending(progress(), ending),
        }
    }

    /// Waits until a layer is there. A failure of somebody else's try is not ours: theirs may have had other
    /// credentials, so then we try ourselves.
    pub(super) async fn get(
        self: &Arc<Self>,
        layer: &Digest,
        source: &Source,
        wanted: Wanted,
    ) -> Result<()> {
        let mut wanted = wanted;
        loop {
            match wanted {
                Wanted::Here(_) => return Ok(()),
                Wanted::Flying(waiter) => {
                    let is_first = waiter.is_first;
                    match waiter.wait().await {
                        Err(_) if !is_first => {}
                        result => return result,
                    }
                }
                Wanted::Ending(_, mut ending) => drop(ended(&mut ending).await),
            }
            wanted = self.want(layer, source);
        }
    }
}

impl Wanted {
    pub(super) fn progress(&self) -> Arc<LayerProgress> {
        match self {
            Self::Here(progress) | Self::Ending(progress, _) => Arc::clone(progress),
            Self::Flying(waiter) => Arc::clone(&waiter.progress),
        }
    }
}

impl Source {
    /// Whose turn it is when this is fetched. The address of what a pull has for itself is its number.
    fn whose(&self) -> Whose {
        match self {
            Self::Registry(session, _) => Whose {
                registry: session.registry().into(),
                pull: Arc::as_ptr(session).addr(),
            },
            Self::Archive(part) => Whose {
                registry: "".into(),
                pull: Arc::as_ptr(&part.file).addr(),
            },
        }
    }

    fn size(&self) -> u64 {
        match self {
            Self::Registry(_, descriptor) => descriptor.size,
            Self::Archive(part) => part.size,
        }
    }
}

/// Runs what blocks on a thread for that. It goes on to its end even if nobody waits.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let ended = tokio::task::spawn_blocking(carried_over(work)).await;
    ended.unwrap_or_else(|_| Err(Error::internal("a blocking task has ended early")))
}
