//! What the store knows about a reference: digests that need not be fetched again, and the documents of their images.

use super::content::ContentStore;
use super::origin::Origin;
use super::record::Record;
use crate::blocking::lock;
use crate::descriptor::Descriptor;
use crate::digest::Digest;
use crate::error::Result;
use crate::manifest::FetchedManifest;
use crate::platform::Platform;
use crate::reference::Reference;

/// An image as it was fetched, from the store.
#[derive(Debug)]
pub(crate) struct StoredImage {
    pub(crate) top: Descriptor,
    pub(crate) manifest: FetchedManifest,
    /// The configuration of the image, or what told that it is an artifact.
    pub(crate) config: Vec<u8>,
}

impl Record {
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
