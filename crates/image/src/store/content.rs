//! The store itself: its records and its index.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use super::disk::Disk;
use super::index::{Index, IndexedImage, Resolved};
use super::layers::{self, LayerUsage};
use super::pending::Pending;
use super::record::Record;
use super::{annotations, disk};
use crate::blocking::lock;
use crate::config::{Failpoint, FailpointHook, ImageStoreConfig};
use crate::digest::Digest;
use crate::error::{At as _, Error, Result};
use crate::image_config::ImageConfig;
use crate::reference::Reference;

/// An entry of the store that cannot be used and is ignored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// The file or directory, relative to the root of the store.
    pub what: String,
    /// The cause.
    pub reason: String,
}

/// The content of a store. See the module for its locks.
#[derive(Debug)]
pub(crate) struct ContentStore {
    pub(crate) disk: Disk,
    pub(super) index: Mutex<Index>,
    pub(super) writing: Mutex<()>,
    /// Held while a layer is renamed, because `index` is not held during I/O.
    pub(super) moving: Mutex<()>,
    rebasing: Mutex<()>,
    pub(super) pending: Pending,
    /// True if an image is only used once it is on disk.
    waits: bool,
    pub(super) failpoint: FailpointHook,
}

/// A new image, whose layers are unpacked.
#[derive(Debug)]
pub(crate) struct NewImage {
    pub(crate) record: Record,
    pub(crate) config: Vec<u8>,
    /// Other documents that the record names: its manifest, its signatures.
    pub(crate) contents: Vec<(Digest, Vec<u8>)>,
}

impl ContentStore {
    /// Opens a store: removes incomplete files of an interrupted process, loads the records, and reports the ones that cannot
    /// be read.
    pub(crate) fn open(config: &ImageStoreConfig) -> Result<(Self, Vec<Problem>)> {
        let boot = config.boot.clone().unwrap_or_else(layers::boot);
        let disk = Disk::open(&config.root, boot)?;
        disk.clean()?;
        let mut problems = Vec::new();
        let mut distrusted = Vec::new();
        let layers = layers::load(&disk, |name, fault| {
            let reason = match fault {
                layers::Fault::Unreadable(reason) => reason,
                layers::Fault::Distrusted(reason) => {
                    distrusted.push(name.clone());
                    reason
                }
            };
            problems.push(Problem {
                what: format!("layers/{name}"),
                reason,
            });
        })?;
        for name in distrusted {
            if let Some(victim) = disk.discard(&disk.layers().join(name))? {
                disk.remove(&victim)?;
            }
        }
        let mut index = Index::new(layers);
        let pending = Pending::default();
        // Those that are pending come first: they are newer than those of the same image in `images`.
        for (dir, is_pending) in [(disk.pending_dir(), true), (disk.images(), false)] {
            for name in disk::names(&dir)? {
                let path = dir.join(&name);
                match load_image(&disk, &mut index, &path) {
                    Ok(Some(id)) if is_pending => pending.add(&id),
                    Ok(_) => {}
                    Err(reason) => problems.push(Problem {
                        what: disk.relative(&path),
                        reason,
                    }),
                }
            }
        }
        index.settle_tags();
        let store = Self {
            disk,
            index: Mutex::new(index),
            writing: Mutex::new(()),
            moving: Mutex::new(()),
            rebasing: Mutex::new(()),
            pending,
            waits: config.wait_for_disk,
            failpoint: config.failpoint.clone(),
        };
        Ok((store, problems))
    }

    /// Resolves an ID, one of these names, or the beginning of an ID. `names` are what the text stands for as a name.
    pub(crate) fn resolve(&self, text: &str, names: Vec<Reference>) -> Result<Option<Resolved>> {
        lock(&self.index).resolve(text, names)
    }

    pub(crate) fn image(&self, id: &Digest) -> Option<(Record, Arc<ImageConfig>)> {
        let index = lock(&self.index);
        let known = index.images.get(id)?;
        Some((known.record.clone(), Arc::clone(&known.config)))
    }

