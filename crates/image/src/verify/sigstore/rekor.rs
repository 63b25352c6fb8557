//! Signed entries of the transparency log Rekor: proof that the log has seen a signature, and when. Checked without the log,
//! with its public key.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::UnixTime;
use rustls_pki_types::pem::{SectionKind, from_buf};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::key::PublicKey;
use crate::verify::evidence::VerifyResult;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Bundle {
    signed_entry_timestamp: String,
    payload: Entry,
}

/// The entry that the log has signed. Serialised it is in canonical form (RFC 8785): the fields are in the order of their names, and no
/// text of an entry that a log signs has characters to escape.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Entry {
    body: String,
    integrated_time: i64,
    #[serde(rename = "logID")]
    log_id: String,
    log_index: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    kind: String,
    api_version: String,
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    data: Data,
    signature: EntrySignature,
}

#[derive(Deserialize)]
struct Data {
    hash: Hash,
}

#[derive(Deserialize)]
struct Hash {
    algorithm: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntrySignature {
    content: String,
    public_key: EntryKey,
}

#[derive(Deserialize)]
struct EntryKey {
    content: String,
}

/// Checks that a log has recorded a signature of the payload by this key or certificate (DER), and returns when.
pub(super) fn check(
    logs: &[PublicKey],
    bundle: &str,
    signer: &[u8],
    signature: &[u8],
    payload: &[u8],
) -> VerifyResult<UnixTime> {
    let bundle: Bundle = serde_json::from_str(bundle)
        .map_err(|e| bad_entry(&format!("that cannot be read: {e}")))?;
    let entry = bundle.payload;
    let signed = serde_json::to_vec(&entry).map_err(|e| bad_entry(&e.to_string()))?;
    let timestamp = decoded(&bundle.signed_entry_timestamp)?;
    if !logs.iter().any(|log| log.verify(&signed, &timestamp)) {
        return Err(bad_entry("that is not by a trusted log"));
    }
    let body: Body = serde_json::from_slice(&decoded(&entry.body)?)
        .map_err(|e| bad_entry(&format!("that cannot be read: {e}")))?;
    if (body.kind.as_str(), body.api_version.as_str()) != ("hashedrekord", "0.0.1") {
        return Err(bad_entry("that is not a hashedrekord of version 0.0.1"));
    }
    let recorded = body.spec.signature;
    let pem = decoded(&recorded.public_key.content)?;
    let section: Option<(SectionKind, Vec<u8>)> =
        from_buf(&mut pem.as_slice()).map_err(|_| bad_entry("without a key in PEM"))?;
    if section.is_none_or(|(_, der)| der != signer) {
        return Err(bad_entry("of another signer"));
    }
    if decoded(&recorded.content)? != signature {
        return Err(bad_entry("of another signature"));
    }
    let hash = body.spec.data.hash;
    let sum = Sha256::digest(payload);
    let hex: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    if hash.algorithm != "sha256" || !hash.value.eq_ignore_ascii_case(&hex) {
        return Err(bad_entry("of another document"));
    }
    let seconds =
        u64::try_from(entry.integrated_time).map_err(|_| bad_entry("from before 1970"))?;
    Ok(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
}

fn decoded(text: &str) -> VerifyResult<Vec<u8>> {
    let decoded = STANDARD.decode(text);
    decoded.map_err(|_| "a log entry that is not base64".to_owned())
}

fn bad_entry(what: &str) -> String {
    format!("a log entry {what}")
}
