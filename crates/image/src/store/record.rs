//! The record of an image: one JSON file that a person can read and mend.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::reference::Reference;

/// Tags of one image, and as many names with a digest: anybody who pulls decides under which name.
const MAX_NAMES: usize = 256;

/// Grows when an older program could not read what a newer one writes.
pub const VERSION: u32 = 1;

/// See the module.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Record {
    version: u32,
    /// The digest of the configuration.
    pub(crate) id: Digest,
    /// Names with a tag, spelt out, and when the tag came to this image (nanoseconds after 1970): a tag that two records
    /// have belongs to the later.
    #[serde(default)]
    pub(crate) tags: BTreeMap<String, u64>,
    /// Names with a digest, spelt out.
    #[serde(default)]
    pub(crate) digests: Vec<String>,
    /// The manifest for this machine; none for an archive of Docker.
    pub(crate) manifest: Option<Digest>,
    /// Layers from the bottom up, as they lie in `layers`.
    pub(crate) layers: Vec<Digest>,
    /// The same by their diff ids. Where that is another layer, the files of the first are links to those of this.
    pub(crate) diff_ids: Vec<Digest>,
    /// Bytes when unpacked.
    pub(crate) size: u64,
    /// Seconds after 1970.
    pub(crate) pulled_at: u64,
    /// Not to be removed to make room.
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
            layers: diff_ids.clone(),
            diff_ids,
            size: 0,
            pulled_at: now().as_secs(),
            pinned: false,
        }
    }

    /// Reads one, and refuses what does not fit together.
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

    /// Every layer that must stay for this image.
    pub(super) fn all_layers(&self) -> impl Iterator<Item = &Digest> {
        self.layers.iter().chain(&self.diff_ids)
    }

    pub(super) fn bytes(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec_pretty(self)
    }

    /// Adds a name, now.
    pub(crate) fn add_reference(&mut self, reference: &Reference) {
        let text = reference.to_string();
        if reference.tag().is_some() {
            let nanos = u64::try_from(now().as_nanos()).unwrap_or(u64::MAX);
            self.tags.insert(text, nanos);
        } else if !self.digests.contains(&text) {
            self.digests.push(text);
        }
    }

    /// Takes over what is known of the same image already.
    pub(super) fn absorb(&mut self, older: Self) {
        for (tag, since) in older.tags {
            self.tags.entry(tag).or_insert(since);
        }
        for digest in older.digests {
            if !self.digests.contains(&digest) {
                self.digests.push(digest);
            }
        }
        self.manifest = self.manifest.take().or(older.manifest);
        self.pinned |= older.pinned;
        // The oldest go: what was named just now is what is asked for next.
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
        let id = Digest::of(b"x");
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
