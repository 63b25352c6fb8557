//! Who may use an unpacked layer without bringing its content.
//!
//! A configuration names its layers by the digests of their content (diff IDs), and can name any. A layer that one pull brought here,
//! perhaps with credentials, must not be given to another one that knows only this digest. So a layer is recorded with the
//! the pulls showed that brought its content, and is used again only by a pull that shows the same: most often the digest of the
//! blob that was seen to unpack to it. A pull that shows anything else fetches its blob, which is then checked and recorded likewise.
//! Ordinary pulls with shared layers show the same blobs, and need no further request.

use sha2::{Digest as _, Sha256};

use crate::digest::Digest;

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
}
