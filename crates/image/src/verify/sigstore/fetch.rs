//! Where cosign stores signatures: next to the image, under the tag `sha256-DIGEST.sig`; or, in its mode for OCI 1.1, as
//! referrers of the image.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::descriptor::Descriptor;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::json;
use crate::manifest::{FetchedManifest, MAX_MANIFEST};
use crate::registry::Repository;
use crate::verify::evidence::Signature;

/// How the media types of sigstore bundles begin. A bundle says which manifest is signed, and not under which name, which every
/// `signedIdentity` compares; containers/image does not read them either.
pub(super) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";
/// The most signatures of one image, and the largest signed document.
const MAX_SIGNATURES: usize = 128;
const MAX_PAYLOAD: u64 = 64 << 10;
/// The type of a referrer that holds signatures.
const SIGNATURES: &str = "application/vnd.dev.cosign.artifact.sig.v1+json";

/// A manifest with signatures as layers, or an index of referrers. As in a manifest, unknown fields are ignored.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Document {
    layers: Vec<Descriptor>,
    manifests: Vec<Referrer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Referrer {
    digest: Digest,
    #[serde(default)]
    artifact_type: String,
}

fn parse(bytes: &[u8]) -> Result<Document> {
    json::from_slice(bytes).map_err(|e| Error::invalid("signatures", e.to_string()))
}

impl Repository {
    /// The signatures of a manifest or an index. Nothing of them is checked but their size.
    ///
    /// # Errors
    ///
    /// The errors of the registry, except that there are none; [`Error::TooLarge`], [`Error::Invalid`].
    pub(crate) async fn signatures(&self, manifest: &Digest) -> Result<Vec<Signature>> {
        let mut found = Vec::new();
        let tag = manifest.as_str().replacen(':', "-", 1);
        if let Some(attached) = missing(self.manifest(&format!("{tag}.sig"), None).await)? {
            self.read_signatures(&attached, &mut found).await?;
        }
        if !found.is_empty() {
            return Ok(found);
        }
        let referrers = match missing(self.referrers(manifest, MAX_MANIFEST).await)? {
            Some(referrers) => Some(referrers),
            // The index that takes the place of the endpoint at older registries (distribution-spec, "Referrers Tag Schema").
            None => missing(self.manifest(&tag, None).await)?.map(|index| index.bytes),
        };
        let index = parse(&referrers.unwrap_or_else(|| b"{}".to_vec()))?;
        let all = index.manifests.iter();
        // Only that they are there: see `super::check`.
        let bundles = all.filter(|referrer| referrer.artifact_type.starts_with(BUNDLE));
        found.extend(
            bundles.take(1).map(|referrer| {
                Signature::new(referrer.artifact_type.clone(), b"", BTreeMap::new())
            }),
        );
        let signed = index.manifests.into_iter();
        let signed = signed.filter(|referrer| referrer.artifact_type == SIGNATURES);
        for referrer in signed.take(MAX_SIGNATURES) {
            let fetched = self.manifest(referrer.digest.as_str(), Some(&referrer.digest));
            self.read_signatures(&fetched.await?, &mut found).await?;
        }
        Ok(found)
    }

    async fn read_signatures(
        &self,
        manifest: &FetchedManifest,
        found: &mut Vec<Signature>,
    ) -> Result<()> {
        for layer in parse(&manifest.bytes)?.layers {
            if found.len() >= MAX_SIGNATURES {
                let what = format!("signatures in {}", manifest.digest);
                return Err(Error::too_large(
                    what,
                    format!("more than {MAX_SIGNATURES}"),
                ));
            }
            let payload = self.small("signed document", &layer, MAX_PAYLOAD).await?;
            let annotations: BTreeMap<_, _> = layer.annotations.into_iter().collect();
            found.push(Signature::new(layer.media_type, &payload, annotations));
        }
        Ok(())
    }
}

/// `None` if it does not exist.
fn missing<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
