//! Images whose layers are not safely on disk yet. They can be used at once; their records are in `pending/BOOT`, where they count for
//! this boot of the machine only, so a power failure loses them as a whole. A background thread syncs the file system and moves the
//! records to `images`.
//!
//! A pull itself syncs nothing: a sync would wait for everything that the disk has not written yet, also of other programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::disk::Root;
use super::{ContentStore, Record, layers, lock};
use crate::config::Failpoint;
use crate::digest::Digest;
use crate::error::{At as _, Error, Result};

/// The pause after a failed sync.
const AGAIN: Duration = Duration::from_secs(5);

/// Images whose layers are not safely on disk yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    state: Mutex<State>,
    settled: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Images, and how often each of their records was written.
    images: BTreeMap<Digest, u64>,
    /// Images with a record that still has a tag which has moved to one of those.
    stale: BTreeSet<Digest>,
    is_running: bool,
    /// Syncs that failed, and why the last one did.
    failed: (u64, String),
}

impl State {
    fn is_settled(&self) -> bool {
        self.images.is_empty() && self.stale.is_empty()
    }
}

impl Pending {
    pub(super) fn contains(&self, id: &Digest) -> bool {
        lock(&self.state).images.contains_key(id)
    }

    /// Adds an image, or notes that its record was written again.
    pub(super) fn add(&self, id: &Digest) {
        *lock(&self.state).images.entry(id.clone()).or_default() += 1;
    }

    /// The record of this image must be written again once the pending ones are on disk.
    fn outdated(&self, id: &Digest) {
        lock(&self.state).stale.insert(id.clone());
    }

    pub(super) fn forget(&self, id: &Digest) {
        let mut state = lock(&self.state);
        state.images.remove(id);
        state.stale.remove(id);
        self.settled.notify_all();
    }

    /// Returns whether the caller is to start the thread.
    fn starts(&self) -> bool {
        let mut state = lock(&self.state);
        let starts = !state.is_running && !state.is_settled();
        state.is_running |= starts;
        starts
    }

    /// The pending work; `None` ends the thread.
    fn next(&self) -> Option<BTreeMap<Digest, u64>> {
        let mut state = lock(&self.state);
        state.is_running = !state.is_settled();
        state.is_running.then(|| state.images.clone())
    }

    fn failed(&self, error: &Error) {
        let (count, why) = &mut lock(&self.state).failed;
        *count += 1;
        *why = error.to_string();
        self.settled.notify_all();
    }

    /// Blocks until nothing is pending, or a sync fails.
    fn wait(&self) -> Result<()> {
        let state = lock(&self.state);
        let (before, _) = state.failed;
        let waited = self.settled.wait_while(state, |state| {
            !state.is_settled() && state.failed.0 == before
        });
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_settled() {
            Ok(())
        } else {
            Err(Error::internal(format!(
                "images are not safely on disk: {}",
                state.failed.1
            )))
        }
    }
}

impl ContentStore {
    /// Starts the thread that brings pending images to disk, if there are any.
    pub(crate) fn settle_later(self: &Arc<Self>) {
        if !self.pending.starts() {
            return;
        }
        let store = Arc::downgrade(self);
        let spawned = thread::Builder::new()
            .name("image-sync".to_owned())
            .spawn(move || settle(&store));
        if let Err(error) = spawned {
            // The next pull tries again.
            lock(&self.pending.state).is_running = false;
            tracing::warn!(error.message = %error, "images are not written to disk: no thread");
        }
    }

    /// Blocks until all images are on disk.
    pub(crate) fn wait_until_settled(self: &Arc<Self>) -> Result<()> {
        self.settle_later();
        self.pending.wait()
    }

    /// Writes the record of an image where it belongs.
    pub(super) fn write(&self, record: &Record) -> Result<()> {
        let bytes = record.bytes().map_err(|e| Error::internal(e.to_string()))?;
        if !self.pending.contains(&record.id) {
            return self.disk.write(&self.disk.record(&record.id), &bytes);
        }
        self.disk
            .write_unsynced(&self.disk.pending(&record.id), &bytes)?;
        self.pending.add(&record.id);
        Ok(())
    }

