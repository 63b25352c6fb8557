//! CPU rates (`usage_nano_cores`), computed from two readings of the total CPU time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Minimum interval of a rate, in nanoseconds: the CPU time of a cgroup advances in steps of some milliseconds.
const APART: i64 = Duration::from_millis(100).as_nanos() as i64;
/// Maximum number of tracked ids: nodes have a few hundred containers.
const MAX_RATED_CONTAINERS: usize = 16_384;

/// The last readings of each container and pod. Only requests for statistics take readings, nothing in the background. As in
/// containerd, a rate is the mean since the previous reading.
#[derive(Debug, Default)]
pub struct Rates {
    known: Mutex<HashMap<String, Track>>,
}

#[derive(Debug, Clone, Copy)]
struct Track {
    at: i64,
    usage: u64,
    rate: Option<u64>,
}

impl Rates {
    /// Adds a reading: its time (nanoseconds since 1970) and the CPU time in nanoseconds; returns the rate in nanoseconds per
    /// second. `None` until there are two readings at least 100 ms apart; a reading too soon after the previous one returns the
    /// previous rate. Starts again if the CPU time or the clock goes backwards.
    pub fn observe(&self, id: &str, at: i64, usage: u64) -> Option<u64> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(track) = known.get_mut(id) else {
            if known.len() < MAX_RATED_CONTAINERS {
                let rate = None;
                known.insert(id.to_owned(), Track { at, usage, rate });
            }
            return None;
        };
        let since = at.saturating_sub(track.at);
        if since < 0 || usage < track.usage {
            let rate = None;
            *track = Track { at, usage, rate };
        } else if since >= APART {
            let used = u128::from(usage - track.usage) * 1_000_000_000;
            let rate = u64::try_from(used / u128::from(since.unsigned_abs())).ok();
            *track = Track { at, usage, rate };
        }
        track.rate
    }

    /// Removes the readings of a removed container or pod.
    pub fn forget(&self, id: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn a_rate_needs_two_readings_at_an_interval() {
        let rates = Rates::default();
        assert_eq!(rates.observe("a", 0, 0), None);
        assert_eq!(
            rates.observe("a", MS, 500),
            None,
            "too soon after the first"
        );
        // Half a CPU for 200 ms.
        assert_eq!(rates.observe("a", 200 * MS, 100_000_000), Some(500_000_000));
        assert_eq!(
            rates.observe("a", 210 * MS, 110_000_000),
            Some(500_000_000),
            "the last rate is returned"
        );
        assert_eq!(rates.observe("a", 400 * MS, 100_000_000), Some(0));
        assert_eq!(rates.observe("b", 400 * MS, 1), None, "another id");
    }

    #[test]
    fn a_decrease_starts_again() {
        let rates = Rates::default();
        rates.observe("a", 0, 100);
        assert_eq!(
            rates.observe("a", 200 * MS, 50),
            None,
            "it was created again"
        );
        assert_eq!(rates.observe("a", 400 * MS, 50), Some(0));
        assert_eq!(rates.observe("a", 300 * MS, 60), None, "the clock was set");
        rates.forget("a");
        assert_eq!(rates.observe("a", 900 * MS, 70), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let rates = Rates::default();
        for id in 0..MAX_RATED_CONTAINERS + 10 {
            rates.observe(&id.to_string(), 0, 0);
        }
        assert_eq!(
            rates.known.lock().expect("lock").len(),
            MAX_RATED_CONTAINERS
        );
        rates.forget("0");
        rates.observe("new", 0, 0);
        assert_eq!(rates.observe("new", 200 * MS, 0), Some(0));
    }
}
