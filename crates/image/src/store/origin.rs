//! What a registry resolved to an image: a later pull that is told the same digest need not fetch manifest and configuration again.

use serde::{Deserialize, Serialize};

use super::ContentStore;
use super::record::Record;
use crate::digest::Digest;
use crate::error::Result;
use crate::manifest::Descriptor;
use crate::platform::Platform;
use crate::progress::lock;
use crate::reference::Reference;
use crate::registry::FetchedManifest;

/// Most origins of one image; the most recent ones are kept.
const MAX_ORIGINS: usize = 16;

/// A manifest or index that a reference resolved to, and the manifest in it that was chosen.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Origin {
    /// The digest of the manifest or index that the reference resolved to.
    digest: Digest,
    media_type: String,
    size: u64,
    /// The digest of the manifest, which is kept with the image.
    manifest: Digest,
    manifest_type: String,
    /// The document that told an artifact from an image; none if it is the image's own configuration, or was not needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<Digest>,
    /// The platform that the manifest was chosen for.
    platform: String,
}

/// An image as it was fetched, from the store.
#[derive(Debug)]
pub(crate) struct StoredImage {
    pub(crate) top: Descriptor,
    pub(crate) manifest: FetchedManifest,
    /// The configuration of the image, or what told that it is an artifact.
    pub(crate) config: Vec<u8>,
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

impl Record {
    /// Adds the origins of an older record, as many as are kept.
    pub(super) fn absorb_origins(&mut self, older: Vec<Origin>) {
        for origin in older {
            if !self.origins.iter().any(|one| one.is_same(&origin)) {
                self.origins.push(origin);
            }
        }
        self.origins.truncate(MAX_ORIGINS);
    }

    /// Returns whether it is the image of a tag or of a digest in a repository.
    fn is_named(&self, name: &str) -> bool {
        self.tags.contains_key(name) || self.digests.iter().any(|digest| digest == name)
    }

    /// The origins that a pull of this repository has found on this platform.
    fn origins_of(&self, reference: &Reference, platform: &str) -> impl Iterator<Item = &Origin> {
        let of_platform = self
            .origins
            .iter()
            .filter(move |origin| origin.platform == platform);
        of_platform.filter(|origin| {
            let name = reference.at(origin.digest.clone()).to_string();
            self.is_named(&name)
        })
    }
}

impl ContentStore {
    /// The digests that a reference may resolve to without anything to fetch: none unless the reference itself is known, and only those
    /// that pulls from the same repository have found.
    pub(crate) fn known_digests(&self, reference: &Reference, platform: &Platform) -> Vec<Digest> {
        let (name, platform) = (reference.to_string(), platform.to_string());
        let index = lock(&self.index);
        let mut images = index.images.values();
        if !images.any(|image| image.record.is_named(&name)) {
            return Vec::new();
        }
        let images = index.images.values();
        let found = images.flat_map(|image| image.record.origins_of(reference, &platform));
        let found = found.map(|origin| origin.digest.clone());
        found
            .filter(|digest| reference.digest().is_none_or(|wanted| wanted == digest))
            .collect()
    }

    /// Reads the image that this digest resolves to in the repository of a reference, and checks the digests of its documents. `None` if
    /// it has been removed. Blocks.
    pub(crate) fn stored_image(
        &self,
        reference: &Reference,
        digest: &Digest,
        platform: &Platform,
    ) -> Result<Option<StoredImage>> {
        let platform = platform.to_string();
        let found = {
            let index = lock(&self.index);
            let mut records = index.images.values().map(|image| &image.record);
            records.find_map(|record| {
                let mut origins = record.origins_of(reference, &platform);
                let origin = origins.find(|origin| origin.digest == *digest)?;
                Some((record.id.clone(), origin.clone()))
            })
        };
        let Some((id, origin)) = found else {
            return Ok(None);
        };
        let config_digest = origin.config.clone().unwrap_or(id);
        let manifest = self.checked_content("manifest", &origin.manifest)?;
        let config = self.checked_content("image configuration", &config_digest)?;
        Ok(Some(StoredImage {
            top: Descriptor {
                media_type: origin.media_type,
                size: origin.size,
                ..Descriptor::from_digest(origin.digest)
            },
            manifest: FetchedManifest {
                bytes: manifest,
                media_type: origin.manifest_type,
                digest: origin.manifest,
            },
            config,
        }))
    }

    fn checked_content(&self, what: &'static str, digest: &Digest) -> Result<Vec<u8>> {
        let bytes = self.content(digest)?;
        digest.check(what, &bytes)?;
        Ok(bytes)
    }
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
        let mut record = Record::new(Digest::sha256(b"x"), Vec::new());
        for number in 0..2 * MAX_ORIGINS {
            let mut next = Record::new(Digest::sha256(b"x"), Vec::new());
            next.origins = vec![origin(number)];
            next.absorb_origins(record.origins);
            assert_eq!(next.origins[0], origin(number));
            record = next;
        }
        assert_eq!(record.origins.len(), MAX_ORIGINS);
        record.absorb_origins(vec![origin(2 * MAX_ORIGINS - 1)]);
        assert_eq!(record.origins.len(), MAX_ORIGINS);
    }

    #[test]
    fn an_origin_counts_in_its_repository_and_on_its_platform() {
        let name = Reference::parse("quay.io/a/b:1").expect("a name");
        let other = Reference::parse("quay.io/a/c:1").expect("a name");
        let mut record = Record::new(Digest::sha256(b"x"), Vec::new());
        record.origins = vec![origin(1), origin(2)];
        record.add_reference(&name.at(origin(1).digest));
        let platform = Platform::host().to_string();
        let found = |name: &Reference, platform: &str| -> Vec<_> {
            let origins = record.origins_of(name, platform);
            origins.map(|origin| origin.digest.clone()).collect()
        };
        assert_eq!(found(&name, &platform), [origin(1).digest]);
        assert!(found(&other, &platform).is_empty());
        assert!(found(&name, "linux/s390x").is_empty());
    }
}
