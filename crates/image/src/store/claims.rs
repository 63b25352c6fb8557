//! Who may use an unpacked layer without bringing its content.
//!
//! A configuration names its layers by the digests of their content (diff IDs), and can name any. A layer that one pull brought here,
//! perhaps with credentials, must not be given to another one that knows only this digest. So a layer is recorded with the
//! the pulls showed that brought its content, and is used again only by a pull that shows the same: most often the digest of the
//! blob that was seen to unpack to it. A pull that shows anything else fetches its blob, which is then checked and recorded likewise.
//! Ordinary pulls with shared layers show the same blobs, and need no further request.

use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::layers::{self, Layer};
use super::{ContentStore, NewLayer, lock};
use crate::config::Failpoint;
use crate::digest::Digest;
use crate::error::Result;

/// Identifies a blob that unpacks to a layer.
pub(crate) type BlobProof = [u8; 32];

/// Identifies the key that a layer was decrypted with, without being of use for decryption.
pub(crate) type KeyProof = [u8; 32];

/// The proof of a layer that a pull or an import shows.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum LayerClaim {
    /// A blob that is not encrypted.
    Blob(BlobProof),
    /// The key of an encrypted blob.
    Key(KeyProof),
}

/// The maximum number of blobs that are recorded with one layer; the most recent ones are kept.
const MAX_BLOBS: usize = 64;

impl LayerClaim {
    /// The claim of a blob. The digest of one that is not compressed is the diff ID itself, and shows nothing: it counts only in the
    /// place it came from, such as a repository, whose manifest the pull was allowed to read. The same goes for a blob without a
    /// digest.
    pub(crate) fn blob(layer: &Digest, blob: Option<&Digest>, place: &str) -> Self {
        Self::Blob(match blob.filter(|blob| *blob != layer) {
            Some(blob) => proof(&["blob", blob.as_str()]),
            None => proof(&["uncompressed", layer.as_str(), place]),
        })
    }

    /// The claim of the files of an artifact. Its layer is named after its manifest, which names all files by digest.
    pub(crate) fn artifact(manifest: &Digest) -> Self {
        Self::Blob(proof(&["artifact", manifest.as_str()]))
    }
}

fn proof(parts: &[&str]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

impl Layer {
    fn admits(&self, claim: LayerClaim) -> bool {
        match claim {
            LayerClaim::Blob(proof) => self.blobs.contains(&proof),
            LayerClaim::Key(proof) => self.record.proof == Some(proof),
        }
    }
}

/// Adds the blobs of another record of the same layer, and returns whether anything is new.
fn merge(known: &Layer, new: &mut NewLayer) -> bool {
    let is_new = new.blobs.iter().any(|blob| !known.blobs.contains(blob))
        || (new.proof.is_some() && new.proof != known.record.proof);
    let older = known.blobs.iter().filter(|blob| !new.blobs.contains(blob));
    let mut blobs: Vec<_> = older.copied().collect();
    blobs.append(&mut new.blobs);
    let excess = blobs.len().saturating_sub(MAX_BLOBS);
    new.blobs = blobs.split_off(excess);
    new.proof = new.proof.or(known.record.proof);
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
    fn a_digest_that_is_the_diff_id_counts_only_where_it_came_from() {
        let (layer, blob) = (Digest::sha256(b"tar"), Digest::sha256(b"tar.gz"));
        let claim = |blob: Option<&Digest>, place: &str| LayerClaim::blob(&layer, blob, place);
        assert_eq!(claim(Some(&blob), "r/a"), claim(Some(&blob), "r/b"));
        assert_eq!(claim(Some(&layer), "r/a"), claim(Some(&layer), "r/a"));
        assert_ne!(claim(Some(&layer), "r/a"), claim(Some(&layer), "r/b"));
        assert_eq!(claim(None, ""), claim(Some(&layer), ""));
        // Neither is the layer of an artifact one of an image.
        assert_ne!(LayerClaim::artifact(&layer), claim(Some(&layer), ""));
    }

    #[test]
    fn the_most_recent_blobs_are_kept() {
        let new = |claim| NewLayer::new(1, 1, Vec::new(), "boot").shown_by(claim);
        let mut known = new(LayerClaim::Key([9; 32])).unsynced();
        assert!(known.record.came_encrypted);
        for number in 0..100 {
            let mut added = new(LayerClaim::Blob([number; 32]));
            assert!(merge(&known, &mut added), "{number}");
            known = added.unsynced();
            assert!(known.admits(LayerClaim::Blob([number; 32])));
        }
        assert!(!merge(&known, &mut new(LayerClaim::Blob([99; 32]))));
        assert_eq!(known.blobs.len(), MAX_BLOBS);
        assert!(!known.admits(LayerClaim::Blob([0; 32])));
        // The key still counts, and the content came without one too.
        assert!(known.admits(LayerClaim::Key([9; 32])) && !known.admits(LayerClaim::Key([1; 32])));
        assert!(!known.record.came_encrypted);
    }
}
