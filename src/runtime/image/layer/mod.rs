//! Layers: fetched once however many want them, unpacked as they come, and named when all of it is right.

mod flight;
mod spool;

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use self::flight::{Ending, Flights, Joined, Waiter, ended};
use self::spool::{Spool, SpoolReader};
use super::config::{ImagesConfig, Step};
use super::digest::Digest;
use super::error::{At as _, Error, Result};
use super::manifest::Descriptor;
use super::progress::{LayerPhase, LayerProgress};
use super::pull::short;
use super::registry::Session;
use super::store::{Disk, LayerRecord, Store};
use super::unpack::{Job, unpack};
use crate::cri::phases::RuntimePhase;
use crate::runtime::error::shown;
use crate::runtime::observe::{carried, carried_over};

/// Chunks between the network and the thread that writes.
const CHUNKS: usize = 64;

/// Where the bytes of a layer come from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// A registry.
    Registry(Arc<Session>, Descriptor),
    /// A part of an archive on disk. It has a digest of its own unless the archive is Docker's.
    Archive(Arc<Part>),
}

/// A part of a file.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) file: Arc<fs::File>,
    pub(super) path: PathBuf,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) digest: Option<Digest>,
}

/// Fetches and unpacks layers.
#[derive(Debug)]
pub(super) struct Layers {
    store: Arc<Store>,
    config: ImagesConfig,
    flights: Flights,
    turns: Arc<Semaphore>,
}

/// A layer that is there, or will be.
#[derive(Debug)]
pub(super) enum Wanted {
    Here(Arc<LayerProgress>),
    Flying(Waiter),
    Ending(Arc<LayerProgress>, Ending),
}

