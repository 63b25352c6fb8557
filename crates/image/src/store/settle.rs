//! Brings pending images to disk: see `pending`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::content::ContentStore;
use super::disk::{Root, sync_dir};
use super::layers;
use super::record::Record;
use crate::blocking::lock;
use crate::config::Failpoint;
use crate::digest::Digest;
use crate::error::{At as _, Error, Result};

/// The pause after a failed sync.
const AGAIN: Duration = Duration::from_secs(5);

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
        sync_dir(&self.disk.images())?;
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
