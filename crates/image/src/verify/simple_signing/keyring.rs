//! The keys that may sign, and whether they are valid: as GnuPG judges them, neither the key that has signed nor its primary key may be
//! expired or revoked now, whenever the signature was made.

use crate::verify::evidence::VerifyResult;
use pgp::composed::{Deserializable as _, SignedPublicKey, SignedPublicSubKey};
use pgp::packet::{Signature, SignatureType, SubpacketData};
use pgp::types::{KeyDetails, Tag, Timestamp, VerifyingKey};

const END: &str = "-----END PGP PUBLIC KEY BLOCK-----";
/// The most keys in one file.
const MAX_KEYS: usize = 1000;

/// Trusted keys.
#[derive(Debug, Default)]
pub(crate) struct Keyring(Vec<SignedPublicKey>);

impl Keyring {
    /// Adds the keys of a file, as `gpg --export` writes them, with or without `--armor`. All files of a requirement are trusted alike.
    pub(crate) fn add(&mut self, file: &[u8]) -> VerifyResult<()> {
        let before = self.0.len();
        for block in blocks(file) {
            let (keys, _) =
                SignedPublicKey::from_reader_many(block).map_err(|e| unreadable_key(&e))?;
            for key in keys.take(MAX_KEYS) {
                self.0.push(key.map_err(|e| unreadable_key(&e))?);
            }
        }
        if self.0.len() > before {
            Ok(())
        } else {
            Err("no public key of OpenPGP".to_owned())
        }
    }

    /// Finds the key that has made a signature, and checks that it may.
    pub(super) fn signer(
        &self,
        made: &Signature,
        now: Timestamp,
        verifies: impl Fn(&dyn VerifyingKey) -> bool,
    ) -> VerifyResult<()> {
        let mut reason = "a signature that is not by a trusted key".to_owned();
        for key in &self.0 {
            let primary = &key.primary_key;
            let subkey = key.public_subkeys.iter().find(|sub| verifies(&sub.key));
            let judged = match subkey {
                Some(subkey) => check_subkey(key, subkey, made, now),
                None if verifies(primary) => check_primary(key, made, now),
                None => continue,
            };
            match judged {
                Ok(()) => return Ok(()),
                Err(why) => {
                    reason = format!("a signature by the key {}, {why}", primary.fingerprint());
                }
            }
        }
        Err(reason)
    }
}

/// Several exports in one file.
fn blocks(file: &[u8]) -> Vec<&[u8]> {
    match std::str::from_utf8(file) {
        Ok(text) if text.contains(END) => text
            .split_inclusive(END)
            .filter(|block| block.contains("-----BEGIN"))
            .map(str::as_bytes)
            .collect(),
        _ => vec![file],
    }
}

/// Returns whether a time plus seconds is over. No seconds mean forever.
pub(super) fn has_ended(from: Timestamp, seconds: u32, now: Timestamp) -> bool {
    let end = u64::from(from.as_secs()) + u64::from(seconds);
    seconds > 0 && end <= u64::from(now.as_secs())
}

fn check_primary(key: &SignedPublicKey, made: &Signature, now: Timestamp) -> VerifyResult<()> {
    let bound = check_certificate(key, now)?;
    check_use(&key.primary_key, bound, made)
}

fn check_subkey(
    key: &SignedPublicKey,
    subkey: &SignedPublicSubKey,
    made: &Signature,
    now: Timestamp,
) -> VerifyResult<()> {
    check_certificate(key, now)?;
    let primary = &key.primary_key;
    let all = subkey.signatures.iter();
    let mut valid = all.filter(|sig| sig.verify_subkey_binding(primary, &subkey.key).is_ok());
    let revocation = Some(SignatureType::SubkeyRevocation);
    if valid.clone().any(|sig| sig.typ() == revocation) {
        return Err("whose subkey is revoked".to_owned());
    }
    let bound = newest(valid.by_ref().filter(|sig| sig.typ() != revocation));
    let bound = bound.ok_or("which does not vouch for its subkey")?;
    // Otherwise a key could claim the subkey of another one.
    let back = bound.embedded_signature();
    if !back.is_some_and(|back| {
        back.verify_primary_key_binding(&subkey.key, primary)
            .is_ok()
    }) {
        return Err("whose subkey does not vouch for it".to_owned());
    }
    if is_expired(&subkey.key, bound, now) {
        return Err("whose subkey has expired".to_owned());
    }
    check_use(&subkey.key, bound, made)
}

/// Checks the primary key, and returns the signature by which it describes itself.
fn check_certificate(key: &SignedPublicKey, now: Timestamp) -> VerifyResult<&Signature> {
    let (primary, details) = (&key.primary_key, &key.details);
    let mut revocations = details.revocation_signatures.iter();
    if revocations.any(|sig| sig.verify_key(primary).is_ok()) {
        return Err("which is revoked".to_owned());
    }
    let direct = details.direct_signatures.iter();
    let direct = direct.filter(|sig| sig.verify_key(primary).is_ok());
    let users = details.users.iter().filter_map(|user| {
        let all = user.signatures.iter();
        let mut valid = all.filter(|sig| {
            sig.verify_certification(primary, Tag::UserId, &user.id)
                .is_ok()
        });
        let revocation = Some(SignatureType::CertRevocation);
        if valid.clone().any(|sig| sig.typ() == revocation) {
            None
        } else {
            newest(valid.by_ref())
        }
    });
    let bound = newest(direct.chain(users)).ok_or("which does not vouch for itself")?;
    if is_expired(primary, bound, now) {
        Err("which has expired".to_owned())
    } else {
        Ok(bound)
    }
}

fn unreadable_key(error: &pgp::errors::Error) -> String {
    format!("not a public key of OpenPGP: {error}")
}

fn newest<'a>(signatures: impl Iterator<Item = &'a Signature>) -> Option<&'a Signature> {
    signatures.max_by_key(|sig| sig.created().map(Timestamp::as_secs))
}

fn is_expired(key: &impl KeyDetails, bound: &Signature, now: Timestamp) -> bool {
    let created = key.created_at();
    let bound_at = bound.created().unwrap_or(created);
    let key_lasts = bound.key_expiration_time();
    let signature_lasts = bound.signature_expiration_time();
    key_lasts.is_some_and(|lasts| has_ended(created, lasts.as_secs(), now))
        || signature_lasts.is_some_and(|lasts| has_ended(bound_at, lasts.as_secs(), now))
        || created > now
}

/// Checks that a key may sign documents, and did not exist only after the signature.
fn check_use(key: &impl KeyDetails, bound: &Signature, made: &Signature) -> VerifyResult<()> {
    let mut flags = bound.config().into_iter().flat_map(|config| {
        let hashed = config.hashed_subpackets();
        hashed.filter_map(|packet| match &packet.data {
            SubpacketData::KeyFlags(flags) => Some(flags),
            _ => None,
        })
    });
    // Keys of the nineties say nothing.
    if flags.next().is_some() && !bound.key_flags().sign() {
        return Err("which is not for signatures".to_owned());
    }
    match made.created() {
        Some(at) if at >= key.created_at() => Ok(()),
        _ => Err("which did not exist at the time".to_owned()),
    }
}
