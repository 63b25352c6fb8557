//! The index in memory: images, their references, layers, and reference counts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::layers::Layer;
use super::record::Record;
use crate::digest::{Digest, is_lower_hex};
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

/// An image that was found, and how.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Resolved {
    pub(crate) id: Digest,
    /// The name of the image that it was found by; none if it was found by its ID.
    pub(crate) name: Option<Reference>,
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

    /// See `ContentStore::resolve`. An ID takes precedence over a name, and a name over the beginning of an ID, as in Docker.
    pub(super) fn resolve(&self, text: &str, names: Vec<Reference>) -> Result<Option<Resolved>> {
        if let Some(id) = whole_id(text) {
            let is_known = self.images.contains_key(&id);
            return Ok(is_known.then_some(Resolved { id, name: None }));
        }
        for name in names {
            if let Some(id) = self.by_reference(&name.to_string()) {
                let name = Some(name);
                return Ok(Some(Resolved { id, name }));
            }
        }
        if is_part_of_id(text) {
            let found = self.by_prefix(text)?;
            Ok(found.map(|id| Resolved { id, name: None }))
        } else {
            Ok(None)
        }
    }

    fn by_reference(&self, name: &str) -> Option<Digest> {
        let mut images = self.images.iter();
        let found = images.find(|(_, known)| {
            let Record { tags, digests, .. } = &known.record;
            tags.contains_key(name) || digests.iter().any(|digest| digest == name)
        });
        found.map(|(id, _)| id.clone())
    }

    fn by_prefix(&self, text: &str) -> Result<Option<Digest>> {
        let ids = self.images.keys();
        let mut fitting =
            ids.filter(|id| id.hex().starts_with(text) || id.as_str().starts_with(text));
        match (fitting.next(), fitting.next()) {
            (Some(_), Some(_)) => Err(Error::AmbiguousId {
                prefix: text.to_owned(),
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

/// The ID that a text is as a whole, with its algorithm or without.
pub(crate) fn whole_id(text: &str) -> Option<Digest> {
    let id = Digest::parse(text).or_else(|_| Digest::parse(&format!("sha256:{text}")));
    id.ok()
}

/// Returns whether a text can be an ID or the beginning of one, with its algorithm or without.
pub(crate) fn is_part_of_id(text: &str) -> bool {
    let mut algorithms = ["sha256:", "sha512:"].into_iter();
    let hex = algorithms.find_map(|algorithm| text.strip_prefix(algorithm));
    let hex = hex.unwrap_or(text);
    !hex.is_empty() && hex.bytes().all(is_lower_hex)
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

    fn resolve(index: &Index, text: &str) -> Result<Option<Resolved>> {
        index.resolve(text, Reference::parse(text).into_iter().collect())
    }

    #[test]
    fn images_are_found_by_reference_id_and_prefix() {
        let (a, b) = (Digest::sha256(b"a"), Digest::sha256(b"b"));
        let by_digest = format!("quay.io/x/y@{b}");
        let index = index(&[(&a, &["busybox"]), (&b, &["quay.io/x/y:1", &by_digest])]);
        let resolve = |text: &str| resolve(&index, text).expect(text);
        let find = |text: &str| resolve(text).map(|found| found.id);
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
        assert_eq!(find(Digest::sha256(b"c").as_str()), None);
        let name_of = |text: &str| resolve(text).and_then(|found| found.name);
        for id in [b.as_str(), b.hex(), &b.as_str()[..20], &b.hex()[..12]] {
            assert_eq!(name_of(id), None, "{id}");
        }
        for (text, name) in [
            ("busybox", "docker.io/library/busybox:latest"),
            (&by_digest, &by_digest),
        ] {
            let found = name_of(text).map(|name| name.to_string());
            assert_eq!(found.as_deref(), Some(name));
        }
    }

    /// An ID can be parsed as a name with a tag.
    #[test]
    fn no_name_hides_an_id() {
        let (a, b) = (Digest::sha256(b"a"), Digest::sha256(b"b"));
        let name = format!("r.example/sha256:{}", a.hex());
        let index = index(&[(&a, &[]), (&b, &[&name])]);
        let names = vec![Reference::parse(&name).expect("a name")];
        let found = index.resolve(a.as_str(), names).expect("found");
        let (id, name) = (a, None);
        assert_eq!(found, Some(Resolved { id, name }));
    }

    #[test]
    fn a_tag_moves_to_the_new_image() {
        let (a, b) = (Digest::sha256(b"a"), Digest::sha256(b"b"));
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
        let find = |text: &str| {
            let found = resolve(&index, text).expect(text);
            found.map(|found| found.id)
        };
        assert_eq!((find("x"), find("y")), (Some(b), Some(a)));
    }

    #[test]
    fn a_prefix_of_two_ids_is_ambiguous() {
        let ids: Vec<_> = (0..40_u8).map(|n| Digest::sha256(&[n])).collect();
        let images: Vec<_> = ids.iter().map(|id| (id, &[][..])).collect();
        let index = index(&images);
        // 40 ids, but only 16 possible first digits.
        let ambiguous = (0..16)
            .filter(|n| index.resolve(&format!("{n:x}"), Vec::new()).is_err())
            .count();
        assert!(ambiguous > 0);
    }
}
