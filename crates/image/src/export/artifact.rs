//! Artifacts in an archive. The store keeps the manifest and the named files as they came, so their digests stay. What it does
//! not keep (a configuration that is not empty, layers without a name) is left out of the manifest.

use serde_json::{Map, Value, json};

use super::documents::{Document, annotations};
use crate::artifact::{ArtifactFile, ArtifactManifest};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::manifest::Manifest;

/// The configuration of an artifact without one (image-spec, "Guidance for an Empty Descriptor").
pub(super) const EMPTY: &[u8] = b"{}";
const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";

/// The manifest to write, and the files it names.
pub(super) struct ExportedArtifact {
    pub(super) manifest: Document,
    pub(super) artifact_type: String,
    pub(super) files: Vec<ArtifactFile>,
}

/// From the manifest of the artifact, whose digest is `id`.
pub(super) fn read(id: &Digest, bytes: Vec<u8>) -> Result<ExportedArtifact> {
    let parsed = match Manifest::parse(&bytes, "")? {
        // The configuration, which the store does not keep, has told that it is one.
        Manifest::Undeclared(manifest) => manifest.artifact()?,
        parsed => parsed,
    };
    let Manifest::Artifact(ArtifactManifest {
        artifact_type,
        files,
    }) = parsed
    else {
        let reason = "its manifest is that of an image";
        return Err(Error::invalid(format!("artifact {id}"), reason));
    };
    let fields: Map<String, Value> = serde_json::from_slice(&bytes)
        .map_err(|e| Error::invalid(format!("artifact {id}"), e.to_string()))?;
    let layers = fields.get("layers").and_then(Value::as_array);
    let is_whole = is_empty(fields.get("config")) && layers.map_or(0, Vec::len) == files.len();
    let manifest = if is_whole {
        Document {
            digest: id.clone(),
            bytes,
        }
    } else {
        shortened(id, &bytes, fields, &artifact_type, &files)?
    };
    Ok(ExportedArtifact {
        manifest,
        artifact_type,
        files,
    })
}

fn is_empty(config: Option<&Value>) -> bool {
    let digest = config.and_then(|config| config.get("digest"));
    digest.and_then(Value::as_str) == Some(Digest::sha256(EMPTY).as_str())
}

/// The manifest, and the parts of it that the store keeps.
fn shortened(
    id: &Digest,
    bytes: &[u8],
    mut fields: Map<String, Value>,
    artifact_type: &str,
    files: &[ArtifactFile],
) -> Result<Document> {
    if let Some(Value::Array(layers)) = fields.get_mut("layers") {
        layers.retain(|layer| {
            let digest = layer.get("digest").and_then(Value::as_str);
            let mut files = files.iter().map(|file| file.blob.digest.as_str());
            files.any(|kept| Some(kept) == digest)
        });
    }
    // The entry refers to something that the archive does not have.
    fields.remove("subject");
    fields.insert("artifactType".to_owned(), artifact_type.into());
    let config =
        json!({"mediaType": EMPTY_TYPE, "digest": Digest::sha256(EMPTY), "size": EMPTY.len()});
    fields.insert("config".to_owned(), config);
    let annotations = annotations(Some(bytes), Some(id), None);
    fields.insert("annotations".to_owned(), json!(annotations));
    let bytes = serde_json::to_vec(&fields).map_err(|e| Error::internal(e.to_string()))?;
    Ok(Document {
        digest: Digest::sha256(&bytes),
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TITLE: &str = "org.opencontainers.image.title";

    fn manifest(config: &[u8], has_name: bool) -> Vec<u8> {
        let layer = |content: &[u8], name: Option<&str>| {
            json!({
                "mediaType": "text/plain", "digest": Digest::sha256(content), "size": content.len(),
                "annotations": name.map(|name| json!({TITLE: name})),
            })
        };
        let manifest = json!({
            "schemaVersion": 2, "mediaType": super::super::documents::MANIFEST,
            "config": {"mediaType": "x/y", "digest": Digest::sha256(config), "size": config.len()},
            "layers": [layer(b"1", Some("f")), layer(b"2", has_name.then_some("g"))],
        });
        manifest.to_string().into_bytes()
    }

    #[test]
    fn a_whole_artifact_keeps_its_digest_and_another_names_only_what_is_kept() {
        let whole = manifest(EMPTY, true);
        let id = Digest::sha256(&whole);
        let read_as_it_is = read(&id, whole.clone()).expect("an artifact");
        assert_eq!(read_as_it_is.manifest.digest, id);
        assert_eq!(read_as_it_is.manifest.bytes, whole);
        for partial in [manifest(b"{\"a\":1}", true), manifest(EMPTY, false)] {
            let id = Digest::sha256(&partial);
            let found = read(&id, partial).expect("an artifact");
            let value: Value = serde_json::from_slice(&found.manifest.bytes).expect("JSON");
            let layers = value["layers"].as_array().expect("layers");
            assert_eq!(layers.len(), found.files.len());
            assert_eq!(value["artifactType"], "x/y");
            assert_eq!(value["config"]["mediaType"], EMPTY_TYPE);
            let annotations = value["annotations"].as_object().expect("annotations");
            assert!(annotations.values().any(|digest| *digest == id.as_str()));
            // What is left out once is all.
            let digest = found.manifest.digest;
            let again = read(&digest, found.manifest.bytes).expect("again");
            assert_eq!(again.manifest.digest, digest);
        }
    }
}
