//! Keys wrapped as JSON Web Encryption (RFC 7516) for RSA keys: RSA-OAEP and RSA-OAEP-256 with AES-GCM.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead;
use rsa::Oaep;
use rsa::rand_core::OsRng;
use serde::Deserialize;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::private_keys::PrivateKeys;
use crate::json;

/// The JSON serialisation, with one recipient or several (RFC 7516, 7.2).
#[derive(Deserialize)]
struct Jwe {
    #[serde(default)]
    protected: String,
    #[serde(default)]
    unprotected: Map<String, Value>,
    #[serde(default)]
    header: Map<String, Value>,
    #[serde(default)]
    encrypted_key: Option<String>,
    #[serde(default)]
    recipients: Vec<Recipient>,
    #[serde(default)]
    aad: Option<String>,
    iv: String,
    ciphertext: String,
    tag: String,
}

#[derive(Deserialize)]
struct Recipient {
    #[serde(default)]
    header: Map<String, Value>,
    #[serde(default)]
    encrypted_key: String,
}

/// The most recipients that are tried.
const MAX_RECIPIENTS: usize = 64;

type Unwrapped<T> = Result<T, String>;

/// Decrypts a JWE with the first key that fits.
pub(super) fn unwrap(bytes: &[u8], keys: &PrivateKeys) -> Unwrapped<Zeroizing<Vec<u8>>> {
    let jwe: Jwe = json::from_slice(bytes).map_err(|_| "jwe: not a JWE in JSON".to_owned())?;
    let protected = decode(&jwe.protected)?;
    let protected: Map<String, Value> = match protected.as_slice() {
        [] => Map::new(),
        bytes => json::from_slice(bytes).map_err(|_| "jwe: not a header".to_owned())?,
    };
    let flat = jwe.encrypted_key.as_ref().map(|key| Recipient {
        header: jwe.header.clone(),
        encrypted_key: key.clone(),
    });
    let mut unsupported = None;
    let all = flat.iter().chain(&jwe.recipients);
    for recipient in all.take(MAX_RECIPIENTS) {
        let all = [&protected, &jwe.unprotected, &recipient.header];
        let header = |name: &str| all.iter().find_map(|part| part.get(name)?.as_str());
        if ["zip", "crit"]
            .iter()
            .any(|name| all.iter().any(|part| part.contains_key(*name)))
        {
            return Err("jwe: compression and critical extensions are not supported".to_owned());
        }
        let encryption = match header("enc") {
            Some("A256GCM") => &aead::AES_256_GCM,
            Some("A128GCM") => &aead::AES_128_GCM,
            other => {
                let other: String = other.unwrap_or_default().chars().take(20).collect();
                return Err(format!(
                    "jwe: encryption {other:?} is not supported, only A256GCM and A128GCM"
                ));
            }
        };
        let padding = match header("alg") {
            Some("RSA-OAEP") => Oaep::new::<sha1::Sha1>,
            Some("RSA-OAEP-256") => Oaep::new::<sha2::Sha256>,
            other => {
                unsupported = Some(
                    other
                        .unwrap_or_default()
                        .chars()
                        .take(20)
                        .collect::<String>(),
                );
                continue;
            }
        };
        let wrapped = decode(&recipient.encrypted_key)?;
        for key in &keys.rsa {
            // Blinded, so that the time says less about the key.
            let Ok(secret) = key.decrypt_blinded(&mut OsRng, padding(), &wrapped) else {
                continue;
            };
            let secret = Zeroizing::new(secret);
            if let Ok(content) = jwe.open(encryption, &secret) {
                return Ok(content);
            }
        }
    }
    Err(refusal(keys, unsupported))
}

impl Jwe {
    fn open(&self, with: &'static aead::Algorithm, key: &[u8]) -> Unwrapped<Zeroizing<Vec<u8>>> {
        let key = aead::UnboundKey::new(with, key).map_err(wrong_key)?;
        let nonce =
            aead::Nonce::try_assume_unique_for_key(&decode(&self.iv)?).map_err(wrong_key)?;
        let mut authenticated = self.protected.clone();
        if let Some(more) = &self.aad {
            authenticated.push('.');
            authenticated.push_str(more);
        }
        let mut content = Zeroizing::new(decode(&self.ciphertext)?);
        content.extend_from_slice(&decode(&self.tag)?);
        let length = aead::LessSafeKey::new(key)
            .open_in_place(nonce, aead::Aad::from(authenticated), &mut content)
            .map_err(wrong_key)?
            .len();
        content.truncate(length);
        Ok(content)
    }
}

fn wrong_key(_: ring::error::Unspecified) -> String {
    "jwe: wrong key".to_owned()
}

fn refusal(keys: &PrivateKeys, unsupported: Option<String>) -> String {
    let mut text = match keys.rsa.len() {
        0 => "jwe: there is no private key of RSA".to_owned(),
        1 => "jwe: the private key does not fit".to_owned(),
        count => format!("jwe: none of {count} private keys fits"),
    };
    if keys.unusable > 0 {
        let count = keys.unusable;
        text.push_str(&format!(
            " ({count} more cannot be used: only those of RSA without a password can)"
        ));
    }
    if let Some(algorithm) = unsupported {
        text.push_str(&format!(
            "; a recipient has the algorithm {algorithm:?}, which is not supported: only RSA-OAEP and RSA-OAEP-256 are"
        ));
    }
    text
}

fn decode(text: &str) -> Unwrapped<Vec<u8>> {
    let decoded = URL_SAFE_NO_PAD.decode(text);
    decoded.map_err(|_| "jwe: not base64url".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: &str) -> String {
        unwrap(json.as_bytes(), &PrivateKeys::default()).expect_err("refused")
    }

    /// `{"alg": ..., "enc": ...}` as a protected header.
    fn with(header: &str) -> String {
        let protected = URL_SAFE_NO_PAD.encode(header);
        format!(
            r#"{{"protected": "{protected}", "encrypted_key": "AA", "iv": "AA", "ciphertext": "AA", "tag": "AA"}}"#
        )
    }

    #[test]
    fn what_is_not_supported_is_named() {
        for (header, part) in [
            (
                r#"{"alg": "RSA-OAEP", "enc": "A256GCM"}"#,
                "no private key of RSA",
            ),
            (
                r#"{"alg": "ECDH-ES+A256KW", "enc": "A256GCM"}"#,
                "ECDH-ES+A256KW",
            ),
            (
                r#"{"alg": "RSA-OAEP", "enc": "A128CBC-HS256"}"#,
                "A128CBC-HS256",
            ),
            (
                r#"{"alg": "RSA-OAEP", "enc": "A256GCM", "zip": "DEF"}"#,
                "compression",
            ),
            (
                r#"{"alg": "RSA-OAEP", "enc": "A256GCM", "crit": ["x"]}"#,
                "extensions",
            ),
        ] {
            let reason = refused(&with(header));
            assert!(reason.contains(part), "{reason}");
        }
        assert!(refused("{").contains("not a JWE"));
        assert!(refused(&with("[")).contains("not a header"));
    }
}
