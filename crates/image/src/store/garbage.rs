//! Removal of images, and garbage collection.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::content::ContentStore;
use super::disk::{names, sync_parent};
use crate::blocking::lock;
use crate::config::Failpoint;
use crate::digest::Digest;
use crate::error::{At as _, Error, Result};
use crate::files::if_present;

/// The result of a garbage collection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Collected {
    /// Unpacked layers.
    pub layers: usize,
    /// Manifests and configurations.
    pub contents: usize,
    /// Incomplete blobs.
    pub partials: usize,
}

impl ContentStore {
    /// Removes an image with all its references, and layers that no other image needs. Returns whether it existed.
    pub(crate) fn remove(&self, id: &Digest) -> Result<bool> {
        let writing = lock(&self.writing);
        let Some(known) = lock(&self.index).images.remove(id) else {
            return Ok(false);
        };
        let path = self.disk.record(id);
        match if_present(fs::remove_file(&path)) {
            Ok(Some(())) => sync_parent(&path)?,
            // The removal is pending.
            Ok(None) => {}
            Err(error) => {
                // The directory still exists, so it stays listed.
                lock(&self.index).images.insert(id.clone(), known);
                return Err(Error::io(path, error));
            }
        }
        let pending = self.disk.pending(id);
        if_present(fs::remove_file(&pending)).at(&pending)?;
        self.pending.forget(id);
        self.failpoint.reached(Failpoint::RecordRemoved);
        let mut victims = Vec::new();
        for layer in known.record.all_layers() {
            victims.extend(self.discard_layer(layer)?);
        }
        for content in known.record.contents().chain([id]) {
            victims.extend(self.discard_content(content)?);
        }
        self.failpoint.reached(Failpoint::GarbageNamed);
        drop(writing);
        self.remove_all(victims)?;
        Ok(true)
    }

    /// Removes layers and incomplete blobs that are neither needed nor held and have not been touched for `unused_for`.
    /// Unused content is removed at once.
    pub(crate) fn collect(&self, unused_for: Duration) -> Result<Collected> {
        let writing = lock(&self.writing);
        let mut collected = Collected::default();
        let mut victims = Vec::new();
        for name in names(&self.disk.layers())? {
            let old = is_old(&self.disk.layers().join(&name), unused_for);
            if let Ok(id) = Digest::from_file_name(&name)
                && old
                && let Some(victim) = self.discard_layer(&id)?
            {
                victims.push(victim);
                collected.layers += 1;
            }
        }
        for name in names(&self.disk.content_dir())? {
            if let Ok(digest) = Digest::from_file_name(&name)
                && let Some(victim) = self.discard_content(&digest)?
            {
                victims.push(victim);
                collected.contents += 1;
            }
        }
        for name in names(&self.disk.partials())? {
            let path = self.disk.partials().join(&name);
            if !self.is_being_fetched(&name) && is_old(&path, unused_for) {
                victims.extend(self.disk.discard(&path)?);
                collected.partials += 1;
            }
        }
        self.failpoint.reached(Failpoint::GarbageNamed);
        drop(writing);
        self.remove_all(victims)?;
        Ok(collected)
    }

    fn remove_all(&self, victims: Vec<PathBuf>) -> Result<()> {
        victims
            .into_iter()
            .try_for_each(|victim| self.disk.remove(&victim))
    }

    /// Moves a layer to `tmp` if nothing needs it. It leaves the index first: a pull that needs it afterwards fetches it
    /// again, and waits for the lock before it renames its own.
    fn discard_layer(&self, id: &Digest) -> Result<Option<PathBuf>> {
        let _moving = lock(&self.moving);
        let known = {
            let mut index = lock(&self.index);
            if index.needs_layer(id) {
                return Ok(None);
            }
            index.layers.remove(id)
        };
        self.disk.discard(&self.disk.layer(id)).inspect_err(|_| {
            if let Some(layer) = known {
                lock(&self.index).layers.insert(id.clone(), layer);
            }
        })
    }

    fn discard_content(&self, digest: &Digest) -> Result<Option<PathBuf>> {
        if lock(&self.index).needs_content(digest) {
            return Ok(None);
        }
        self.disk.discard(&self.disk.content(digest))
    }

    /// Returns whether the layer of this incomplete blob is held.
    fn is_being_fetched(&self, partial: &str) -> bool {
        let index = lock(&self.index);
        let layer = partial.rsplit('.').next().unwrap_or_default();
        index.held.keys().any(|id| id.hex().starts_with(layer))
    }
}

fn is_old(path: &Path, unused_for: Duration) -> bool {
    let Ok(modified) = fs::symlink_metadata(path).and_then(|m| m.modified()) else {
        return false;
    };
    // A time in the future, after a clock change, does not count as old.
    let age = SystemTime::now().duration_since(modified);
    age.is_ok_and(|age| age >= unused_for)
}
