//! The getting of one layer: its bytes from where they are, unpacked as they come, named at the end.

use std::any::Any;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::io::Errno;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::part::{Part, PartReader};
use super::spool::{Spool, SpoolReader};
use super::turns::{LEAST_RATE, Watched};
use super::{Layers, Source, blocking};
use crate::call::steps::RuntimeStep;
use crate::runtime::error::shown;
use crate::runtime::image::config::Step;
use crate::runtime::image::digest::Digest;
use crate::runtime::image::error::{At as _, Error, Result};
use crate::runtime::image::manifest::Descriptor;
use crate::runtime::image::progress::{LayerPhase, LayerProgress};
use crate::runtime::image::pull::short;
use crate::runtime::image::registry::Session;
use crate::runtime::image::store::{Disk, NewLayer};
use crate::runtime::image::unpack::{Job, carry, unpack};

/// Chunks between the network and the thread that writes.
/// A chunk is as much as a connection reads at once, up to 400 KiB.
const CHUNKS: usize = 16;

/// The getting of one layer.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) layers: Arc<Layers>,
    pub(super) layer: Digest,
    pub(super) progress: Arc<LayerProgress>,
    pub(super) cancel: CancellationToken,
    /// It is too slow, and others wait: see `turns`.
    pub(super) give_up: CancellationToken,
}

impl Flight {
    pub(super) async fn run(self, source: Source) -> Result<()> {
        let turns = self.layers.turns.clone();
        let flight = Arc::new(self);
        let watched = Watched {
            progress: Arc::clone(&flight.progress),
            give_up: flight.give_up.clone(),
        };
        let _turn = tokio::select! {
            turn = turns.take(source.whose(), watched) => turn,
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
                    .step(RuntimeStep::LayerUnpack, Some(&name), unpacking)
                    .await
            }
        };
        match &result {
            Ok(()) => flight.progress.finished(),
            Err(_) => flight.progress.enter(LayerPhase::Failed),
        }
        result
    }

    pub(super) fn cancelled(&self) -> Error {
        Error::Cancelled {
            what: format!("layer {}", self.layer),
        }
    }

    fn too_slow(&self, session: &Session) -> Error {
        let reason = format!(
            "less than {LEAST_RATE} bytes per second of layer {} while others waited",
            self.layer
        );
        let host = session.registry().to_owned();
        Error::RegistryUnavailable { host, reason }
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
        kept_at: &Path,
    ) -> (u64, Result<()>) {
        let min_free = self.layers.config.limits.min_free_bytes;
        let opened = match Spool::open(kept_at, descriptor.size) {
            Ok(None) => {
                let own = self.disk().temporary();
                Spool::open(&own, descriptor.size).map(|spool| (spool, own))
            }
            opened => opened.map(|spool| (spool, kept_at.to_owned())),
        };
        let (spool, path) = match opened {
            Ok((Some(spool), path)) => (Arc::new(spool.keep_free(min_free)), path),
            Ok((None, path)) => return (0, Err(Error::io(path, Errno::WOULDBLOCK))),
            Err(error) => return (0, Err(error)),
        };
        let kept = spool.available();
        self.progress.fetched(kept);
        let guard = EndGuard(Arc::clone(&spool));
        let (sender, receiver) = mpsc::channel(CHUNKS);
        let writer = {
            let (spool, path, digest) =
                (Arc::clone(&spool), path.clone(), descriptor.digest.clone());
            blocking(move || {
                spool.write(&path, &digest, receiver);
                Ok(())
            })
        };
        let unpacker = {
            let (own, spool) = (Arc::clone(self), Arc::clone(&spool));
            blocking(move || {
                let wide = || spool.wait_for_all();
                own.unpack(SpoolReader::new(&spool), &spool.consumed, &wide)
            })
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
            fetched = watch.step(RuntimeStep::LayerFetch, Some(&name), download) => fetched,
            () = self.cancel.cancelled() => Err(self.cancelled()),
            () = self.give_up.cancelled() => Err(self.too_slow(session)),
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
                    .step(RuntimeStep::LayerUnpack, Some(&name), unpacking)
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
        if result.is_ok() || !broke_off || spool.available() == 0 || path != kept_at {
            let _ = fs::remove_file(&path);
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
        let mut reader = PartReader::new(part, &consumed, self);
        self.unpack(&mut reader, &consumed, &|| Ok(()))
    }

    /// Unpacks it in a folder of its own, and gives it its name. Blocks. `all` waits until all of the input is here.
    fn unpack(
        &self,
        input: impl Read,
        consumed: &AtomicU64,
        all: &dyn Fn() -> io::Result<()>,
    ) -> Result<()> {
        let staging = self.disk().staging()?;
        let result = self.unpack_in(&staging, input, consumed, all);
        // On success only what was replaced while unpacking is left of it, or the whole if another was faster.
        self.disk().remove(&staging)?;
        result
    }

    fn unpack_in(
        &self,
        staging: &Path,
        input: impl Read,
        consumed: &AtomicU64,
        all: &dyn Fn() -> io::Result<()>,
    ) -> Result<()> {
        let wide = || -> io::Result<Box<dyn Any>> {
            all()?;
            let turn = self.layers.wide.take(&self.cancel);
            turn.map_or_else(
                || Err(carry(self.cancelled())),
                |turn| Ok(Box::new(turn) as Box<dyn Any>),
            )
        };
        let job = Job {
            diff_id: &self.layer,
            staging,
            limits: &self.layers.config.limits,
            consumed,
            unpacked: &|bytes| self.progress.unpacked(bytes),
            wide: &wide,
        };
        let unpacked = unpack(input, &job)?;
        let named = self.disk().staging()?;
        let placed = fs::rename(staging.join("fs"), named.join("fs"))
            .at(staging)
            .and_then(|()| {
                let new = NewLayer::new(unpacked.bytes, unpacked.inodes, unpacked.implied);
                self.layers.store.add_layer(&self.layer, &named, &new)
            });
        self.disk().remove(&named)?;
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
