//! Limits the rate of each log event, so that a storm of errors cannot flood the log: a token bucket per callsite.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tracing::Metadata;

use crate::drops::{DropReason, Drops};

/// Burst size of one event, in lines.
pub(super) const BURST_LINES: u64 = 400;
/// Sustained rate of one event, in lines per second.
pub(super) const LINES_PER_SECOND: u64 = 100;

const LINE_INTERVAL_NANOS: u64 = Duration::from_secs(1).as_nanos() as u64 / LINES_PER_SECOND;
/// Number of buckets, a power of two. Callsites with the same hash share one.
const BUCKET_COUNT: usize = 256;

/// Lock-free token buckets.
#[derive(Debug)]
pub(super) struct LogRateLimit {
    buckets: Box<[TokenBucket]>,
    epoch: Instant,
    drops: Arc<Drops>,
}

/// A token bucket as a "virtual scheduling" clock (ITU-T I.371, generic cell rate algorithm): each line moves the time
/// at which the bucket is full again by one interval.
#[derive(Debug, Default)]
struct TokenBucket {
    full_at: AtomicU64,
    suppressed: AtomicU64,
}

impl TokenBucket {
    fn take(&self, now: u64) -> bool {
        self.full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
                let from = full_at.max(now);
                let has_room = from - now < LINE_INTERVAL_NANOS * BURST_LINES;
                has_room.then(|| from + LINE_INTERVAL_NANOS)
            })
            .is_ok()
    }
}

impl LogRateLimit {
    pub(super) fn new(drops: Arc<Drops>) -> Self {
        Self {
            buckets: std::iter::repeat_with(TokenBucket::default)
                .take(BUCKET_COUNT)
                .collect(),
            epoch: Instant::now(),
            drops,
        }
    }

    fn bucket(&self, meta: &'static Metadata<'static>) -> &TokenBucket {
        // The address of a callsite's metadata is its identity; Fibonacci hashing spreads it.
        let address = std::ptr::from_ref(meta) as usize as u64;
        let hash =
            address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKET_COUNT.trailing_zeros());
        &self.buckets[hash as usize % BUCKET_COUNT]
    }

    /// Returns how many lines of this event were suppressed since the last one; `None` if this one is suppressed too.
    pub(super) fn admit(&self, meta: &'static Metadata<'static>) -> Option<u64> {
        let now = u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let bucket = self.bucket(meta);
        if !bucket.take(now) {
            bucket.suppressed.fetch_add(1, Ordering::Relaxed);
            self.drops.add(DropReason::LogRateLimited, 1);
            return None;
        }
        match bucket.suppressed.load(Ordering::Relaxed) {
            0 => Some(0),
            _ => Some(bucket.suppressed.swap(0, Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_admitted_and_then_a_steady_rate() {
        let bucket = TokenBucket::default();
        let second = LINE_INTERVAL_NANOS * LINES_PER_SECOND;
        let now = 1000 * second;
        let taken = |now: u64, tries: u64| (0..tries).filter(|_| bucket.take(now)).count() as u64;
        assert_eq!(taken(now, BURST_LINES + 1000), BURST_LINES);
        assert_eq!(taken(now + second, 1000), LINES_PER_SECOND);
        assert_eq!(taken(now + second, 1000), 0);
        assert_eq!(
            taken(now + 1000 * second, 1000),
            BURST_LINES,
            "a pause refills the bucket up to its size"
        );
    }
}
