//! Manifests and indexes of the OCI image-spec and of Docker. Unknown fields are ignored.

use std::collections::BTreeMap;

use criscope_linux::rootfs::MAX_LISTED_LAYERS;
use serde::Deserialize;

use super::artifact::ArtifactManifest;
use super::descriptor::Descriptor;
use super::digest::Digest;
use super::error::{Error, Result};
use super::image_config::is_image_config;
use super::json::{self, bounded_map};

/// Maximum size of a manifest or index. Registries must accept 4 MiB (OCI distribution), and rarely accept more.
pub(super) const MAX_MANIFEST: u64 = 4 << 20;
/// Maximum size of an image configuration.
pub(super) const MAX_CONFIG: u64 = 8 << 20;
/// Maximum nesting of indexes.
pub(super) const MAX_DEPTH: usize = 4;

/// The `Accept` header of requests for manifests.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json";

/// The media type of Docker's manifests.
pub(super) const DOCKER: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// The media types of configurations of images to run: those in use, and that of drafts of the image-spec.
const CONFIGS: [&str; 3] = [
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
    "application/vnd.oci.image.serialization.config.v1+json",
];

/// A document that a reference resolves to.
#[derive(Clone, Debug)]
pub enum Manifest {
    /// The manifest of one image.
    Image(ImageManifest),
    /// An index: manifests for several platforms.
    Index(Vec<Descriptor>),
    /// The manifest of an artifact, which is not an image to run.
    Artifact(ArtifactManifest),
    /// An image or an artifact: the content of its configuration tells.
    Undeclared(UndeclaredManifest),
}

/// A manifest whose configuration has a media type that says nothing, such as `application/octet-stream`: Docker 1.10 and many
/// build tools wrote that for images, and other tools for artifacts.
#[derive(Clone, Debug)]
pub struct UndeclaredManifest {
    /// The configuration.
    pub config: Descriptor,
    layers: Vec<Descriptor>,
}

impl UndeclaredManifest {
    /// The image or the artifact, by the content of the configuration: that of an image has a list of layers.
    ///
    /// # Errors
    ///
    /// The errors of [`Manifest::parse`].
    pub fn decide(self, config: &[u8]) -> Result<Manifest> {
        if is_image_config(config) {
            return image(self.config, self.layers).map(Manifest::Image);
        }
        self.artifact()
    }

    /// The artifact, for a configuration that is too large for an image.
    pub(super) fn artifact(self) -> Result<Manifest> {
        let artifact = ArtifactManifest::new(self.config.media_type, self.layers)?;
        Ok(Manifest::Artifact(artifact))
    }
}

/// The manifest of one image.
#[derive(Clone, Debug)]
pub struct ImageManifest {
    /// The configuration, whose digest is the ID of the image.
    pub config: Descriptor,
    /// The layers from the base up.
    pub layers: Vec<Descriptor>,
}

/// A manifest or index as received.
#[derive(Clone, Debug)]
pub struct FetchedManifest {
    /// The document.
    pub bytes: Vec<u8>,
    /// The `Content-Type` of the response.
    pub media_type: String,
    /// The digest of the document.
    pub digest: Digest,
}

