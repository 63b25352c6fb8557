//! The documents of an archive: configuration, manifest, index, and the `manifest.json` of `docker load`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::{json, manifest};

pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// The name of an image, for containerd, and for skopeo and podman.
const NAMES: [&str; 2] = [
    "io.containerd.image.name",
    "org.opencontainers.image.ref.name",
];
/// Annotations with the digests of manifest and configuration as the image was pulled. They only inform: anyone can write them.
const ORIGINAL: &str = "io.criscope.image.original.digest";
const ORIGINAL_ID: &str = "io.criscope.image.original.id";

type Annotations = BTreeMap<String, String>;

/// A document of JSON and its digest.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) digest: Digest,
    pub(super) bytes: Vec<u8>,
}

impl Document {
    fn from_value(value: &impl Serialize) -> Result<Self> {
        let bytes = serde_json::to_vec(value).map_err(|e| Error::internal(e.to_string()))?;
        Ok(Self {
            digest: Digest::sha256(&bytes),
            bytes,
        })
    }
}

/// A descriptor (image-spec, "Descriptors").
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry<'a> {
    media_type: &'a str,
    digest: &'a Digest,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<&'a RawPlatform>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: Annotations,
}

impl<'a> Entry<'a> {
    fn new(media_type: &'a str, digest: &'a Digest, size: u64) -> Self {
        Self {
            media_type,
            digest,
            size,
            artifact_type: None,
            platform: None,
            annotations: Annotations::new(),
        }
    }
}

/// The platform of a configuration, which an index repeats as it is.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct RawPlatform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(
        default,
        rename = "os.version",
        skip_serializing_if = "String::is_empty"
    )]
    os_version: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    variant: String,
}

/// A configuration, and the platform in it.
pub(super) struct Config {
    pub(super) document: Document,
    pub(super) platform: RawPlatform,
}

/// Replaces the diff IDs of a configuration. Everything else stays as it is, byte by byte, but for the order of the fields.
pub(super) fn config(bytes: &[u8], diff_ids: &[&Digest]) -> Result<Config> {
    #[derive(Serialize)]
    struct RootFs<'a> {
        r#type: &'a str,
        diff_ids: &'a [&'a Digest],
    }
    let text = String::from_utf8_lossy(bytes);
    let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&text)
        .map_err(|e| Error::invalid("image configuration", e.to_string()))?;
    let platform = json::from_slice(bytes)
        .map_err(|e| Error::invalid("image configuration", e.to_string()))?;
    // Go reads it regardless of the case.
    fields.retain(|key, _| !key.eq_ignore_ascii_case("rootfs"));
    let rootfs = RootFs {
        r#type: "layers",
        diff_ids,
    };
    let rootfs = serde_json::value::to_raw_value(&rootfs);
    let rootfs = rootfs.map_err(|e| Error::internal(e.to_string()))?;
    fields.insert("rootfs".to_owned(), rootfs);
    Ok(Config {
        document: Document::from_value(&fields)?,
        platform,
    })
}

/// The annotations of a manifest, and those with the digests it had before.
pub(super) fn annotations(
    manifest: Option<&[u8]>,
    digest: Option<&Digest>,
    id: Option<&Digest>,
) -> Annotations {
    let mut all = manifest.map(manifest::annotations).unwrap_or_default();
    // An image that was exported before keeps the digests that it had in the registry.
    if !all.contains_key(ORIGINAL) && !all.contains_key(ORIGINAL_ID) {
        for (key, digest) in [(ORIGINAL, digest), (ORIGINAL_ID, id)] {
            all.extend(digest.map(|digest| (key.to_owned(), digest.to_string())));
        }
    }
    all
}

/// The manifest of an image with these layers.
pub(super) fn manifest(
    config: &Document,
    layers: &[(&Digest, u64)],
    annotations: Annotations,
) -> Result<Document> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Manifest<'a> {
        schema_version: u32,
        media_type: &'a str,
        config: Entry<'a>,
        layers: Vec<Entry<'a>>,
        annotations: Annotations,
    }
    Document::from_value(&Manifest {
        schema_version: 2,
        media_type: MANIFEST,
        config: Entry::new(CONFIG, &config.digest, config.bytes.len() as u64),
        layers: layers
            .iter()
            .map(|(digest, size)| Entry::new(LAYER, digest, *size))
            .collect(),
        annotations,
    })
}

