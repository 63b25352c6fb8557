//! How often a request is sent again.

use std::time::Duration;

/// Retries of a silent server: each costs the whole time limit, and a server that did not answer twice hardly answers a third time.
const RETRIES_OF_SILENCE: u32 = 1;
/// Retries while there are other servers to try.
const RETRIES_BEFORE_OTHERS: u32 = 1;

/// A retry may help, after this pause.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retry {
    /// The host's `Retry-After`.
    pub(super) after: Option<Duration>,
    /// Whether the server took too long: a retry may take as long.
    pub(super) is_after_silence: bool,
}

/// The retries that are left of a request to one server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Retries {
    /// After any failure that may be temporary.
    left: u32,
    /// After no answer in time.
    left_of_silence: u32,
}

impl Retries {
    /// At most `most` retries. While there are other servers to try, this one is retried once, and not at all if it is silent.
    pub(super) fn new(most: u32, has_others: bool) -> Self {
        if has_others {
            return Self {
                left: most.min(RETRIES_BEFORE_OTHERS),
                left_of_silence: 0,
            };
        }
        Self {
            left: most,
            left_of_silence: most.min(RETRIES_OF_SILENCE),
        }
    }

    /// The same number of retries, except that silence ends the request.
    pub(super) fn without_silence(self) -> Self {
        Self {
            left_of_silence: 0,
            ..self
        }
    }

    /// Uses up a retry; `false` if none is left.
    pub(super) fn take(&mut self, retry: Retry) -> bool {
        if self.left == 0 || (retry.is_after_silence && self.left_of_silence == 0) {
            return false;
        }
        self.left -= 1;
        self.left_of_silence -= u32::from(retry.is_after_silence);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retries(mut all: Retries, is_after_silence: bool) -> u32 {
        let retry = Retry {
            is_after_silence,
            ..Retry::default()
        };
        (0..).find(|_| !all.take(retry)).unwrap_or_default()
    }

    #[test]
    fn a_silent_server_is_asked_less_often() {
        assert_eq!(retries(Retries::new(4, false), false), 4);
        assert_eq!(retries(Retries::new(4, false), true), 1);
        assert_eq!(retries(Retries::new(4, false).without_silence(), true), 0);
        assert_eq!(retries(Retries::new(4, true), false), 1);
        assert_eq!(retries(Retries::new(4, true), true), 0);
        assert_eq!(retries(Retries::new(0, false), true), 0);
    }
}
