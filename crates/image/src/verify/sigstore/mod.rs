//! Signatures as cosign makes them: a document ("simple signing") that names an image and the digest of its manifest, signed
//! with a key or a certificate, and possibly recorded in a transparency log.
//!
//! The `sigstore` crate is not used: it brings an OpenID client, a registry client and a TUF client, while all that is needed
//! here is to check signatures, for which `rustls-webpki` is in the tree for TLS.

mod certificates;
mod der;
mod fetch;
mod key;
mod rekor;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub(super) use self::certificates::{Authority, Identities};
use self::fetch::BUNDLE;
pub(super) use self::key::PublicKey;
use super::evidence::Signature;
use super::payload;
use crate::digest::Digest;
use crate::verify::evidence::VerifyResult;

/// The media type of the signed document.
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The `type` of the signed document.
const PAYLOAD_TYPE: &str = "cosign container image signature";
/// Annotations of a signature: itself in base64, its certificate and the chain of that (PEM), and the entry of the log.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
const CHAIN: &str = "dev.sigstore.cosign/chain";
const LOG_ENTRY: &str = "dev.sigstore.cosign/bundle";

/// Who is trusted to sign. With `logs`, one of these keys must have signed a log entry of the signature.
pub(super) enum Trust {
    Keys {
        keys: Vec<PublicKey>,
        logs: Option<Vec<PublicKey>>,
    },
    Certificates {
        authority: Authority,
        logs: Option<Vec<PublicKey>>,
    },
}

/// Checks that a trusted signer has signed this manifest, and returns the image name that was signed with it.
pub(super) fn check(
    signature: &Signature,
    manifest: &Digest,
    trust: &Trust,
) -> VerifyResult<String> {
    if signature.media_type.starts_with(BUNDLE) {
        return Err(
            "its signature is a sigstore bundle, as cosign 3 makes by default, which names no image: \
             sign it with --new-bundle-format=false"
                .to_owned(),
        );
    }
    if signature.media_type != PAYLOAD {
        return Err("an attachment that is not a signature".to_owned());
    }
    let annotation = |key: &str| {
        let found = signature.annotations.get(key).map(String::as_str);
        found.ok_or_else(|| format!("a signature without the annotation {key}"))
    };
    let payload = signature.payload();
    let text = annotation(SIGNATURE)?;
    let raw = STANDARD
        .decode(text)
        .map_err(|_| "a signature that is not base64")?;
    match trust {
        Trust::Keys { keys, logs } => {
            let key = keys.iter().find(|key| key.verify(&payload, &raw));
            let key = key.ok_or("a signature that is not by a trusted key")?;
            if let Some(logs) = logs {
                rekor::check(logs, annotation(LOG_ENTRY)?, key.der(), &raw, &payload)?;
            }
        }
        Trust::Certificates { authority, logs } => {
            let leaf = certificates::single(annotation(CERTIFICATE)?)?;
            let chain = annotation(CHAIN).unwrap_or_default();
            // A certificate of Fulcio is valid for minutes: what counts is when the log has seen the signature.
            let at = match logs {
                Some(logs) => {
                    let entry = annotation(LOG_ENTRY)?;
                    Some(rekor::check(logs, entry, &leaf, &raw, &payload)?)
                }
                None => None,
            };
            authority.verify(&leaf, chain, at, &payload, &raw)?;
        }
    }
    payload::read(&payload, PAYLOAD_TYPE, manifest)
}

#[cfg(test)]
mod tests;
