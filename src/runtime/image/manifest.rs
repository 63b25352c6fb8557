//! Manifests and indexes, of the OCI and of Docker, as far as they are needed. Unknown fields are nobody's concern.

use criscope_linux::rootfs::MAX_LAYERS;
use serde::Deserialize;

use super::digest::Digest;
use super::error::{Error, Result};
use super::image_config::few_by_key;
use super::platform::{Offered, Platform};

/// The largest manifest or index. Registries refuse to store larger ones (OCI distribution: "at least 4 megabytes").
pub(super) const MAX_MANIFEST: u64 = 4 << 20;
/// The largest image configuration.
pub(super) const MAX_CONFIG: u64 = 8 << 20;
/// An index may lead to an index, but not for ever.
pub(super) const MAX_DEPTH: usize = 4;

/// What a registry is told that we understand.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json";

const CONFIGS: [&str; 2] = [
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
];

/// Content by its digest.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: Digest,
    pub(super) size: u64,
    #[serde(default)]
    pub(super) platform: Option<Offered>,
    #[serde(default, deserialize_with = "few_by_key")]
    pub(super) annotations: std::collections::BTreeMap<String, String>,
}

/// What a manifest turned out to be.
#[derive(Debug)]
pub(super) enum Manifest {
    /// One image.
    Image(ImageManifest),
    /// A choice of images.
    Index(Vec<Descriptor>),
}

/// One image: its configuration, and its layers from the bottom up.
#[derive(Clone, Debug)]
pub(super) struct ImageManifest {
    pub(super) config: Descriptor,
    pub(super) layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    #[serde(default)]
    schema_version: u32,
    #[serde(default)]
    media_type: String,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
}

impl Manifest {
    /// Reads one. `kind` is the media type under which it came, or empty.
    pub(super) fn parse(bytes: &[u8], kind: &str) -> Result<Self> {
        let invalid = |reason: String| Error::invalid("manifest", reason);
        let raw: Raw = serde_json::from_slice(bytes).map_err(|e| invalid(e.to_string()))?;
        if raw.schema_version == 1 {
            return Err(invalid(
                "schema 1 of Docker is not supported: push the image again".to_owned(),
            ));
        }
        let (is_index, parsed) = match (raw.manifests, raw.config, raw.layers) {
            (Some(manifests), None, None) => (true, Self::Index(manifests)),
            (None, Some(config), Some(layers)) => (false, Self::Image(image(config, layers)?)),
            // Both, and two readers could see two images (CVE-2021-41190).
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

/// What a media type promises; `None` if it says nothing, like `application/json`.
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

fn image(config: Descriptor, layers: Vec<Descriptor>) -> Result<ImageManifest> {
    let kind = config.media_type.as_str();
    if !kind.is_empty() && !CONFIGS.contains(&kind) {
        let kind: String = kind.chars().take(100).collect();
        let reason = format!("not an image to run: its configuration is of type {kind}");
        return Err(Error::invalid("manifest", reason));
    }
    if layers.len() > MAX_LAYERS {
        let reason = format!(
            "{} layers, at most {MAX_LAYERS} can be stacked",
            layers.len()
        );
        return Err(Error::invalid("manifest", reason));
    }
    for layer in &layers {
        if layer.media_type.contains("encrypted") {
            let reason = format!("layer {} is encrypted", layer.digest);
            return Err(Error::invalid("manifest", reason));
        }
    }
    Ok(ImageManifest { config, layers })
}

/// The best for this platform. What has no platform is taken only if nothing else fits: its configuration will tell.
pub(super) fn choose<'a>(
    what: &str,
    manifests: &'a [Descriptor],
    platform: &Platform,
) -> Result<&'a Descriptor> {
    let fitting = manifests.iter().filter_map(|descriptor| {
        let offered = descriptor.platform.as_ref()?;
        Some((platform.fits(offered)?, descriptor))
    });
    // The first of those that fit equally well.
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
    let some: Vec<_> = all.take(20).map(Offered::to_string).collect();
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
    fn what_cannot_be_an_image_is_refused() {
        let config = descriptor(CONFIGS[0], None);
        let helm = descriptor("application/vnd.cncf.helm.config.v1+json", None);
        let many = vec![config.clone(); MAX_LAYERS + 1];
        for wrong in [
            serde_json::json!({}),
            serde_json::json!([]),
            serde_json::json!({"schemaVersion": 1, "fsLayers": []}),
            serde_json::json!({"config": config, "layers": [], "manifests": []}),
            serde_json::json!({"config": helm, "layers": []}),
            serde_json::json!({"config": config, "layers": many}),
            serde_json::json!({"config": {"digest": "sha256:12", "size": 1}, "layers": []}),
            serde_json::json!({"config": config, "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip+encrypted", None)]}),
        ] {
            assert!(parse(&wrong, "").is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_platform_is_chosen() {
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
