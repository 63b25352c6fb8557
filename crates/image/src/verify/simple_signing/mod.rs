//! Signatures with GPG keys ("simple signing", containers-signature(5)): a document that names an image and the digest of its manifest,
//! in a signed OpenPGP message. The messages are next to registries, in the lookaside stores of `registries.d`.

mod keyring;
mod lookaside;
mod registries_d;

use std::fmt::Display;
use std::io::Read as _;

use pgp::composed::Message;
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{Signature as PgpSignature, SignatureType};
use pgp::types::{Timestamp, VerifyingKey};

pub(super) use self::keyring::Keyring;
pub(super) use self::lookaside::MEDIA_TYPE;
pub(super) use self::registries_d::{RegistriesD, repository_scopes};
use super::evidence::Signature;
use super::payload;
use crate::digest::Digest;
use crate::verify::evidence::VerifyResult;

/// The `type` of the signed document.
const PAYLOAD_TYPE: &str = "atomic container signature";
/// The largest signed document. Compressed messages can be much smaller than their contents.
const MAX_PAYLOAD: u64 = 256 << 10;
/// A message is compressed once, if at all.
const MAX_COMPRESSIONS: usize = 2;

/// Checks that a key of the keyring, which is valid at `now`, has signed this manifest, and returns the image name that was signed
/// with it.
pub(super) fn check(
    signature: &Signature,
    manifest: &Digest,
    keyring: &Keyring,
    now: Timestamp,
) -> VerifyResult<String> {
    let message = signature.payload();
    let document = open(&message, keyring, now)?;
    payload::read(&document, PAYLOAD_TYPE, manifest)
}

/// Returns the document in a signed message.
fn open(message: &[u8], keyring: &Keyring, now: Timestamp) -> VerifyResult<Vec<u8>> {
    let (mut message, _) = Message::from_reader(message).map_err(|e| unreadable(&e))?;
    for _ in 0..MAX_COMPRESSIONS {
        if message.is_compressed() {
            message = message.decompress().map_err(|e| unreadable(&e))?;
        }
    }
    if !message.is_signed() {
        return Err(unreadable(&"it has no signature"));
    }
    let mut document = Vec::new();
    let read = (&mut message).take(MAX_PAYLOAD).read_to_end(&mut document);
    read.map_err(|e| unreadable(&e))?;
    let more = message.read(&mut [0]).map_err(|e| unreadable(&e))?;
    if more > 0 {
        let reason = format!("its document has more than {MAX_PAYLOAD} bytes");
        return Err(unreadable(&reason));
    }
    let Message::Signed { reader, .. } = &message else {
        return Err(unreadable(&"it has no signature"));
    };
    // Which of several would count?
    let (1, Some(made)) = (reader.num_signatures(), reader.signature(0)) else {
        return Err(unreadable(&"it has more than one signature"));
    };
    check_form(made, now)?;
    keyring.signer(made, now, |key: &dyn VerifyingKey| {
        message.verify(key).is_ok()
    })?;
    Ok(document)
}

/// Opens a message with a keyring, for the fuzzer: the length of the keyring in 2 bytes, the keyring, the message.
///
/// # Errors
/// If one of both is not valid.
///
/// # Panics
/// If a document is larger than allowed.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8]) -> VerifyResult<()> {
    /// After the keys of the seeds were made.
    const NOW: u32 = 1_800_000_000;
    let (length, rest) = bytes.split_first_chunk().ok_or("too short")?;
    let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
    let (keys, message) = rest.split_at(length);
    let mut keyring = Keyring::default();
    let added = keyring.add(keys);
    // A message is read independent of the keyring.
    let document = open(message, &keyring, Timestamp::from_secs(NOW));
    let length = document.as_ref().map_or(0, Vec::len);
    assert!(length as u64 <= MAX_PAYLOAD, "{length} bytes");
    added.and(document.map(drop))
}

fn unreadable(reason: &dyn Display) -> String {
    format!("not a signed message: {reason}")
}

fn is_strong(hash: HashAlgorithm) -> bool {
    use HashAlgorithm::{Sha3_256, Sha3_512, Sha256, Sha384, Sha512};
    matches!(hash, Sha256 | Sha384 | Sha512 | Sha3_256 | Sha3_512)
}

/// Checks what a signature says about itself.
fn check_form(made: &PgpSignature, now: Timestamp) -> VerifyResult<()> {
    if !matches!(
        made.typ(),
        Some(SignatureType::Binary | SignatureType::Text)
    ) {
        return Err("a signature that is not one of a document".to_owned());
    }
    if !made.hash_alg().is_some_and(is_strong) {
        return Err("a signature with a hash that can be forged".to_owned());
    }
    let created = made.created().ok_or("a signature without a time")?;
    let lasts = made.signature_expiration_time();
    if lasts.is_some_and(|lasts| keyring::has_ended(created, lasts.as_secs(), now)) {
        return Err("a signature that has expired".to_owned());
    }
    Ok(())
}