    /// Notes that the record of an image has lost a tag to a pending one: on the disk both have it until that one is there.
    pub(super) fn lost_tag(&self, record: &Record) -> Result<()> {
        if self.pending.contains(&record.id) {
            return self.write(record);
        }
        self.pending.outdated(&record.id);
        Ok(())
    }

    /// Layers of pending images that are not known to be on disk.
    fn unsynced_of(&self, images: &BTreeMap<Digest, u64>) -> BTreeSet<Digest> {
        let index = lock(&self.index);
        let records = images.keys().filter_map(|id| index.images.get(id));
        let layers = records.flat_map(|known| known.record.all_layers());
        let unsynced = layers.filter(|id| index.layers.get(*id).is_some_and(|layer| !layer.synced));
        unsynced.cloned().collect()
    }

    /// Marks layers that a sync has brought to disk. If a mark is there after a power failure, so is the layer.
    fn mark(&self, layers: &BTreeSet<Digest>) -> Result<()> {
        for id in layers {
            // The image may have been removed since.
            match layers::mark_synced(&self.disk.layer(id)) {
                Err(_) if !self.disk.layer(id).exists() => {}
                marked => marked?,
            }
        }
        Ok(())
    }

    /// Moves the records of images that are on disk, unless they were written again meanwhile.
    fn move_records(
        &self,
        images: &BTreeMap<Digest, u64>,
        layers: &BTreeSet<Digest>,
    ) -> Result<()> {
        let _writing = lock(&self.writing);
        for id in layers {
            if let Some(layer) = lock(&self.index).layers.get_mut(id) {
                layer.synced = true;
            }
        }
        for (id, written) in images {
            if lock(&self.pending.state).images.get(id) != Some(written) {
                continue;
            }
            let from = self.disk.pending(id);
            fs::rename(&from, self.disk.record(id)).at(&from)?;
            // The tags are still those of others on the disk; they are told below.
            lock(&self.pending.state).images.remove(id);
        }
        super::disk::sync_dir(&self.disk.images())?;
        self.failpoint.reached(Failpoint::RecordMoved);
        let stale = lock(&self.pending.state).stale.clone();
        for id in stale {
            if let Some((record, _)) = self.image(&id) {
                self.write(&record)?;
            }
            lock(&self.pending.state).stale.remove(&id);
        }
        self.failpoint.reached(Failpoint::TagsMoved);
        self.pending.settled.notify_all();
        Ok(())
    }
}

fn sync(
    store: &Weak<ContentStore>,
    root: &Root,
    images: &BTreeMap<Digest, u64>,
    layers: &BTreeSet<Digest>,
) -> Result<()> {
    root.sync()?;
    store.upgrade().ok_or_else(store_closed)?.mark(layers)?;
    root.sync()?;
    let store = store.upgrade().ok_or_else(store_closed)?;
    store.failpoint.reached(Failpoint::LayersSynced);
    store.move_records(images, layers)
}

fn store_closed() -> Error {
    Error::internal("the store was closed")
}

/// Brings pending images to disk until there are none. The store may be closed meanwhile; then the next process goes on.
fn settle(store: &Weak<ContentStore>) {
    loop {
        let Some((images, layers, root)) = store.upgrade().and_then(|store| {
            let images = store.pending.next()?;
            let layers = store.unsynced_of(&images);
            Some((images, layers, store.disk.open_root()))
        }) else {
            return;
        };
        let synced = root.and_then(|root| sync(store, &root, &images, &layers));
        if let Err(error) = synced {
            if store.strong_count() == 0 {
                return;
            }
            tracing::warn!(error.message = %error, "images could not be written to disk");
            if let Some(store) = store.upgrade() {
                store.pending.failed(&error);
            }
            thread::sleep(AGAIN);
        }
    }
}
