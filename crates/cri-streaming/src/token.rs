//! Tokens: the only credential of a session. They are random, valid once and for a minute, and limited in number.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::time::Instant;

use super::error::UrlError;
use super::observe::{SessionKind, SessionObservers, TokenOutcome};

/// Bytes of randomness: 128 bits, which cannot be guessed within a minute.
const TOKEN_LEN: usize = 16;

struct TokenEntry<T> {
    value: T,
    expires: Instant,
}

/// Sessions that were requested and have not started. The outcome of each token is reported to the observers.
pub struct SessionTokens<T> {
    entries: Mutex<HashMap<String, TokenEntry<T>>>,
    random: SystemRandom,
    limit: usize,
    lifetime: Duration,
    kind: fn(&T) -> SessionKind,
    observers: SessionObservers,
}

impl<T> std::fmt::Debug for SessionTokens<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl<T> SessionTokens<T> {
    /// Creates a store of at most `limit` tokens, each valid for `lifetime`. `kind` maps a value to its session kind.
    pub fn new(
        limit: usize,
        lifetime: Duration,
        kind: fn(&T) -> SessionKind,
        observers: SessionObservers,
    ) -> Self {
        Self {
            entries: Mutex::default(),
            random: SystemRandom::new(),
            limit,
            lifetime,
            kind,
            observers,
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, TokenEntry<T>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, outcome: TokenOutcome, n: u64) {
        self.observers.each(|observer| observer.token(outcome, n));
    }

    /// Stores `value` for one use. Returns the path of its URL: the session kind and the token.
    ///
    /// # Errors
    /// If too many tokens are valid, or there are no random numbers.
    pub fn issue(&self, value: T) -> Result<String, UrlError> {
        self.sweep();
        let issued = self.keep(value);
        match issued {
            Ok(_) => self.notify(TokenOutcome::Issued, 1),
            Err(UrlError::Full) => self.notify(TokenOutcome::Full, 1),
            Err(_) => {}
        }
        issued
    }

    fn keep(&self, value: T) -> Result<String, UrlError> {
        let mut bytes = [0; TOKEN_LEN];
        self.random.fill(&mut bytes).map_err(|_| UrlError::Random)?;
        let token = URL_SAFE_NO_PAD.encode(bytes);
        let path = format!("/{}/{token}", (self.kind)(&value).name());
        let mut entries = self.entries();
        if entries.len() >= self.limit {
            return Err(UrlError::Full);
        }
        let expires = Instant::now() + self.lifetime;
        entries.insert(token, TokenEntry { value, expires });
        Ok(path)
    }

    /// Consumes the token in a path; `None` if it is not valid.
    pub fn take(&self, path: &str) -> Option<T> {
        let (kind, token) = path.strip_prefix('/')?.split_once('/')?;
        let entry = self.entries().remove(token);
        let outcome = match entry {
            Some(entry) if entry.expires <= Instant::now() => TokenOutcome::Expired,
            Some(entry) if (self.kind)(&entry.value).name() == kind => {
                self.notify(TokenOutcome::Used, 1);
                return Some(entry.value);
            }
            // The token is for another kind of session, or it was never issued, is used, or has expired and was removed.
            Some(_) | None => TokenOutcome::Refused,
        };
        self.notify(outcome, 1);
        None
    }

    /// Returns whether no session was requested that has not started.
    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// Removes expired tokens.
    pub fn sweep(&self) {
        let now = Instant::now();
        let mut entries = self.entries();
        let before = entries.len();
        entries.retain(|_, entry| entry.expires > now);
        let expired = before - entries.len();
        drop(entries);
        if expired > 0 {
            self.notify(TokenOutcome::Expired, expired as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use super::super::observe::SessionObserver;
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// The outcomes of tokens, in order.
    #[derive(Default)]
    struct Outcomes(Mutex<Vec<(TokenOutcome, u64)>>);

    impl SessionObserver for Outcomes {
        fn token(&self, outcome: TokenOutcome, n: u64) {
            self.0.lock().expect("no panic").push((outcome, n));
        }
    }

    impl Outcomes {
        fn take(&self) -> Vec<(TokenOutcome, u64)> {
            std::mem::take(&mut *self.0.lock().expect("no panic"))
        }
    }

    /// A store of numbers, all of the kind exec.
    fn tokens(limit: usize) -> (SessionTokens<u32>, Arc<Outcomes>) {
        let outcomes = Arc::new(Outcomes::default());
        let observers: Vec<Arc<dyn SessionObserver>> = vec![outcomes.clone()];
        let tokens = SessionTokens::new(
            limit,
            MINUTE,
            |_| SessionKind::Exec,
            SessionObservers(observers.into()),
        );
        (tokens, outcomes)
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_can_be_used_once() {
        let (tokens, outcomes) = tokens(10);
        let path = tokens.issue(7).expect("issued");
        assert_eq!(path.len(), "/exec/".len() + 22, "128 bit");
        assert_eq!(tokens.take(&path), Some(7));
        assert_eq!(tokens.take(&path), None);
        assert_eq!(tokens.take("/exec/"), None);
        let refused = (TokenOutcome::Refused, 1);
        let all = [
            (TokenOutcome::Issued, 1),
            (TokenOutcome::Used, 1),
            refused,
            refused,
        ];
        assert_eq!(outcomes.take(), all);
        // A path without a kind and a token is not reported.
        assert_eq!((tokens.take(""), tokens.take("/")), (None, None));
        assert!(outcomes.take().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_valid_for_one_kind_of_session() {
        let (tokens, outcomes) = tokens(10);
        let path = tokens.issue(7).expect("issued");
        let other = path.replace("exec", "attach");
        assert_eq!(tokens.take(&other), None);
        assert_eq!(tokens.take(&path), None, "used up");
        let refused = (TokenOutcome::Refused, 1);
        assert_eq!(
            outcomes.take(),
            [(TokenOutcome::Issued, 1), refused, refused]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_expires() {
        let (tokens, outcomes) = tokens(10);
        let first = tokens.issue(1).expect("issued");
        tokio::time::advance(Duration::from_secs(59)).await;
        let second = tokens.issue(2).expect("issued");
        tokens.sweep();
        outcomes.take();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(tokens.take(&first), None);
        assert_eq!(tokens.take(&second), Some(2));
        assert_eq!(
            outcomes.take(),
            [(TokenOutcome::Expired, 1), (TokenOutcome::Used, 1)]
        );
        for number in [3, 4] {
            tokens.issue(number).expect("issued");
        }
        outcomes.take();
        tokio::time::advance(MINUTE).await;
        tokens.sweep();
        assert_eq!(outcomes.take(), [(TokenOutcome::Expired, 2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_are_limited_in_number_and_unique() {
        let (tokens, outcomes) = tokens(1000);
        let issued: HashSet<_> = (0..1000)
            .map(|i| tokens.issue(i).expect("issued"))
            .collect();
        assert_eq!(issued.len(), 1000);
        outcomes.take();
        assert_eq!(tokens.issue(1000), Err(UrlError::Full));
        assert_eq!(outcomes.take(), [(TokenOutcome::Full, 1)]);
        let one = issued.iter().next().expect("one");
        assert!(tokens.take(one).is_some());
        assert!(tokens.issue(1000).is_ok());
        // Expired tokens do not count.
        tokio::time::advance(MINUTE).await;
        assert!(tokens.issue(1001).is_ok());
    }
}
