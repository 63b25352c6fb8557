//! Tokens: the only credential of a session. Random, for one use, for a minute, and not more than so many at a time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::time::Instant;

/// Bytes of randomness: 128 bit, which nobody guesses within a minute.
const RANDOM_BYTES: usize = 16;

/// Why there is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoToken {
    #[error("too many sessions were asked for and not begun")]
    Full,
    #[error("the system gives no random numbers")]
    Random,
}

/// Why a token is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotTaken {
    /// Never given out, used before, or swept.
    Unknown,
    /// Too old.
    Expired,
}

struct Entry<T> {
    value: T,
    expires: Instant,
}

/// What has been asked for and not yet begun.
pub(super) struct Tokens<T> {
    entries: Mutex<HashMap<String, Entry<T>>>,
    random: SystemRandom,
    limit: usize,
    lifetime: Duration,
}

impl<T> Tokens<T> {
    pub(super) fn new(limit: usize, lifetime: Duration) -> Self {
        Self {
            entries: Mutex::default(),
            random: SystemRandom::new(),
            limit,
            lifetime,
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry<T>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps `value` for one use. Expired entries must have been swept before.
    pub(super) fn issue(&self, value: T) -> Result<String, NoToken> {
        let mut bytes = [0; RANDOM_BYTES];
        self.random.fill(&mut bytes).map_err(|_| NoToken::Random)?;
        let token = URL_SAFE_NO_PAD.encode(bytes);
        let mut entries = self.entries();
        if entries.len() >= self.limit {
            return Err(NoToken::Full);
        }
        let expires = Instant::now() + self.lifetime;
        entries.insert(token.clone(), Entry { value, expires });
        Ok(token)
    }

    /// Uses a token up.
    pub(super) fn take(&self, token: &str) -> Result<T, NotTaken> {
        let entry = self.entries().remove(token).ok_or(NotTaken::Unknown)?;
        if entry.expires <= Instant::now() {
            return Err(NotTaken::Expired);
        }
        Ok(entry.value)
    }

    /// Forgets what has expired; returns how many those were.
    pub(super) fn sweep(&self) -> usize {
        let now = Instant::now();
        let mut entries = self.entries();
        let before = entries.len();
        entries.retain(|_, entry| entry.expires > now);
        before - entries.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_token_is_for_one_use() {
        let tokens = Tokens::new(10, MINUTE);
        let token = tokens.issue(7).expect("room");
        assert_eq!(token.len(), 22, "128 bit");
        assert_eq!(tokens.take(&token), Ok(7));
        assert_eq!(tokens.take(&token), Err(NotTaken::Unknown));
        assert_eq!(tokens.take(""), Err(NotTaken::Unknown));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_expires() {
        let tokens = Tokens::new(10, MINUTE);
        let first = tokens.issue(()).expect("room");
        tokio::time::advance(Duration::from_secs(59)).await;
        let second = tokens.issue(()).expect("room");
        assert_eq!(tokens.sweep(), 0);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(tokens.take(&first), Err(NotTaken::Expired));
        assert_eq!(tokens.take(&second), Ok(()));
        tokens.issue(()).expect("room");
        tokio::time::advance(MINUTE).await;
        assert_eq!(tokens.sweep(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_not_more_than_the_limit_and_no_two_alike() {
        let tokens = Tokens::new(1000, MINUTE);
        let issued: HashSet<_> = (0..1000).map(|i| tokens.issue(i).expect("room")).collect();
        assert_eq!(issued.len(), 1000);
        assert_eq!(tokens.issue(1000), Err(NoToken::Full));
        let one = issued.iter().next().expect("one");
        assert!(tokens.take(one).is_ok());
        assert!(tokens.issue(1000).is_ok());
    }
}
