//! Layers get their final names, and the claims that pulls may use them with.

use std::path::Path;

use super::claims::LayerClaim;
use super::content::ContentStore;
use super::layers::{self, Layer, NewLayer};
use crate::blocking::lock;
use crate::config::Failpoint;
use crate::digest::Digest;
use crate::error::Result;

/// The maximum number of blobs that are recorded with one layer; the most recent ones are kept.
const MAX_BLOBS: usize = 64;

impl Layer {
    fn admits(&self, claim: LayerClaim) -> bool {
        match claim {
            LayerClaim::Blob(proof) => self.file.blobs.contains(&proof),
            LayerClaim::Key(proof) => self.file.proof == Some(proof),
        }
    }
}

/// Adds the blobs of another record of the same layer, and returns whether anything is new.
fn merge(known: &Layer, new: &mut NewLayer) -> bool {
    let is_new = new
        .blobs
        .iter()
        .any(|blob| !known.file.blobs.contains(blob))
        || (new.proof.is_some() && new.proof != known.file.proof);
    let older = known
        .file
        .blobs
        .iter()
        .filter(|blob| !new.blobs.contains(blob));
    let mut blobs: Vec<_> = older.copied().collect();
    blobs.append(&mut new.blobs);
    let excess = blobs.len().saturating_sub(MAX_BLOBS);
    new.blobs = blobs.split_off(excess);
    new.proof = new.proof.or(known.file.proof);
    is_new
}

impl ContentStore {
    /// Returns whether a layer is here and may be used with this claim.
    pub(crate) fn has_layer(&self, id: &Digest, claim: LayerClaim) -> bool {
        let index = lock(&self.index);
        let found = index.layers.get(id);
        found.is_some_and(|layer| layer.admits(claim))
    }

    /// Renames an unpacked layer, which must be held, to its final name. If it is here already, new claims are recorded.
    pub(crate) fn add_layer(&self, id: &Digest, staging: &Path, mut new: NewLayer) -> Result<()> {
        new.write(staging)?;
        self.failpoint.reached(Failpoint::LayerUnpacked);
        let moving = lock(&self.moving);
        let dir = self.disk.layer(id);
        layers::place(staging, &dir)?;
        let is_known = {
            let mut index = lock(&self.index);
            let known = index.layers.get(id).map(|known| merge(known, &mut new));
            if known.is_none() {
                index.layers.insert(id.clone(), new.unsynced());
            }
            known
        };
        if is_known == Some(true) {
            layers::rewrite(&self.disk, &dir, &new)?;
            if let Some(layer) = lock(&self.index).layers.get_mut(id) {
                let synced = layer.synced;
                *layer = Layer {
                    synced,
                    ..new.unsynced()
                };
            }
        }
        drop(moving);
        self.failpoint.reached(Failpoint::LayerPlaced);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_recent_blobs_are_kept() {
        let new = |claim| NewLayer::new(1, 1, Vec::new(), "boot").shown_by(claim);
        let mut known = new(LayerClaim::Key([9; 32])).unsynced();
        assert!(known.came_encrypted());
        for number in 0..100 {
            let mut added = new(LayerClaim::Blob([number; 32]));
            assert!(merge(&known, &mut added), "{number}");
            known = added.unsynced();
            assert!(known.admits(LayerClaim::Blob([number; 32])));
        }
        assert!(!merge(&known, &mut new(LayerClaim::Blob([99; 32]))));
        assert_eq!(known.file.blobs.len(), MAX_BLOBS);
        assert!(!known.admits(LayerClaim::Blob([0; 32])));
        // The key still counts, and the content came without one too.
        assert!(known.admits(LayerClaim::Key([9; 32])) && !known.admits(LayerClaim::Key([1; 32])));
        assert!(!known.came_encrypted());
    }
}
