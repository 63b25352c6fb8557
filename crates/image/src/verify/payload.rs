//! The document that is signed ("simple signing"), which cosign has taken over from containers/image.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::digest::Digest;

/// As in containers/image, nothing unknown may be in it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    critical: Critical,
    #[serde(default)]
    #[allow(dead_code)]
    optional: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Critical {
    #[serde(rename = "type")]
    kind: String,
    image: SignedImage,
    identity: SignedIdentity,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignedImage {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignedIdentity {
    #[serde(rename = "docker-reference")]
    reference: String,
}

/// Reads a document once it is known who wrote it: it must be of this kind and for this manifest. Returns the image name in it.
pub(super) fn read(
    document: &[u8],
    kind: &str,
    manifest: &Digest,
) -> std::result::Result<String, String> {
    let signed: Payload = serde_json::from_slice(document)
        .map_err(|e| format!("a signed document that is not one of an image: {e}"))?;
    let critical = signed.critical;
    if critical.kind != kind {
        return Err(format!("a signed document of type {:?}", critical.kind));
    }
    if critical.image.digest != manifest.as_str() {
        return Err(format!(
            "a signature for another manifest, {:?}",
            critical.image.digest
        ));
    }
    Ok(critical.identity.reference)
}
