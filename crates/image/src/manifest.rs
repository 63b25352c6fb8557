//! Manifests and indexes of the OCI image-spec and of Docker. Unknown fields are ignored.

use criscope_linux::rootfs::MAX_LAYERS;
use serde::Deserialize;

use super::artifact::ArtifactManifest;
use super::digest::Digest;
use super::error::{Error, Result};
use super::image_config::bounded_map;
use super::platform::{DeclaredPlatform, Platform};

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

const CONFIGS: [&str; 2] = [
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
];

/// A reference to content by its digest (image-spec, "Descriptors").
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The media type; empty if the document has none.
    #[serde(default)]
    pub media_type: String,
    /// The digest of the content.
    pub digest: Digest,
    /// Bytes of the content.
    pub size: u64,
    /// The platform of an image in an index.
    #[serde(default)]
    pub platform: Option<DeclaredPlatform>,
    /// Annotations, at most 10,000.
    #[serde(default, deserialize_with = "bounded_map")]
    pub annotations: std::collections::BTreeMap<String, String>,
}

/// A document that a reference resolves to.
#[derive(Clone, Debug)]
pub enum Manifest {
    /// The manifest of one image.
    Image(ImageManifest),
    /// An index: manifests for several platforms.
    Index(Vec<Descriptor>),
    /// The manifest of an artifact, which is not an image to run.
    Artifact(ArtifactManifest),
}

/// The manifest of one image.
#[derive(Clone, Debug)]
pub struct ImageManifest {
    /// Its configuration, whose digest is the ID of the image.
    pub config: Descriptor,
    /// Its layers from the base up.
    pub layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    #[serde(default)]
    schema_version: u32,
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    artifact_type: String,
    config: Option<Descriptor>,
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
        let invalid = |reason: String| Error::invalid("manifest", reason);
        let raw: Raw = serde_json::from_slice(bytes).map_err(|e| invalid(e.to_string()))?;
        if raw.schema_version == 1 {
            return Err(invalid(
                "schema 1 of Docker is not supported: push the image again".to_owned(),
            ));
        }
        let (is_index, parsed) = match (raw.manifests, raw.config, raw.layers) {
            (Some(manifests), None, None) => (true, Self::Index(manifests)),
            (None, Some(config), Some(layers)) if is_image(&config) => {
                (false, Self::Image(image(config, layers)?))
            }
            (None, Some(config), layers) if !is_image(&config) => {
                let kind = [raw.artifact_type, config.media_type];
                let kind = kind.into_iter().find(|kind| !kind.is_empty());
                let layers = layers.unwrap_or_default();
                let artifact = ArtifactManifest::new(kind.unwrap_or_default(), layers)?;
                (false, Self::Artifact(artifact))
            }
            // Two readers could see different images in such a document (CVE-2021-41190).
            (Some(_), _, _) => return Err(invalid("an index and an image at once".to_owned())),
            _ => return Err(invalid("neither an index nor an image".to_owned())),
        };
        for kind in [kind, raw.media_type.as_str()] {
            if expects_index(kind).is_some_and(|expected| expected != is_index) {
                let kind: String = kind.chars().take(100).collect();
                return Err(invalid(format!(
                    "its content is not the {kind} that it claims to be"
                )));
            }
        }
        Ok(parsed)
    }
}

/// Returns whether a media type is that of an index; `None` if it does not tell, such as `application/json`.
fn expects_index(kind: &str) -> Option<bool> {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    match kind {
        "application/vnd.oci.image.index.v1+json"
        | "application/vnd.docker.distribution.manifest.list.v2+json" => Some(true),
        "application/vnd.oci.image.manifest.v1+json"
        | "application/vnd.docker.distribution.manifest.v2+json" => Some(false),
        _ => None,
    }
}

/// Returns whether a configuration is that of an image to run.
fn is_image(config: &Descriptor) -> bool {
    let kind = config.media_type.as_str();
    kind.is_empty() || CONFIGS.contains(&kind)
}

fn image(config: Descriptor, layers: Vec<Descriptor>) -> Result<ImageManifest> {
    if layers.len() > MAX_LAYERS {
        let reason = format!(
            "{} layers, at most {MAX_LAYERS} can be stacked",
            layers.len()
        );
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

/// Chooses the best manifest for a platform. One without a platform is chosen only if no other fits; its configuration is
/// checked later.
pub(super) fn choose<'a>(
    what: &str,
    manifests: &'a [Descriptor],
    platform: &Platform,
) -> Result<&'a Descriptor> {
    let fitting = manifests.iter().filter_map(|descriptor| {
        let offered = descriptor.platform.as_ref()?;
        Some((platform.fits(offered)?, descriptor))
    });
    // The first one if several fit equally well.
    let best = fitting.rev().max_by_key(|(fits, _)| *fits).map(|(_, d)| d);
    let silent = || manifests.iter().find(|d| d.platform.is_none());
    best.or_else(silent).ok_or_else(|| Error::NoPlatform {
        what: what.to_owned(),
        wanted: platform.to_string(),
        offered: offers(manifests),
    })
}

fn offers(manifests: &[Descriptor]) -> String {
    let all = manifests.iter().filter_map(|d| d.platform.as_ref());
    let some: Vec<_> = all.take(20).map(DeclaredPlatform::to_string).collect();
    if some.is_empty() {
        "nothing".to_owned()
    } else {
        some.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(kind: &str, platform: Option<&str>) -> serde_json::Value {
        let mut value = serde_json::json!({
            "mediaType": kind, "digest": Digest::of(kind.as_bytes()), "size": 3,
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
        let many = vec![config.clone(); MAX_LAYERS + 1];
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
    fn the_best_platform_is_chosen() {
        let index = serde_json::json!({"manifests": [
            descriptor("a", Some("unknown/unknown")),
            descriptor("b", Some("linux/amd64")),
            descriptor("c", Some("linux/arm64")),
            descriptor("d", Some("linux/amd64")),
        ]});
        let Ok(Manifest::Index(manifests)) = parse(&index, "") else {
            panic!("not an index");
        };
        let mut platform = Platform::host();
        platform.architecture = "amd64".to_owned();
        platform.variant.clear();
        assert_eq!(
            choose("x", &manifests, &platform).expect("one").media_type,
            "b"
        );
        platform.architecture = "s390x".to_owned();
        let error = choose("x", &manifests, &platform)
            .expect_err("none")
            .to_string();
        assert!(
            error.contains("linux/s390x") && error.contains("linux/arm64"),
            "{error}"
        );
    }
}
