//! Credentials. No `Debug` shows a secret.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::Deserialize;

/// The credentials for a registry.
#[derive(Clone, Eq, Hash, PartialEq)]
pub enum Credentials {
    /// User and password.
    Basic {
        /// The user.
        username: String,
        /// The password.
        password: String,
    },
    /// A refresh token, which the token service exchanges for an access token (OAuth2).
    IdentityToken(String),
    /// An access token, which is sent unchanged.
    RegistryToken(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Basic { .. } => "Basic(..)",
            Self::IdentityToken(_) => "IdentityToken(..)",
            Self::RegistryToken(_) => "RegistryToken(..)",
        })
    }
}

/// The fields of Docker's `AuthConfig`, which are also those of the CRI. All may be empty.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct AuthFields {
    /// The user.
    pub username: String,
    /// The password.
    pub password: String,
    /// `user:password` in base64, used if `username` is empty.
    pub auth: String,
    /// The registry; empty means the registry of the reference.
    #[serde(skip)]
    pub server_address: String,
    /// See [`Credentials::IdentityToken`].
    #[serde(rename = "identitytoken")]
    pub identity_token: String,
    /// See [`Credentials::RegistryToken`].
    #[serde(rename = "registrytoken")]
    pub registry_token: String,
}

impl fmt::Debug for AuthFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthFields(..)")
    }
}

impl AuthFields {
    /// Returns whether `auth` is needed, but is not `user:password` in base64: such a pull would be an anonymous one.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        !self.auth.is_empty() && self.credentials().is_none()
    }

    /// Returns the credentials in these fields, or `None` if they are empty or malformed.
    #[must_use]
    pub fn credentials(&self) -> Option<Credentials> {
        if !self.identity_token.is_empty() {
            return Some(Credentials::IdentityToken(self.identity_token.clone()));
        }
        if !self.username.is_empty() {
            return Some(Credentials::Basic {
                username: self.username.clone(),
                password: self.password.clone(),
            });
        }
        if !self.auth.is_empty() {
            return decode(&self.auth);
        }
        if !self.registry_token.is_empty() {
            return Some(Credentials::RegistryToken(self.registry_token.clone()));
        }
        None
    }
}

/// Decodes `user:password` in base64, with or without padding. Docker pads the password with NUL bytes.
pub(super) fn decode(auth: &str) -> Option<Credentials> {
    let auth = auth.trim();
    let bytes = STANDARD
        .decode(auth)
        .or_else(|_| STANDARD_NO_PAD.decode(auth))
        .ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (username, password) = text.split_once(':')?;
    Some(Credentials::Basic {
        username: username.to_owned(),
        password: password.trim_matches('\0').to_owned(),
    })
}

/// Credentials of a pull, and the registry they are for.
#[derive(Clone, Debug)]
pub struct Auth {
    /// The credentials.
    pub credentials: Credentials,
    /// Host and port; `None` for the registry of the reference, without its mirrors.
    pub server: Option<String>,
}

impl Auth {
    /// From fields; `None` if they are empty or malformed.
    #[must_use]
    pub fn from_fields(fields: &AuthFields) -> Option<Self> {
        let credentials = fields.credentials()?;
        let server = host_of(&fields.server_address);
        Some(Self {
            credentials,
            server,
        })
    }

    /// User and password for the registry of the reference.
    #[must_use]
    pub fn basic(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            credentials: Credentials::Basic {
                username: username.into(),
                password: password.into(),
            },
            server: None,
        }
    }
}

/// Host and port of an address in any form found in Docker's files. Docker Hub has several names.
pub(super) fn host_of(address: &str) -> Option<String> {
    let rest = address
        .strip_prefix("https://")
        .or_else(|| address.strip_prefix("http://"))
        .unwrap_or(address);
    let host = rest.split('/').next().unwrap_or_default();
    match host {
        "" => None,
        "index.docker.io" | "registry-1.docker.io" | "registry.hub.docker.com" => {
            Some("docker.io".to_owned())
        }
        host => Some(host.to_ascii_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_fields_become_credentials() {
        let mut fields = AuthFields::default();
        assert!(Auth::from_fields(&fields).is_none());
        fields.registry_token = "t".to_owned();
        assert_eq!(
            fields.credentials(),
            Some(Credentials::RegistryToken("t".to_owned()))
        );
        fields.auth = STANDARD.encode("me:se:cret\0\0");
        let expected = Auth::basic("me", "se:cret").credentials;
        assert_eq!(fields.credentials(), Some(expected));
        assert!(!fields.is_malformed());
        for wrong in ["%%%", &STANDARD.encode("no colon")] {
            fields.auth = wrong.to_owned();
            assert_eq!(fields.credentials(), None);
            assert!(fields.is_malformed());
        }
        fields.server_address = "https://index.docker.io/v1/".to_owned();
        fields.username = "u".to_owned();
        let auth = Auth::from_fields(&fields).expect("credentials");
        assert_eq!(auth.server.as_deref(), Some("docker.io"));
        assert!(!format!("{auth:?} {fields:?}").contains("u\""));
    }
}
