//! Gets one layer: fetched from its source, unpacked while it arrives, and finally renamed into the store.

use std::any::Any;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use criscope_linux::free_space::MinFree;
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::download::{Download, Parts};
use super::pieces::Pieces;
use super::slice::SliceReader;
use super::source::{ArchiveSlice, LayerSource};
use super::spool::{Spool, SpoolReader};
use super::task::LayerTask;
use crate::blocking::blocking;
use crate::decrypt::{DecryptReader, LayerKey};
use crate::descriptor::Descriptor;
use crate::error::{At as _, Error, Result, carried, carry};
use crate::observer::Step;
use crate::progress::LayerPhase;
use crate::registry::Repository;
use crate::store::NewLayer;
use crate::unpack::{UnpackJob, unpack};

/// Chunks buffered between the network and the writing thread. A chunk is one read of a connection, up to 400 KiB; they are most of a
/// pull's memory.
const CHUNKS: usize = 4;

/// Facts about the input that unpacking needs besides the bytes.
struct Input<'a> {
    /// Bytes read so far, counted by the reader.
    consumed: &'a AtomicU64,
    /// Waits for all of it.
    all: &'a (dyn Fn() -> io::Result<()> + Sync),
    /// Makes a read that blocks return.
    abandon: &'a dyn Fn(),
}

impl LayerTask {
    pub(super) async fn run(self, source: LayerSource) -> Result<()> {
        let permits = self.tools.permits.clone();
        let flight = Arc::new(self);
        let _permit = tokio::select! {
            permit = permits.acquire(flight.requester.clone(), flight.monitor()) => permit,
            () = flight.cancel.cancelled() => return Err(flight.cancelled()),
        };
        flight.progress.enter(LayerPhase::Fetching);
        let result = match source {
            LayerSource::Registry(repository, descriptor, key) => {
                flight.fetch(&repository, &descriptor, key.as_ref()).await
            }
            LayerSource::Artifact(repository, files) => {
                let fetching = flight.fetch_files(&repository, &files);
                flight.step(Step::Fetch, fetching).await
            }
            LayerSource::Archive(slice) => {
                let own = Arc::clone(&flight);
                let unpacking = blocking(move || own.unpack_slice(&slice));
                flight.step(Step::Unpack, unpacking).await
            }
        };
        match &result {
            Ok(()) => flight.progress.finished(),
            Err(_) => flight.progress.enter(LayerPhase::Failed),
        }
        result
    }

    /// Fetches the layer; starts over if the part kept from an earlier pull turns out to be wrong.
    async fn fetch(
        self: &Arc<Self>,
        repository: &Repository,
        descriptor: &Descriptor,
        key: Option<&Arc<LayerKey>>,
    ) -> Result<()> {
        self.check_size(descriptor.size)?;
        let path = self.disk().partial(&descriptor.digest, &self.layer);
        let (kept, result) = self.fetch_once(repository, descriptor, &path, key).await;
        match result {
            Err(error) if kept > 0 && is_about_content(&error) => {
                let error = self.tools.config.observer.error_text(&error);
                tracing::warn!(layer = %self.layer, error.message = %error, "the partial blob may be wrong: starting over");
                self.progress.start_over();
                self.fetch_once(repository, descriptor, &path, key).await.1
            }
            result => result,
        }
    }

