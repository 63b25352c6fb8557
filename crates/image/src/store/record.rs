//! The record of an image: a JSON file.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::origin::{self, Origin};
use crate::digest::Digest;
use crate::image_config::{ImageConfig, ParsedConfig};
use crate::reference::Reference;

/// Maximum number of tags of one image, and of references with a digest: both are chosen by pulls.
const MAX_NAMES: usize = 256;

/// Maximum number of documents with signatures of one image; the most recent ones are kept.
const MAX_EVIDENCE: usize = 8;

/// The version of the record, incremented when older programs cannot read it.
pub const VERSION: u32 = 1;

/// The record of an image.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Record {
    version: u32,
    /// The digest of the configuration.
    pub(crate) id: Digest,
    /// References with a tag, and when the image got them (nanoseconds since the Unix epoch): if two records have the same
    /// tag, the later one wins.
    #[serde(default)]
    pub(crate) tags: BTreeMap<String, u64>,
    /// References with a digest.
    #[serde(default)]
    pub(crate) digests: Vec<String>,
    /// The manifest for the platform; none for an archive of `docker save`.
    pub(crate) manifest: Option<Digest>,
    /// What registries resolved to this image, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) origins: Vec<Origin>,
    /// The type of an artifact, whose ID is the digest of its manifest; none for an image to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifact: Option<String>,
    /// Documents with the signatures that were found with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) evidence: Vec<Digest>,
    /// Layers from the base up, by their names in `layers`.
    pub(crate) layers: Vec<Digest>,
    /// The diff IDs. Where the two differ, the layer is a rebased copy whose files are hard links to those of this one.
    pub(crate) diff_ids: Vec<Digest>,
    /// Bytes when unpacked.
    pub(crate) size: u64,
    /// Seconds since the Unix epoch.
    pub(crate) pulled_at: u64,
    /// True if it is excluded from garbage collection.
    #[serde(default)]
    pub(crate) pinned: bool,
}

impl Record {
    pub(crate) fn new(id: Digest, diff_ids: Vec<Digest>) -> Self {
        Self {
            version: VERSION,
            id,
            tags: BTreeMap::new(),
            digests: Vec::new(),
            manifest: None,
            origins: Vec::new(),
            artifact: None,
            evidence: Vec::new(),
            layers: diff_ids.clone(),
            diff_ids,
            size: 0,
            pulled_at: now().as_secs(),
            pinned: false,
        }
    }

    /// Parses a record, and checks its consistency.
    pub(super) fn read(bytes: &[u8], id: &Digest) -> Result<Self, String> {
        let record: Self = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        if record.version > VERSION {
            return Err(format!(
                "of version {}, newer than this program",
                record.version
            ));
        }
        if record.id != *id {
            return Err(format!(
                "it is of {}, not of what it is named after",
                record.id
            ));
        }
        let names = record.tags.keys().chain(&record.digests);
        for name in names {
            Reference::parse(name).map_err(|e| e.to_string())?;
        }
        Ok(record)
    }

    /// All layers that the image needs.
    pub(super) fn all_layers(&self) -> impl Iterator<Item = &Digest> {
        self.layers.iter().chain(&self.diff_ids)
    }

    /// Parses the document with the image's ID.
    pub(super) fn config(&self, bytes: &[u8]) -> crate::Result<ImageConfig> {
        match self.artifact {
            Some(_) => Ok(ImageConfig::default()),
            None => Ok(ParsedConfig::read(bytes)?.config),
        }
    }

    /// All documents that the image needs besides its configuration.
    pub(super) fn contents(&self) -> impl Iterator<Item = &Digest> {
        let of_origins = self.origins.iter().flat_map(Origin::contents);
        self.manifest.iter().chain(&self.evidence).chain(of_origins)
    }

    pub(super) fn bytes(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec_pretty(self)
    }

    /// Adds a reference with the current time.
    pub(crate) fn add_reference(&mut self, reference: &Reference) {
        let text = reference.to_string();
        if reference.tag().is_some() {
            let nanos = u64::try_from(now().as_nanos()).unwrap_or(u64::MAX);
            self.tags.insert(text, nanos);
        } else {
            add_missing(&mut self.digests, [text]);
        }
    }

    /// Merges an older record of the same image.
    pub(super) fn absorb(&mut self, older: Self) {
        for (tag, since) in older.tags {
            self.tags.entry(tag).or_insert(since);
        }
        add_missing(&mut self.digests, older.digests);
        self.manifest = self.manifest.take().or(older.manifest);
        self.pinned |= older.pinned;
        origin::absorb(&mut self.origins, older.origins);
        add_missing(&mut self.evidence, older.evidence);
        self.evidence.truncate(MAX_EVIDENCE);
        // The oldest are dropped: recent ones are more likely to be used.
        while self.tags.len() > MAX_NAMES {
            let oldest = self.tags.iter().min_by_key(|(_, since)| **since);
            let Some(oldest) = oldest.map(|(tag, _)| tag.clone()) else {
                break;
            };
            self.tags.remove(&oldest);
        }
        self.digests.truncate(MAX_NAMES);
    }
}

fn add_missing<T: PartialEq>(all: &mut Vec<T>, more: impl IntoIterator<Item = T>) {
    for one in more {
        if !all.contains(&one) {
            all.push(one);
        }
    }
}

pub(super) fn now() -> std::time::Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_no_more_names_than_it_may() {
        let id = Digest::sha256(b"x");
        let mut record = Record::new(id.clone(), Vec::new());
        let first = Reference::parse("quay.io/a/0:1").expect("a name");
        for number in 0..MAX_NAMES + 10 {
            let name = Reference::parse(&format!("quay.io/a/{number}:1")).expect("a name");
            let mut next = Record::new(id.clone(), Vec::new());
            next.add_reference(&name);
            next.add_reference(&name.at(id.clone()));
            next.absorb(record);
            assert!(next.tags.contains_key(&name.to_string()));
            assert_eq!(next.digests[0], name.at(id.clone()).to_string());
            record = next;
        }
        assert_eq!(record.tags.len(), MAX_NAMES);
        assert_eq!(record.digests.len(), MAX_NAMES);
        assert!(!record.tags.contains_key(&first.to_string()));
    }
}
