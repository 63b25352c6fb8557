//! What a registry resolved to an image: a later pull that is told the same digest need not fetch manifest and configuration again.

use serde::{Deserialize, Serialize};

use crate::descriptor::Descriptor;
use crate::digest::Digest;
use crate::manifest::FetchedManifest;
use crate::platform::Platform;

/// Most origins of one image; the most recent ones are kept.
const MAX_ORIGINS: usize = 16;

/// A manifest or index that a reference resolved to, and the manifest in it that was chosen.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Origin {
    /// The digest of the manifest or index that the reference resolved to.
    pub(super) digest: Digest,
    pub(super) media_type: String,
    pub(super) size: u64,
    /// The digest of the manifest, which is kept with the image.
    pub(super) manifest: Digest,
    pub(super) manifest_type: String,
    /// The document that told an artifact from an image; none if it is the image's own configuration, or was not needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<Digest>,
    /// The platform that the manifest was chosen for.
    pub(super) platform: String,
}

impl Origin {
    pub(crate) fn new(top: &Descriptor, manifest: &FetchedManifest, platform: &Platform) -> Self {
        Self {
            digest: top.digest.clone(),
            media_type: top.media_type.clone(),
            size: top.size,
            manifest: manifest.digest.clone(),
            manifest_type: manifest.media_type.clone(),
            config: None,
            platform: platform.to_string(),
        }
    }

    /// Returns whether both are what the same digest resolves to.
    fn is_same(&self, other: &Self) -> bool {
        self.digest == other.digest && self.platform == other.platform
    }

    /// The documents of the image that are needed again.
    pub(super) fn contents(&self) -> impl Iterator<Item = &Digest> {
        [&self.manifest].into_iter().chain(&self.config)
    }
}

/// Adds the origins of an older record, as many as are kept.
pub(super) fn absorb(origins: &mut Vec<Origin>, older: Vec<Origin>) {
    for origin in older {
        if !origins.iter().any(|one| one.is_same(&origin)) {
            origins.push(origin);
        }
    }
    origins.truncate(MAX_ORIGINS);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(number: usize) -> Origin {
        let manifest = FetchedManifest {
            bytes: number.to_string().into_bytes(),
            media_type: String::new(),
            digest: Digest::sha256(number.to_string().as_bytes()),
        };
        Origin::new(&manifest.descriptor(), &manifest, &Platform::host())
    }

    #[test]
    fn the_most_recent_origins_are_kept() {
        let mut origins = Vec::new();
        for number in 0..2 * MAX_ORIGINS {
            let mut next = vec![origin(number)];
            absorb(&mut next, origins);
            assert_eq!(next[0], origin(number));
            origins = next;
        }
        assert_eq!(origins.len(), MAX_ORIGINS);
        absorb(&mut origins, vec![origin(2 * MAX_ORIGINS - 1)]);
        assert_eq!(origins.len(), MAX_ORIGINS);
    }
}
