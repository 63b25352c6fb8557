//! A token bucket: a burst of events, then a limited rate.

use std::time::Duration;

use tokio::time::Instant;

/// Upper bound of a burst.
pub const MAX_BURST: u32 = 20;

/// Interval after which one more event is allowed.
const REFILL_INTERVAL: Duration = Duration::from_secs(2);

/// A token bucket.
#[derive(Debug)]
pub struct TokenBucket {
    left: u32,
    /// Time of the last refill.
    filled: Instant,
}

impl TokenBucket {
    /// A full bucket.
    pub const fn new(now: Instant) -> Self {
        Self {
            left: MAX_BURST,
            filled: now,
        }
    }

    /// Takes a token; `false` if there is none.
    pub fn take(&mut self, now: Instant) -> bool {
        let passed = now.duration_since(self.filled).as_millis() / REFILL_INTERVAL.as_millis();
        let more = u32::try_from(passed).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(more).min(MAX_BURST);
        self.filled = match self.left {
            MAX_BURST => now,
            _ => self.filled + REFILL_INTERVAL * more,
        };
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_one_every_two_seconds() {
        let begin = Instant::now();
        let mut bucket = TokenBucket::new(begin);
        assert_eq!((0..100).filter(|_| bucket.take(begin)).count(), 20);
        let at = |ms| begin + Duration::from_millis(ms);
        assert!(!bucket.take(at(1_999)));
        assert!(bucket.take(at(2_000)) && !bucket.take(at(2_001)));
        assert!(bucket.take(at(4_000)) && !bucket.take(at(4_001)));
        let later = at(3_600_000);
        assert_eq!((0..100).filter(|_| bucket.take(later)).count(), 20);
    }
}