impl Layers {
    pub(super) fn new(store: Arc<Store>, config: ImagesConfig) -> Self {
        let turns = Arc::new(Semaphore::new(config.max_concurrent_downloads.max(1)));
        Self {
            store,
            config,
            flights: Flights::default(),
            turns,
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
        let joined = self.flights.join(layer, |cancel| {
            let progress = progress();
            let flight = Flight {
                layers: Arc::clone(self),
                layer: layer.clone(),
                progress: Arc::clone(&progress),
                cancel,
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
    fn size(&self) -> u64 {
        match self {
            Self::Registry(_, descriptor) => descriptor.size,
            Self::Archive(part) => part.size,
        }
    }
}

/// The getting of one layer.
#[derive(Debug)]
struct Flight {
    layers: Arc<Layers>,
    layer: Digest,
    progress: Arc<LayerProgress>,
    cancel: CancellationToken,
}

impl Flight {
    async fn run(self, source: Source) -> Result<()> {
        let turns = Arc::clone(&self.layers.turns);
        let flight = Arc::new(self);
        let _turn = tokio::select! {
            turn = turns.acquire_owned() => turn.map_err(|_| Error::internal("the queue of layers has gone"))?,
            () = flight.cancel.cancelled() => return Err(flight.cancelled()),
        };
        flight.progress.enter(LayerPhase::Fetching);
        let result = match source {
            Source::Registry(session, descriptor) => flight.fetch(&session, &descriptor).await,
            Source::Archive(part) => {
                let own = Arc::clone(&flight);
                let name = short(&own.layer);
                let unpacking = blocking(move || own.unpack_part(&part));
                let watch = &flight.layers.config.watch;
                watch
                    .step(RuntimePhase::LayerUnpack, Some(&name), unpacking)
                    .await
            }
        };
        match &result {
            Ok(()) => flight.progress.finished(),
            Err(_) => flight.progress.enter(LayerPhase::Failed),
        }
        result
    }

    fn cancelled(&self) -> Error {
        Error::Cancelled {
            what: format!("layer {}", self.layer),
        }
    }

    fn disk(&self) -> &Disk {
        &self.layers.store.disk
    }

    /// Fetches it; a second time if what an earlier try had left was not what it should be.
    async fn fetch(self: &Arc<Self>, session: &Session, descriptor: &Descriptor) -> Result<()> {
        self.check_size(descriptor.size)?;
        let path = self.disk().partial(&descriptor.digest, &self.layer);
        let (kept, result) = self.fetch_once(session, descriptor, &path).await;
        match result {
            Err(error) if kept > 0 && is_about_content(&error) => {
                tracing::warn!(layer = %self.layer, error = %shown(&error), "the kept beginning may be wrong: starting over");
                self.progress.start_over();
                self.fetch_once(session, descriptor, &path).await.1
            }
            result => result,
        }
    }

    /// Returns how much an earlier try had left, too.
    async fn fetch_once(
        self: &Arc<Self>,
        session: &Session,
        descriptor: &Descriptor,
        path: &Path,
    ) -> (u64, Result<()>) {
        let spool = match Spool::open(path, descriptor.size) {
            Ok(spool) => Arc::new(spool),
            Err(error) => return (0, Err(error)),
        };
        let kept = spool.available();
        self.progress.fetched(kept);
        let guard = EndGuard(Arc::clone(&spool));
        let (sender, receiver) = mpsc::channel(CHUNKS);
        let writer = {
            let (spool, path, digest) = (
                Arc::clone(&spool),
                path.to_owned(),
                descriptor.digest.clone(),
            );
            blocking(move || {
                spool.write(&path, &digest, receiver);
                Ok(())
            })
        };
        let unpacker = {
            let (own, spool) = (Arc::clone(self), Arc::clone(&spool));
            blocking(move || own.unpack(SpoolReader::new(&spool), &spool.consumed))
        };
        let mut unpacker = Box::pin(tokio::spawn(unpacker));
        let writer = tokio::spawn(writer);
        let on_step = &self.layers.config.on_step;
        let watch = &self.layers.config.watch;
        let download = session.blob(descriptor, kept, |chunk| {
            self.progress.fetched(chunk.len() as u64);
            if let Some(metrics) = watch.metrics() {
                metrics.pulled(chunk.len() as u64);
            }
            on_step.reached(Step::LayerFetching);
            let sender = sender.clone();
            async move { sender.send(chunk).await.is_ok() }
        });
        let mut unpacked = None;
        let name = short(&self.layer);
        let fetched = tokio::select! {
            fetched = watch.step(RuntimePhase::LayerFetch, Some(&name), download) => fetched,
            () = self.cancel.cancelled() => Err(self.cancelled()),
            // Before all is here: it has failed.
            ended = &mut unpacker => {
                unpacked = Some(ended);
                Ok(())
            }
        };
        let broke_off = fetched.is_err();
        if let Err(error) = fetched {
            spool.end(Err(error));
        } else {
            self.progress.enter(LayerPhase::Unpacking);
        }
        drop(sender);
        let _ = writer.await;
        let unpacked = match unpacked {
            Some(ended) => ended_well(ended),
            None => {
                let unpacking = async { ended_well(unpacker.await) };
                watch
                    .step(RuntimePhase::LayerUnpack, Some(&name), unpacking)
                    .await
            }
        };
        drop(guard);
        // The cause, not that the reader heard of it.
        let result = match (unpacked, spool.failure()) {
            (Err(own), Some(failure))
                if matches!(failure, Error::Cancelled { .. }) && !broke_off =>
            {
                Err(own)
            }
            (Err(_), Some(failure)) => Err(failure),
            (result, _) => result,
        };
        // A beginning is kept for the next try, what was wrong is not.
        if result.is_ok() || !broke_off || spool.available() == 0 {
            let _ = fs::remove_file(path);
        }
        (kept, result)
    }

    /// Whether there is room for it; what it unpacks to is watched as it does.
    fn check_size(&self, size: u64) -> Result<()> {
        let limits = &self.layers.config.limits;
        if size > limits.max_layer_bytes {
            let what = format!("layer {}", self.layer);
            let reason = format!(
                "{size} bytes, at most {} are allowed",
                limits.max_layer_bytes
            );
            return Err(Error::TooLarge { what, reason });
        }
        self.disk()
            .check_space(size.saturating_add(limits.min_free_bytes))
    }

    fn unpack_part(&self, part: &Part) -> Result<()> {
        let consumed = AtomicU64::new(0);
        let mut reader = PartReader {
            part,
            position: 0,
            consumed: &consumed,
            flight: self,
            hasher: part.digest.as_ref().map(Digest::hasher),
        };
        self.unpack(&mut reader, &consumed)
    }

    /// Unpacks it in a folder of its own, and gives it its name. Blocks.
    fn unpack(&self, input: impl Read, consumed: &AtomicU64) -> Result<()> {
        let staging = self.disk().staging()?;
        let result = self.unpack_in(&staging, input, consumed);
        // On success only what was replaced while unpacking is left of it, or the whole if another was faster.
        self.disk().remove(staging)?;
        result
    }

    fn unpack_in(&self, staging: &Path, input: impl Read, consumed: &AtomicU64) -> Result<()> {
        let job = Job {
            diff_id: &self.layer,
            staging,
            limits: &self.layers.config.limits,
            consumed,
            unpacked: &|bytes| self.progress.unpacked(bytes),
        };
        let unpacked = unpack(input, &job)?;
        let named = self.disk().staging()?;
        let placed = fs::rename(staging.join("fs"), named.join("fs"))
            .at(staging)
            .and_then(|()| {
                let record = LayerRecord::new(unpacked.bytes, unpacked.inodes, unpacked.implied);
                self.layers.store.add_layer(&self.layer, &named, record)
            });
        self.disk().remove(named)?;
        placed
    }
}

fn ended_well(unpacked: std::result::Result<Result<()>, tokio::task::JoinError>) -> Result<()> {
    unpacked.unwrap_or_else(|_| Err(Error::internal("unpacking has ended early")))
}

/// Whether other bytes could have helped.
fn is_about_content(error: &Error) -> bool {
    matches!(
        error,
        Error::WrongDigest { .. } | Error::Unpack { .. } | Error::TooLarge { .. }
    )
}

/// Ends a spool whatever happens to the task that fills it, so that no thread waits for it for ever.
struct EndGuard(Arc<Spool>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        let what = "a layer".to_owned();
        self.0.end(Err(Error::Cancelled { what }));
    }
}

/// Reads a part of an archive, and checks its digest at the end if it has one.
struct PartReader<'a> {
    part: &'a Part,
    position: u64,
    consumed: &'a AtomicU64,
    flight: &'a Flight,
    hasher: Option<super::digest::Hasher>,
}

impl Read for PartReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use std::os::unix::fs::FileExt as _;

        if self.flight.cancel.is_cancelled() {
            return Err(super::unpack::carry(self.flight.cancelled()));
        }
        let left = self.part.size - self.position;
        let most = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        if most == 0 {
            if let (Some(hasher), Some(digest)) = (self.hasher.take(), &self.part.digest) {
                digest
                    .compare("layer", hasher)
                    .map_err(super::unpack::carry)?;
            }
            return Ok(0);
        }
        let offset = self.part.offset + self.position;
        let length = self.part.file.read_at(&mut buffer[..most], offset)?;
        if length == 0 {
            let reason = format!("{} has become shorter", self.part.path.display());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..length]);
        }
        self.position += length as u64;
        self.consumed.store(self.position, Ordering::Relaxed);
        self.flight.progress.fetched(length as u64);
        Ok(length)
    }
}

/// Runs what blocks on a thread for that. It goes on to its end even if nobody waits.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let ended = tokio::task::spawn_blocking(carried_over(work)).await;
    ended.unwrap_or_else(|_| Err(Error::internal("a blocking task has ended early")))
}
