//! The requirement `signedBy`: signatures with GPG keys.

use std::path::PathBuf;

use pgp::types::Timestamp;
use serde::Deserialize;

use super::identity::Identity;
use super::json::Base64;
use super::keys::{Source, any_accepted, sources};
use crate::reference::Reference;
use crate::verify::evidence::{Evidence, VerifyResult};
use crate::verify::simple_signing::{self, Keyring};

/// Keys of GnuPG, and one of them must have signed.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Raw")]
pub(super) struct SignedBy {
    key_type: KeyType,
    keys: Vec<Source>,
    identity: Identity,
}

/// The kinds that containers/image knows. Like this program, it implements only the first.
#[derive(Debug, Deserialize)]
enum KeyType {
    #[serde(rename = "GPGKeys")]
    Gpg,
    #[serde(rename = "signedByGPGKeys")]
    SignedByGpg,
    X509Certificates,
    #[serde(rename = "signedByX509CAs")]
    SignedByX509,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Raw {
    key_type: KeyType,
    key_path: Option<PathBuf>,
    key_paths: Option<Vec<PathBuf>>,
    key_data: Option<Base64>,
    signed_identity: Option<Identity>,
}

impl TryFrom<Raw> for SignedBy {
    type Error = String;

    fn try_from(raw: Raw) -> VerifyResult<Self> {
        let keys = sources(raw.key_path, raw.key_paths, raw.key_data, None)?;
        Ok(Self {
            key_type: raw.key_type,
            keys: keys.ok_or("signedBy needs keyPath, keyPaths or keyData")?,
            identity: raw.signed_identity.unwrap_or_default(),
        })
    }
}

impl SignedBy {
    /// Reads all keys. One that is unusable makes the requirement unusable, so that it is noticed before it is needed.
    fn keyring(&self) -> VerifyResult<Keyring> {
        if !matches!(self.key_type, KeyType::Gpg) {
            let kind = &self.key_type;
            return Err(format!(
                "the policy requires signedBy with keys of the type {kind:?}, which is not supported"
            ));
        }
        let mut keyring = Keyring::default();
        for source in &self.keys {
            keyring.add(&source.read()?).map_err(|e| match source {
                Source::Path(path) => format!("key {}: {e}", path.display()),
                Source::Data(_) => format!("keyData: {e}"),
            })?;
        }
        Ok(keyring)
    }

    pub(super) fn judge(&self, reference: &Reference, evidence: &[Evidence]) -> VerifyResult<()> {
        let (keyring, now) = (self.keyring()?, Timestamp::now());
        any_accepted(evidence, true, |signature, manifest| {
            let name = simple_signing::check(signature, manifest, &keyring, now)?;
            self.identity.check(reference, &name)
        })
    }
}
