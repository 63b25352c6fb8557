//! The index in memory: images, their references, layers, and reference counts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::layers::Layer;
use super::record::Record;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::image_config::ImageConfig;
use crate::reference::Reference;

/// An image in memory.
#[derive(Debug)]
pub(super) struct IndexedImage {
    pub(super) record: Record,
    pub(super) config: Arc<ImageConfig>,
    pub(super) annotations: Arc<BTreeMap<String, String>>,
}

/// Everything that queries need without access to the disk.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) images: HashMap<Digest, IndexedImage>,
    pub(super) layers: HashMap<Digest, Layer>,
    /// Reference counts of the layers that pulls and containers hold.
    pub(super) held: HashMap<Digest, usize>,
}

impl Index {
    pub(super) fn new(layers: HashMap<Digest, Layer>) -> Self {
        Self {
            images: HashMap::new(),
            layers,
            held: HashMap::new(),
        }
    }

    /// See `ContentStore::resolve`. A reference takes precedence over a prefix of an ID, as in Docker.
    pub(super) fn resolve(&self, text: &str) -> Result<Option<Digest>> {
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        if let Ok(id) = Digest::parse(&format!("sha256:{hex}")) {
            return Ok(self.images.contains_key(&id).then_some(id));
        }
        let named = Reference::parse(text);
        if let Ok(name) = &named
            && let Some(id) = self.by_reference(&name.to_string())
        {
            return Ok(Some(id));
        }
        match (self.resolve_id(text)?, named) {
            (None, Err(error)) if !is_hex(hex) => Err(error),
            (found, _) => Ok(found),
        }
    }

    /// As [`Self::resolve`], without references.
    pub(super) fn resolve_id(&self, text: &str) -> Result<Option<Digest>> {
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        match is_hex(hex) {
            true => self.by_prefix(hex),
            false => Ok(None),
        }
    }

    fn by_reference(&self, name: &str) -> Option<Digest> {
        let has = |record: &Record| {
            record.tags.contains_key(name) || record.digests.iter().any(|digest| digest == name)
        };
        let mut images = self.images.iter();
        images.find_map(|(id, known)| has(&known.record).then(|| id.clone()))
    }

    fn by_prefix(&self, hex: &str) -> Result<Option<Digest>> {
        let mut fitting = self.images.keys().filter(|id| id.hex().starts_with(hex));
        match (fitting.next(), fitting.next()) {
            (Some(_), Some(_)) => Err(Error::AmbiguousId {
                prefix: hex.to_owned(),
            }),
            (found, _) => Ok(found.cloned()),
        }
    }

    /// Adds an image, removes its tags from other images, and returns the records of those.
    pub(super) fn insert(&mut self, new: IndexedImage) -> Vec<Record> {
        let mut changed = Vec::new();
        for (id, known) in &mut self.images {
            if *id == new.record.id {
                continue;
            }
            let before = known.record.tags.len();
            let tags = &mut known.record.tags;
            tags.retain(|tag, _| !new.record.tags.contains_key(tag));
            if tags.len() < before {
                changed.push(known.record.clone());
            }
        }
        self.images.insert(new.record.id.clone(), new);
        changed
    }

    /// Removes duplicate tags after a crash between two writes: a tag belongs to the image that got it last.
    pub(super) fn settle_tags(&mut self) {
        let mut newest: HashMap<String, (u64, Digest)> = HashMap::new();
        for (id, known) in &self.images {
            for (tag, since) in &known.record.tags {
                let newer = newest.get(tag).is_none_or(|(other, _)| other < since);
                if newer {
                    newest.insert(tag.clone(), (*since, id.clone()));
                }
            }
        }
        for (id, known) in &mut self.images {
            let tags = &mut known.record.tags;
            tags.retain(|tag, _| newest.get(tag).is_some_and(|(_, owner)| owner == id));
        }
    }

    /// Returns whether the layer is held or an image needs it.
    pub(super) fn needs_layer(&self, id: &Digest) -> bool {
        let mut images = self.images.values();
        self.held.contains_key(id)
            || images.any(|known| known.record.all_layers().any(|layer| layer == id))
    }

    /// Returns whether an image needs this configuration or manifest.
    pub(super) fn needs_content(&self, digest: &Digest) -> bool {
        let mut images = self.images.values();
        self.images.contains_key(digest)
            || images.any(|known| known.record.contents().any(|needed| needed == digest))
    }
}

fn is_hex(text: &str) -> bool {
    let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    !text.is_empty() && text.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(images: &[(&Digest, &[&str])]) -> Index {
        let mut index = Index::new(HashMap::new());
        for (id, names) in images {
            let mut record = Record::new((*id).clone(), Vec::new());
            for name in *names {
                record.add_reference(&Reference::parse(name).expect("a name"));
            }
            index.insert(IndexedImage {
                record,
                config: Arc::default(),
                annotations: Arc::default(),
            });
        }
        index
    }

    #[test]
    fn images_are_found_by_reference_id_and_prefix() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let by_digest = format!("quay.io/x/y@{b}");
        let index = index(&[(&a, &["busybox"]), (&b, &["quay.io/x/y:1", &by_digest])]);
        let find = |text: &str| index.resolve(text).expect(text);
        for text in [
            "busybox",
            "busybox:latest",
            "docker.io/library/busybox",
            a.as_str(),
            a.hex(),
            &a.hex()[..12],
        ] {
            assert_eq!(find(text), Some(a.clone()), "{text}");
        }
        assert_eq!(find(&a.as_str()[..20]), Some(a.clone()));
        assert_eq!(find(&by_digest), Some(b.clone()));
        assert_eq!(find(&format!("quay.io/x/y:other@{b}")), Some(b.clone()));
        assert_eq!(find("quay.io/x/y"), None);
        assert_eq!(find(&format!("busybox@{b}")), None);
        assert_eq!(find(Digest::of(b"c").as_str()), None);
        assert!(index.resolve("not//a name").is_err());
    }

    #[test]
    fn a_tag_moves_to_the_new_image() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let mut index = index(&[(&a, &["x", "y"])]);
        let mut record = Record::new(b.clone(), Vec::new());
        record.add_reference(&Reference::parse("x").expect("a name"));
        let config = Arc::default();
        let changed = index.insert(IndexedImage {
            record,
            config,
            annotations: Arc::default(),
        });
        assert_eq!(changed.len(), 1);
        assert_eq!(index.resolve("x").expect("x"), Some(b));
        assert_eq!(index.resolve("y").expect("y"), Some(a));
    }

    #[test]
    fn a_prefix_of_two_ids_is_ambiguous() {
        let ids: Vec<_> = (0..40_u8).map(|n| Digest::of(&[n])).collect();
        let images: Vec<_> = ids.iter().map(|id| (id, &[][..])).collect();
        let index = index(&images);
        // 40 ids, but only 16 possible first digits.
        let ambiguous = (0..16)
            .filter(|n| index.resolve(&format!("{n:x}")).is_err())
            .count();
        assert!(ambiguous > 0);
    }
}