    /// The annotations of an image; none if it does not exist.
    pub(crate) fn annotations(&self, id: &Digest) -> Arc<BTreeMap<String, String>> {
        let index = lock(&self.index);
        let known = index.images.get(id);
        known.map_or_else(Arc::default, |known| Arc::clone(&known.annotations))
    }

    pub(crate) fn images(&self) -> Vec<(Record, Arc<ImageConfig>)> {
        let index = lock(&self.index);
        let all = index.images.values();
        all.map(|known| (known.record.clone(), Arc::clone(&known.config)))
            .collect()
    }

    /// The record of an unpacked layer.
    pub(crate) fn layer(&self, id: &Digest) -> Option<layers::Layer> {
        let index = lock(&self.index);
        index.layers.get(id).cloned()
    }

    /// Reads a manifest or a configuration.
    pub(crate) fn content(&self, digest: &Digest) -> Result<Vec<u8>> {
        let path = self.disk.content(digest);
        fs::read(&path).at(&path)
    }

    /// Reads the implied directories of a layer. Their number depends on the layer, so they are read on demand, for one image
    /// at a time.
    pub(crate) fn implied(&self, id: &Digest) -> Result<Vec<String>> {
        match self.layer(id) {
            Some(layer) if layer.implies() => layers::implied(&self.disk.layer(id)),
            _ => Ok(Vec::new()),
        }
    }

    /// Locks out other users of [`Self::implied`], so that the paths of only one image are in memory.
    pub(crate) fn rebasing(&self) -> MutexGuard<'_, ()> {
        lock(&self.rebasing)
    }

    /// Protects layers from removal, unpacked or not, until the guard is dropped.
    pub(crate) fn hold(self: &Arc<Self>, layers: impl IntoIterator<Item = Digest>) -> Held {
        let layers: Vec<_> = layers.into_iter().collect();
        let mut index = lock(&self.index);
        for layer in &layers {
            *index.held.entry(layer.clone()).or_default() += 1;
        }
        drop(index);
        Held {
            store: Arc::clone(self),
            layers,
        }
    }

    /// Writes the record of an image, whose layers must be unpacked and held. If they are not on disk yet, that is left to the
    /// background, unless the store waits for it.
    pub(crate) fn commit(self: &Arc<Self>, new: NewImage) -> Result<()> {
        self.record(new)?;
        if self.waits {
            self.wait_until_settled()
        } else {
            self.settle_later();
            Ok(())
        }
    }

    fn record(&self, new: NewImage) -> Result<()> {
        let _writing = lock(&self.writing);
        let NewImage {
            mut record,
            config,
            contents,
        } = new;
        let parsed = record.config(&config)?;
        let contents = [(record.id.clone(), config)].into_iter().chain(contents);
        for (digest, bytes) in contents {
            // What another image needs is there, unless it was damaged.
            let path = self.disk.content(&digest);
            let is_needed = lock(&self.index).needs_content(&digest);
            if !is_needed || fs::read(&path).ok().as_ref() != Some(&bytes) {
                self.disk.write_unsynced(&path, &bytes)?;
            }
        }
        self.failpoint.reached(Failpoint::ContentWritten);
        self.check_layers(&record)?;
        let known = self.image(&record.id);
        if let Some((known, _)) = &known {
            record.absorb(known.clone());
        }
        // One that is recorded has its contents on disk, or is pending.
        let was_pending = self.pending.contains(&record.id);
        if known.is_none() || self.has_unsynced(&record) {
            self.pending.add(&record.id);
        }
        if let Err(error) = self.write(&record) {
            if !was_pending {
                self.pending.forget(&record.id);
            }
            return Err(error);
        }
        self.failpoint.reached(Failpoint::RecordWritten);
        let annotations = Arc::new(annotations::read(&self.disk, &record));
        let changed = lock(&self.index).insert(IndexedImage {
            record,
            config: Arc::new(parsed),
            annotations,
        });
        changed.iter().try_for_each(|record| self.lost_tag(record))
    }

    fn has_unsynced(&self, record: &Record) -> bool {
        let index = lock(&self.index);
        let mut layers = record.all_layers().filter_map(|id| index.layers.get(id));
        layers.any(|layer| !layer.synced)
    }

    fn check_layers(&self, record: &Record) -> Result<()> {
        let index = lock(&self.index);
        let gone = record
            .all_layers()
            .find(|id| !index.layers.contains_key(id));
        match gone {
            Some(id) => Err(Error::internal(format!("layer {id} has gone"))),
            None => Ok(()),
        }
    }

    /// Sets whether the image is pinned. Returns `false` if it does not exist.
    pub(crate) fn pin(&self, id: &Digest, pinned: bool) -> Result<bool> {
        let _writing = lock(&self.writing);
        let Some((mut record, _)) = self.image(id) else {
            return Ok(false);
        };
        if record.pinned != pinned {
            record.pinned = pinned;
            self.write(&record)?;
            if let Some(known) = lock(&self.index).images.get_mut(id) {
                known.record.pinned = pinned;
            }
        }
        Ok(true)
    }

    /// Bytes of all layers.
    pub(crate) fn layer_bytes(&self) -> u64 {
        let index = lock(&self.index);
        index.layers.values().map(|layer| layer.file.bytes).sum()
    }

    /// The layers of an image, each once.
    pub(crate) fn layer_usage(&self, id: &Digest) -> Vec<LayerUsage> {
        let Some((record, _)) = self.image(id) else {
            return Vec::new();
        };
        let ids: BTreeSet<_> = record.all_layers().collect();
        let index = lock(&self.index);
        let usage = ids.into_iter().filter_map(|id| {
            let layer = &index.layers.get(id)?.file;
            Some(LayerUsage {
                id: id.clone(),
                bytes: layer.bytes,
                inodes: layer.inodes,
            })
        });
        usage.collect()
    }

    /// Bytes and inodes of all layers, content and incomplete blobs.
    pub(crate) fn usage(&self) -> Result<(u64, u64)> {
        let index = lock(&self.index);
        let records = index.layers.values().map(|layer| &layer.file);
        let (mut bytes, mut inodes) = records.fold((0, 0), |(bytes, inodes), record| {
            (bytes + record.bytes, inodes + record.inodes)
        });
        drop(index);
        for dir in [
            self.disk.content_dir(),
            self.disk.partials(),
            self.disk.images(),
        ] {
            for entry in fs::read_dir(&dir).at(&dir)? {
                // The layer may have been removed in the meantime.
                let length = entry.at(&dir)?.metadata().map_or(0, |m| m.len());
                bytes += length;
                inodes += 1;
            }
        }
        Ok((bytes, inodes))
    }
}

