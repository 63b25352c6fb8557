//! The annotations of an image: those of its manifest.

use std::collections::BTreeMap;
use std::fs;

use super::disk::Disk;
use super::record::Record;
use crate::manifest::annotations;

/// Maximum bytes of annotations of an image that are kept in memory, with [`ITEM_COST`] for each. Larger ones are left out: no
/// part of them is right, and the image works without.
const MAX_KEPT: usize = 64 << 10;
/// Approximate memory of an annotation besides its bytes.
const ITEM_COST: usize = 96;
/// Reads the annotations of an image to run. They only inform: without its manifest an image is still complete.
pub(super) fn read(disk: &Disk, record: &Record) -> BTreeMap<String, String> {
    let manifest = match record.artifact {
        Some(_) => None,
        None => record.manifest.as_ref(),
    };
    let bytes = manifest.and_then(|digest| fs::read(disk.content(digest)).ok());
    bytes.map(|bytes| parse(&bytes)).unwrap_or_default()
}

fn parse(manifest: &[u8]) -> BTreeMap<String, String> {
    let found = annotations(manifest);
    let items = found.iter();
    let cost: usize = items
        .map(|(key, value)| key.len() + value.len() + ITEM_COST)
        .sum();
    if cost <= MAX_KEPT {
        found
    } else {
        BTreeMap::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(kind: &str, annotations: &serde_json::Value) -> BTreeMap<String, String> {
        let manifest = serde_json::json!({"mediaType": kind, "annotations": annotations});
        parse(manifest.to_string().as_bytes())
    }

    #[test]
    fn annotations_are_those_of_an_oci_manifest_and_bounded() {
        let some = serde_json::json!({"org.example.a": "1", "b": ""});
        let oci = "application/vnd.oci.image.manifest.v1+json";
        for kind in [oci, ""] {
            let found = parsed(kind, &some);
            assert_eq!(found["org.example.a"], "1", "{kind:?}");
            assert_eq!(found.len(), 2, "{kind:?}");
        }
        assert_eq!(parsed(crate::manifest::DOCKER, &some), BTreeMap::new());
        let long = serde_json::json!({"a": "x".repeat(MAX_KEPT)});
        assert_eq!(parsed(oci, &long), BTreeMap::new());
        for odd in [serde_json::json!({"a": 1}), serde_json::json!([])] {
            assert_eq!(parsed(oci, &odd), BTreeMap::new(), "{odd}");
        }
        assert_eq!(parsed(oci, &serde_json::Value::Null), BTreeMap::new());
    }
}
