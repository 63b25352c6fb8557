//! Who pulls. Nothing here has a `Debug` that shows a secret.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

/// What a registry is shown.
#[derive(Clone, Eq, Hash, PartialEq)]
pub enum Credentials {
    /// A user and a password.
    Basic {
        /// The user.
        username: String,
        /// The password.
        password: String,
    },
    /// A refresh token that the registry's token service turns into an access token (OAuth2).
    IdentityToken(String),
    /// An access token that is sent as it is.
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

/// The fields of the CRI's `AuthConfig`, which are those of Docker.
#[derive(Clone, Default)]
pub struct AuthFields {
    /// A user.
    pub username: String,
    /// Their password.
    pub password: String,
    /// `user:password` in base64; counts if there is no user.
    pub auth: String,
    /// The registry that this is for; empty for the one that is pulled from.
    pub server_address: String,
    /// See [`Credentials::IdentityToken`].
    pub identity_token: String,
    /// See [`Credentials::RegistryToken`].
    pub registry_token: String,
}

impl fmt::Debug for AuthFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthFields(..)")
    }
}

impl AuthFields {
    /// What they amount to. `None` if they are empty, or hold nothing that can be read.
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

/// `user:password` in base64, with or without padding; Docker pads the password with zero bytes.
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

/// Credentials of a request, and the registry that they are for if the request says so.
#[derive(Clone, Debug)]
pub struct Auth {
    /// What is shown.
    pub credentials: Credentials,
    /// Host and port; `None`: the registry in the image's name, and none of its mirrors.
    pub server: Option<String>,
}

impl Auth {
    /// From the fields of a request; `None` if they hold nothing.
    #[must_use]
    pub fn from_fields(fields: &AuthFields) -> Option<Self> {
        let credentials = fields.credentials()?;
        let server = host_of(&fields.server_address);
        Some(Self {
            credentials,
            server,
        })
    }

    /// For the registry in the image's name.
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

/// Host and port of an address in any of the spellings that Docker's files have; Docker's own registry has many names.
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
    fn the_fields_of_a_request() {
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
        fields.auth = "%%%".to_owned();
        assert_eq!(fields.credentials(), None);
        fields.server_address = "https://index.docker.io/v1/".to_owned();
        fields.username = "u".to_owned();
        let auth = Auth::from_fields(&fields).expect("credentials");
        assert_eq!(auth.server.as_deref(), Some("docker.io"));
        assert!(!format!("{auth:?} {fields:?}").contains("u\""));
    }
}