impl FetchedManifest {
    /// The descriptor.
    pub(crate) fn descriptor(&self) -> Descriptor {
        Descriptor {
            media_type: self.media_type.clone(),
            size: self.bytes.len() as u64,
            ..Descriptor::from_digest(self.digest.clone())
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Raw {
    schema_version: u32,
    media_type: String,
    artifact_type: String,
    config: Option<Descriptor>,
    #[serde(deserialize_with = "listed")]
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
}

impl Manifest {
    /// Parses a manifest or index. `kind` is the media type of the response, or empty.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it is not an image, both an image and an index, or does not match `kind`.
    pub fn parse(bytes: &[u8], kind: &str) -> Result<Self> {
        let raw: Raw =
            json::from_slice(bytes).map_err(|e| Error::invalid("manifest", e.to_string()))?;
        if raw.schema_version == 1 {
            return Err(Error::invalid(
                "manifest",
                "schema 1 of Docker is not supported: push the image again",
            ));
        }
        let (is_index, parsed) = match (raw.manifests, raw.config, raw.layers) {
            (Some(manifests), None, None) => (true, Self::Index(manifests)),
            (None, Some(config), Some(layers)) if is_image(&config) => {
                (false, Self::Image(image(config, layers)?))
            }
            (None, Some(config), Some(layers))
                if raw.artifact_type.is_empty() && says_nothing(&config) =>
            {
                (
                    false,
                    Self::Undeclared(UndeclaredManifest { config, layers }),
                )
            }
            (None, Some(config), layers) if !is_image(&config) => {
                let kind = [raw.artifact_type, config.media_type];
                let kind = kind.into_iter().find(|kind| !kind.is_empty());
                let layers = layers.unwrap_or_default();
                let artifact = ArtifactManifest::new(kind.unwrap_or_default(), layers)?;
                (false, Self::Artifact(artifact))
            }
            // Two readers could see different images in such a document (CVE-2021-41190).
            (Some(_), _, _) => {
                return Err(Error::invalid("manifest", "an index and an image at once"));
            }
            _ => return Err(Error::invalid("manifest", "neither an index nor an image")),
        };
        for kind in [kind, raw.media_type.as_str()] {
            if expects_index(kind).is_some_and(|expected| expected != is_index) {
                let kind: String = kind.chars().take(100).collect();
                return Err(Error::invalid(
                    "manifest",
                    format!("its content is not the {kind} that it claims to be"),
                ));
            }
        }
        Ok(parsed)
    }
}

/// The annotations of a manifest. Docker's have none, and neither has what cannot be read.
pub(super) fn annotations(manifest: &[u8]) -> BTreeMap<String, String> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Annotated {
        media_type: String,
        #[serde(deserialize_with = "bounded_map")]
        annotations: BTreeMap<String, String>,
    }
    let found: Annotated = json::from_slice(manifest).unwrap_or_default();
    if found.media_type == DOCKER {
        return BTreeMap::new();
    }
    found.annotations
}

/// Returns whether a media type is that of an index; `None` if it does not tell, such as `application/json`.
fn expects_index(kind: &str) -> Option<bool> {
    match essence(kind).to_ascii_lowercase().as_str() {
        "application/vnd.oci.image.index.v1+json"
        | "application/vnd.docker.distribution.manifest.list.v2+json" => Some(true),
        "application/vnd.oci.image.manifest.v1+json"
        | "application/vnd.docker.distribution.manifest.v2+json" => Some(false),
        _ => None,
    }
}

/// Returns whether a configuration is that of an image to run.
fn is_image(config: &Descriptor) -> bool {
    let kind = essence(&config.media_type);
    kind.is_empty() || CONFIGS.iter().any(|known| kind.eq_ignore_ascii_case(known))
}

/// Returns whether the media type of a configuration does not tell its purpose: an author who defines a type of artifact gives it a name in
/// the tree of vendors, or another one that is not for all (RFC 6838, 3).
fn says_nothing(config: &Descriptor) -> bool {
    let kind = essence(&config.media_type).to_ascii_lowercase();
    let subtype = kind.split_once('/').map_or("", |(_, subtype)| subtype);
    let trees = ["vnd.", "prs.", "x."];
    !trees.iter().any(|tree| subtype.starts_with(tree))
}

/// A media type without its parameters.
fn essence(kind: &str) -> &str {
    kind.split(';').next().unwrap_or_default().trim()
}

/// A list that the document has, also if it is `null`: Go writes that for an empty one.
fn listed<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<Vec<Descriptor>>, D::Error> {
    Vec::deserialize(deserializer).map(Some)
}

fn image(config: Descriptor, layers: Vec<Descriptor>) -> Result<ImageManifest> {
    // How many of them are different, the configuration says.
    if layers.len() > MAX_LISTED_LAYERS {
        let reason = format!("{} layers, at most {MAX_LISTED_LAYERS}", layers.len());
        return Err(Error::invalid("manifest", reason));
    }
    if let Some(layer) = layers.iter().find(|layer| is_wasm(layer)) {
        let kind: String = layer.media_type.chars().take(100).collect();
        let reason = format!(
            "its layer of the type {kind} is a WebAssembly module, which runs only as a file in an archive of files"
        );
        return Err(Error::invalid("manifest", reason));
    }
    Ok(ImageManifest { config, layers })
}

/// Returns whether a layer is a module itself, as runwasi's shims take from containerd's store of content.
fn is_wasm(layer: &Descriptor) -> bool {
    let kind = layer.media_type.as_str();
    kind == "application/wasm" || kind.ends_with("+wasm")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(kind: &str, platform: Option<&str>) -> serde_json::Value {
        let mut value = serde_json::json!({
            "mediaType": kind, "digest": Digest::sha256(kind.as_bytes()), "size": 3,
        });
        if let Some((os, arch)) = platform.and_then(|p| p.split_once('/')) {
            value["platform"] = serde_json::json!({"os": os, "architecture": arch});
        }
        value
    }

    fn parse(value: &serde_json::Value, kind: &str) -> Result<Manifest> {
        Manifest::parse(value.to_string().as_bytes(), kind)
    }

    #[test]
    fn an_image_and_an_index() {
        let image = serde_json::json!({"schemaVersion": 2, "config": descriptor(CONFIGS[1], None), "layers": []});
        assert!(matches!(
            parse(&image, "application/json"),
            Ok(Manifest::Image(_))
        ));
        assert!(parse(&image, "application/vnd.oci.image.index.v1+json").is_err());
        let index = serde_json::json!({"schemaVersion": 2, "manifests": []});
        assert!(matches!(parse(&index, ""), Ok(Manifest::Index(_))));
    }

    #[test]
    fn what_is_no_image_to_run_is_an_artifact() {
        let helm = descriptor("application/vnd.cncf.helm.config.v1+json", None);
        let mut file = descriptor("text/plain", None);
        file["annotations"] = serde_json::json!({"org.opencontainers.image.title": "values.yaml"});
        let value = serde_json::json!({"config": helm, "layers": [file, descriptor("x", None)]});
        let Ok(Manifest::Artifact(artifact)) = parse(&value, "") else {
            panic!("not an artifact");
        };
        assert_eq!(
            artifact.artifact_type,
            "application/vnd.cncf.helm.config.v1+json"
        );
        assert_eq!(artifact.files.len(), 1);
        assert_eq!(artifact.files[0].path, "values.yaml");
    }

    #[test]
    fn a_module_as_a_layer_is_told() {
        for kind in [
            "application/wasm",
            "application/vnd.wasm.content.layer.v1+wasm",
        ] {
            let layers = [descriptor(kind, None)];
            let value =
                serde_json::json!({"config": descriptor(CONFIGS[0], None), "layers": layers});
            let refused = parse(&value, "").expect_err("no archive").to_string();
            assert!(refused.contains("WebAssembly"), "{refused}");
        }
    }

    #[test]
    fn invalid_manifests_are_rejected() {
        let config = descriptor(CONFIGS[0], None);
        let many = vec![config.clone(); MAX_LISTED_LAYERS + 1];
        for wrong in [
            serde_json::json!({}),
            serde_json::json!([]),
            serde_json::json!({"schemaVersion": 1, "fsLayers": []}),
            serde_json::json!({"config": config, "layers": [], "manifests": []}),
            serde_json::json!({"layers": []}),
            serde_json::json!({"config": config}),
            serde_json::json!({"config": config, "layers": many}),
            serde_json::json!({"config": {"digest": "sha256:12", "size": 1}, "layers": []}),
        ] {
            assert!(parse(&wrong, "").is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_media_type_that_says_nothing_leaves_the_decision_to_the_content() {
        let of_image = br#"{"rootfs": {"type": "layers", "diff_ids": []}}"#;
        for kind in [
            "application/octet-stream",
            "application/json",
            "text/plain; charset=utf-8",
            "x",
        ] {
            let value = serde_json::json!({"config": descriptor(kind, None), "layers": []});
            let Ok(Manifest::Undeclared(manifest)) = parse(&value, "") else {
                panic!("{kind}");
            };
            assert!(matches!(
                manifest.clone().decide(of_image),
                Ok(Manifest::Image(_))
            ));
            let decided = manifest.decide(b"{}");
            assert!(
                matches!(decided, Ok(Manifest::Artifact(found)) if found.artifact_type == kind)
            );
            let mut named = value.clone();
            named["artifactType"] = "application/vnd.example.model".into();
            assert!(
                matches!(parse(&named, ""), Ok(Manifest::Artifact(_))),
                "{kind}"
            );
        }
        for kind in [
            "",
            "APPLICATION/vnd.oci.image.config.v1+JSON",
            "application/vnd.docker.container.image.v1+json;v=1",
        ] {
            let value = serde_json::json!({"config": descriptor(kind, None), "layers": []});
            assert!(
                matches!(parse(&value, ""), Ok(Manifest::Image(_))),
                "{kind}"
            );
        }
        let vendor = descriptor("application/vnd.docker.plugin.v1+json", None);
        let value = serde_json::json!({"config": vendor, "layers": []});
        assert!(matches!(parse(&value, ""), Ok(Manifest::Artifact(_))));
    }

    #[test]
    fn null_is_nothing_in_a_manifest() {
        let mut config = descriptor(CONFIGS[0], None);
        config["annotations"] = serde_json::json!({"a": null});
        config["platform"] = serde_json::Value::Null;
        config["urls"] = serde_json::Value::Null;
        let value = serde_json::json!({"schemaVersion": null, "mediaType": null, "Config": config, "layers": [],
            "manifests": null, "annotations": null, "subject": null});
        let Ok(Manifest::Image(image)) = parse(&value, "") else {
            panic!("not an image");
        };
        assert_eq!(image.config.annotations["a"], "");
        // Go writes an empty list like that.
        let value = serde_json::json!({"config": descriptor(CONFIGS[0], None), "layers": null});
        assert!(matches!(parse(&value, ""), Ok(Manifest::Image(image)) if image.layers.is_empty()));
    }
}