/// Loads a record, and checks its needs. `None` if its image is known.
fn load_image(
    disk: &Disk,
    index: &mut Index,
    path: &Path,
) -> std::result::Result<Option<Digest>, String> {
    let name = path.file_name().and_then(|name| name.to_str());
    let id = name.and_then(|name| name.strip_suffix(".json"));
    let Some(Ok(id)) = id.map(Digest::from_file_name) else {
        return Err("not the name of a record".to_owned());
    };
    if index.images.contains_key(&id) {
        return Ok(None);
    }
    let bytes = fs::read(path).map_err(|e| e.to_string())?;
    let record = Record::read(&bytes, &id)?;
    let config = fs::read(disk.content(&id)).map_err(|e| format!("its configuration: {e}"))?;
    id.check("image configuration", &config)
        .map_err(|e| e.to_string())?;
    let parsed = record.config(&config).map_err(|e| e.to_string())?;
    if let Some(missing) = record
        .all_layers()
        .find(|id| !index.layers.contains_key(id))
    {
        return Err(format!("its layer {missing} is missing"));
    }
    let known = IndexedImage {
        annotations: Arc::new(annotations::read(disk, &record)),
        record,
        config: Arc::new(parsed),
    };
    index.images.insert(id.clone(), known);
    Ok(Some(id))
}

/// Layers that are protected from removal until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    store: Arc<ContentStore>,
    pub(crate) layers: Vec<Digest>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut index = lock(&self.store.index);
        for layer in &self.layers {
            if let Some(count) = index.held.get_mut(layer) {
                *count -= 1;
                if *count == 0 {
                    index.held.remove(layer);
                }
            }
        }
    }
}
