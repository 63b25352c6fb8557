//! Checks the password or the token of a client.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::web_config::WebConfig;

/// Most remembered passwords.
const MAX_REMEMBERED_PASSWORDS: usize = 64;

/// The hash for unknown users, so that an answer takes as long as for known ones. No password has this hash.
const UNKNOWN_USER: &str = "$2b$10$abcdefghijklmnopqrstuuCVJq9D0Zz4uM9mEkzN1BqWcqdZ1zB8K";

type Sha256Digest = [u8; 32];

/// State that all connections share. One password is hashed at a time, because a hash takes tens of milliseconds of a processor.
/// Correct passwords are remembered by their SHA-256.
#[derive(Clone, Debug)]
pub(super) struct PasswordAttempts {
    hashing: Arc<Semaphore>,
    right: Arc<Mutex<HashSet<Sha256Digest>>>,
}

impl Default for PasswordAttempts {
    fn default() -> Self {
        Self {
            hashing: Arc::new(Semaphore::new(1)),
            right: Arc::default(),
        }
    }
}

/// Who is admitted on one connection.
#[derive(Clone)]
pub(super) struct ConnectionGuard {
    /// True if the client's certificate has an allowed name.
    pub(super) is_allowed: bool,
    users: Arc<BTreeMap<String, String>>,
    tokens: Arc<[Sha256Digest]>,
    attempts: PasswordAttempts,
}

impl ConnectionGuard {
    pub(super) fn new(config: &WebConfig, attempts: PasswordAttempts) -> Self {
        Self {
            is_allowed: true,
            users: Arc::new(config.users.clone()),
            tokens: config.tokens.iter().map(|token| sha256(&[token])).collect(),
            attempts,
        }
    }

    async fn admits(&self, headers: &HeaderMap) -> bool {
        if self.users.is_empty() && self.tokens.is_empty() {
            return true;
        }
        let header = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let Some((scheme, credentials)) = header.and_then(|value| value.split_once(' ')) else {
            return false;
        };
        let credentials = credentials.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            // Hashes: their comparison says nothing of how much of a token is right.
            return self.tokens.contains(&sha256(&[credentials]));
        }
        let is_basic = scheme.eq_ignore_ascii_case("basic") && !self.users.is_empty();
        let decoded = BASE64_STANDARD.decode(credentials).ok();
        let pair = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
        match pair.as_deref().and_then(|pair| pair.split_once(':')) {
            Some((user, password)) if is_basic => self.knows(user, password).await,
            _ => false,
        }
    }

    /// Checks the password of a user.
    async fn knows(&self, user: &str, password: &str) -> bool {
        let hash = self.users.get(user);
        let exists = hash.is_some();
        let hash = hash.map_or(UNKNOWN_USER, String::as_str).to_owned();
        let key = sha256(&[user, password, &hash]);
        let right = &self.attempts.right;
        if right
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&key)
        {
            return true;
        }
        let Ok(_turn) = self.attempts.hashing.acquire().await else {
            return false;
        };
        let password = password.to_owned();
        let verified = spawn_blocking(move || bcrypt::verify(password, &hash).unwrap_or(false));
        let is_right = verified.await.unwrap_or(false) && exists;
        if is_right {
            let mut right = right.lock().unwrap_or_else(PoisonError::into_inner);
            if right.len() >= MAX_REMEMBERED_PASSWORDS {
                right.clear();
            }
            right.insert(key);
        }
        is_right
    }
}

fn sha256(parts: &[&str]) -> Sha256Digest {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// Refuses requests of clients that are not admitted.
pub(super) async fn check(
    State(guard): State<ConnectionGuard>,
    request: Request,
    next: Next,
) -> Response {
    if !guard.is_allowed {
        let text = "the client certificate has none of the allowed names\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    if guard.admits(request.headers()).await {
        return next.run(request).await;
    }
    let scheme = if guard.users.is_empty() {
        "Bearer"
    } else {
        "Basic realm=\"criscope\""
    };
    let text = "a password or a token is needed\n";
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, scheme)], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> ConnectionGuard {
        let hash = bcrypt::hash("hunter2", 4).expect("a hash");
        let config = WebConfig {
            tls: None,
            users: [("scraper".to_owned(), hash)].into(),
            tokens: vec!["one".to_owned(), "two".to_owned()],
        };
        ConnectionGuard::new(&config, PasswordAttempts::default())
    }

    fn headers(value: &str) -> HeaderMap {
        [(AUTHORIZATION, value.parse().expect("a value"))]
            .into_iter()
            .collect()
    }

    fn basic(pair: &str) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(pair))
    }

    #[tokio::test]
    async fn a_right_password_or_token_is_admitted() {
        let guard = guard();
        for right in ["Bearer one", "bearer two", &basic("scraper:hunter2")] {
            // A password is hashed the first time only.
            assert!(guard.admits(&headers(right)).await, "{right}");
            assert!(guard.admits(&headers(right)).await, "{right}");
        }
        let wrong = [
            "Bearer",
            "Bearer ",
            "Bearer three",
            "Basic one",
            "Digest one",
            &basic("scraper:hunter3"),
            &basic("unknown:hunter2"),
            &basic("unknown:"),
            &basic("hunter2"),
        ];
        for wrong in wrong {
            assert!(!guard.admits(&headers(wrong)).await, "{wrong}");
        }
        assert!(!guard.admits(&HeaderMap::new()).await);
    }

    #[test]
    fn a_user_who_does_not_exist_is_hashed_too() {
        assert!(matches!(bcrypt::verify("x", UNKNOWN_USER), Ok(false)));
    }

    #[tokio::test]
    async fn a_changed_password_ends_the_old_one() {
        let mut guard = guard();
        let old = headers(&basic("scraper:hunter2"));
        assert!(guard.admits(&old).await);
        let hash = bcrypt::hash("another", 4).expect("a hash");
        guard.users = Arc::new([("scraper".to_owned(), hash)].into());
        assert!(!guard.admits(&old).await);
    }
}
