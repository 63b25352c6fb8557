//! Hides the credentials of a request where a server repeats them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::credentials::Credentials;

/// Replaces a secret.
const HIDDEN: &str = "<redacted>";
/// Shorter secrets would hide parts of ordinary words.
const SHORTEST_SECRET: usize = 4;

/// A text without these secrets.
pub(super) fn without(mut text: String, secrets: &[String]) -> String {
    for secret in secrets {
        if secret.len() >= SHORTEST_SECRET && text.contains(secret.as_str()) {
            text = text.replace(secret.as_str(), HIDDEN);
        }
    }
    text
}

impl Credentials {
    /// The secrets of these credentials, also as they are sent. A user is none.
    pub(super) fn secrets(&self) -> Vec<String> {
        match self {
            Self::Basic { username, password } => {
                vec![
                    password.clone(),
                    STANDARD.encode(format!("{username}:{password}")),
                ]
            }
            Self::IdentityToken(token) | Self::RegistryToken(token) => vec![token.clone()],
        }
    }
}