    /// Downloads a blob and unpacks it meanwhile. Also returns the number of bytes kept from an earlier pull.
    async fn fetch_once(
        self: &Arc<Self>,
        repository: &Repository,
        descriptor: &Descriptor,
        kept_at: &Path,
        key: Option<&Arc<LayerKey>>,
    ) -> (u64, Result<()>) {
        let (spool, path) = match self.open_spool(kept_at, descriptor.size) {
            Ok(opened) => opened,
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
            let (own, spool, key) = (Arc::clone(self), Arc::clone(&spool), key.cloned());
            blocking(move || own.unpack_spool(&spool, key.as_deref()))
        };
        let mut unpacker = Box::pin(tokio::spawn(unpacker));
        let writer = tokio::spawn(writer);
        let mut unpacked = None;
        let download = Download {
            task: self,
            repository,
            descriptor,
            kept,
            pieces: Pieces::new(kept, descriptor.size, self.tools.config.piece_bytes),
            parts: Parts::default(),
            sender: &sender,
        };
        let fetched = tokio::select! {
            fetched = self.step(Step::Fetch, download.run()) => fetched,
            () = self.cancel.cancelled() => Err(self.cancelled()),
            () = self.give_up.cancelled() => Err(self.too_slow(repository)),
            // Unpacking ends before the blob is complete only if it fails.
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
        // The writer takes its end for the blob's: not before the spool has an error.
        drop(sender);
        let _ = writer.await;
        let unpacked = match unpacked {
            Some(ended) => joined(ended),
            None => {
                let unpacking = async { joined(unpacker.await) };
                self.step(Step::Unpack, unpacking).await
            }
        };
        drop(guard);
        let result = with_cause(unpacked, spool.failure(), broke_off);
        // An incomplete blob is kept for the next pull, a wrong one is not.
        if result.is_ok() || !broke_off || spool.available() == 0 || path != kept_at {
            let _ = fs::remove_file(&path);
        }
        (kept, result)
    }

    /// Opens the spool of a blob with the bytes that an earlier pull has kept, or a new one if another pull has that open.
    fn open_spool(&self, kept_at: &Path, size: u64) -> Result<(Arc<Spool>, PathBuf)> {
        // Unpacking checks the inodes.
        let min_free = MinFree {
            bytes: self.tools.config.limits.min_free_bytes,
            inodes: 0,
        };
        let (spool, path) = match Spool::open(kept_at, size, min_free)? {
            Some(spool) => (Some(spool), kept_at.to_owned()),
            None => {
                let own = self.disk().temporary();
                (Spool::open(&own, size, min_free)?, own)
            }
        };
        match spool {
            Some(spool) => Ok((Arc::new(spool), path)),
            None => Err(Error::io(path, Errno::WOULDBLOCK)),
        }
    }

    fn unpack_spool(&self, spool: &Spool, key: Option<&LayerKey>) -> Result<()> {
        let input = Input {
            consumed: &spool.consumed,
            all: &|| spool.wait_for_all(),
            abandon: &|| spool.abandon(),
        };
        self.unpack(SpoolReader::new(spool), &input, key)
    }

    fn unpack_slice(&self, slice: &ArchiveSlice) -> Result<()> {
        let consumed = AtomicU64::new(0);
        let mut reader = SliceReader::new(slice, &consumed, self);
        let input = Input {
            consumed: &consumed,
            all: &|| Ok(()),
            // Reads of a local file do not wait for anyone.
            abandon: &|| {},
        };
        self.unpack(&mut reader, &input, None)
    }

    /// Unpacks the layer in a staging directory and renames it into the store. Blocks.
    fn unpack(
        &self,
        reader: impl Read + Send,
        input: &Input<'_>,
        key: Option<&LayerKey>,
    ) -> Result<()> {
        let staging = self.disk().staging()?;
        let result = match key {
            None => self.unpack_in(&staging, reader, input),
            Some(key) => self.decrypt_in(&staging, reader, input, key),
        };
        // On success it contains only files replaced during unpacking, or the whole layer if another flight was faster.
        self.disk().remove(&staging)?;
        result
    }

    /// What is wrong with the encrypted content as a whole says more than how its decrypted form is damaged.
    fn decrypt_in(
        &self,
        staging: &Path,
        reader: impl Read + Send,
        input: &Input<'_>,
        key: &LayerKey,
    ) -> Result<()> {
        let mut plain = DecryptReader::new(reader, key, &self.layer);
        let unpacked = self.unpack_in(staging, &mut plain, input);
        if !matches!(unpacked, Err(Error::Unpack { .. })) {
            return unpacked;
        }
        match plain.verdict().map_err(carried) {
            Err(Ok(error)) => Err(error),
            _ => unpacked,
        }
    }

    fn unpack_in(&self, staging: &Path, reader: impl Read + Send, input: &Input<'_>) -> Result<()> {
        let large_window = || -> io::Result<Box<dyn Any + Send>> {
            (input.all)()?;
            let permit = self.tools.windows.acquire(&self.cancel);
            permit.map_or_else(
                || Err(carry(self.cancelled())),
                |permit| Ok(Box::new(permit) as Box<dyn Any + Send>),
            )
        };
        let job = UnpackJob {
            diff_id: &self.layer,
            staging,
            limits: &self.tools.config.limits,
            consumed: input.consumed,
            unpacked: &|bytes| self.progress.unpacked(bytes),
            large_window: &large_window,
        };
        let unpacked = unpack(reader, &job, input.abandon)?;
        let named = self.disk().staging()?;
        let placed = fs::rename(staging.join("fs"), named.join("fs"))
            .at(staging)
            .and_then(|()| {
                let new = NewLayer::new(
                    unpacked.bytes,
                    unpacked.inodes,
                    unpacked.implied,
                    self.tools.store.disk.boot(),
                )
                .shown_by(self.claim);
                self.tools.store.add_layer(&self.layer, &named, new)
            });
        self.disk().remove(&named)?;
        placed
    }
}

fn joined(unpacked: std::result::Result<Result<()>, tokio::task::JoinError>) -> Result<()> {
    unpacked.unwrap_or_else(|_| Err(Error::internal("unpacking has ended early")))
}

/// The result of unpacking, with the failure of the spool in place of the reader's error about it, unless unpacking failed first.
fn with_cause(unpacked: Result<()>, failure: Option<Error>, broke_off: bool) -> Result<()> {
    match (unpacked, failure) {
        (Err(own), Some(Error::Cancelled { .. })) if !broke_off => Err(own),
        (Err(_), Some(failure)) => Err(failure),
        (result, _) => result,
    }
}

/// Returns whether fetching the blob again may help.
fn is_about_content(error: &Error) -> bool {
    matches!(
        error.telling(),
        Error::WrongDigest { .. } | Error::Unpack { .. } | Error::TooLarge { .. }
    )
}

/// Ends a spool when the task that fills it is dropped, so that no thread waits for it forever.
struct EndGuard(Arc<Spool>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.end(Err(Error::cancelled("a layer")));
    }
}