/// An image in the index.
pub(super) struct Listed<'a> {
    pub(super) manifest: &'a Document,
    pub(super) artifact_type: Option<&'a str>,
    pub(super) platform: Option<&'a RawPlatform>,
    pub(super) names: &'a [String],
}

/// The index: an entry for every name of an image, and for an image without names.
pub(super) fn index(images: &[Listed<'_>]) -> Result<Vec<u8>> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Index<'a> {
        schema_version: u32,
        media_type: &'a str,
        manifests: Vec<Entry<'a>>,
    }
    let mut manifests = Vec::new();
    for image in images {
        let mut annotations: Vec<Annotations> = Vec::new();
        for name in image.names {
            annotations.push(NAMES.map(|key| (key.to_owned(), name.clone())).into());
        }
        if image.names.is_empty() {
            annotations.push(Annotations::new());
        }
        manifests.extend(annotations.into_iter().map(|annotations| Entry {
            artifact_type: image.artifact_type,
            platform: image.platform,
            annotations,
            ..Entry::new(
                MANIFEST,
                &image.manifest.digest,
                image.manifest.bytes.len() as u64,
            )
        }));
    }
    let index = Index {
        schema_version: 2,
        media_type: INDEX,
        manifests,
    };
    Ok(Document::from_value(&index)?.bytes)
}

/// An image in `manifest.json`, by which older versions of Docker find it.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DockerImage<'a> {
    pub(super) config: String,
    pub(super) repo_tags: &'a [String],
    pub(super) layers: Vec<String>,
}

/// `manifest.json`.
pub(super) fn docker(images: &[DockerImage<'_>]) -> Result<Vec<u8>> {
    Ok(Document::from_value(&images)?.bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_the_diff_ids_of_a_configuration_change() {
        let before = br#"{"os":"linux", "architecture":"arm64","variant":"v8","RootFS":1,
            "config":{"Env":["A=\u0041"],"Memory":12345678901234567890},"x.y":1.50,
            "rootfs":{"type":"layers","diff_ids":["sha256:1"]}}"#;
        let id = Digest::sha256(b"new");
        let found = config(before, &[&id]).expect("a configuration");
        let text = String::from_utf8(found.document.bytes.clone()).expect("text");
        for kept in [r#""Env":["A=\u0041"]"#, "12345678901234567890", "1.50"] {
            assert!(text.contains(kept), "{text}");
        }
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["rootfs"]["diff_ids"], json!([id]));
        assert!(value.get("RootFS").is_none());
        let platform = serde_json::to_value(&found.platform).expect("a platform");
        let wanted = json!({"os": "linux", "architecture": "arm64", "variant": "v8"});
        assert_eq!(platform, wanted);
        let again = config(&found.document.bytes, &[&id]).expect("again");
        assert_eq!(again.document.digest, found.document.digest);
    }

    #[test]
    fn annotations_stay_and_the_first_digest_is_kept() {
        let (first, second) = (Digest::sha256(b"1"), Digest::sha256(b"2"));
        let oci = br#"{"mediaType":"application/vnd.oci.image.manifest.v1+json","annotations":{"a":"b"}}"#;
        let all = annotations(Some(oci), Some(&first), Some(&second));
        assert_eq!((all["a"].as_str(), all.len()), ("b", 3));
        assert_eq!(all[ORIGINAL], first.as_str());
        assert_eq!(all[ORIGINAL_ID], second.as_str());
        let exported = json!({"annotations": all}).to_string();
        let again = annotations(Some(exported.as_bytes()), Some(&second), Some(&first));
        assert_eq!(again, all);
        let docker =
            json!({"mediaType": crate::manifest::DOCKER, "annotations": {"a": "b"}}).to_string();
        let all = annotations(Some(docker.as_bytes()), None, Some(&first));
        assert_eq!(all.len(), 1);
        assert_eq!(annotations(Some(b"{"), None, None).len(), 0);
    }
}
