//! Containers whose shim of containerd did not report statistics.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The first pause after a failure. It doubles with each further one, up to [`MAX_RETRY_PAUSE`].
const FIRST: Duration = Duration::from_secs(10);

/// The longest pause: how late the statistics of a shim that has recovered may be.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(300);

/// Maximum number of tracked containers: nodes have a few hundred.
const MAX_REMEMBERED_SHIMS: usize = 16_384;

/// The containers whose shim failed at the last query. It is not asked again for a while, so that the lists of the kubelet do not
/// wait for it each time.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    known: Mutex<HashMap<String, Trouble>>,
}

#[derive(Debug, Clone, Copy)]
struct Trouble {
    pause: Duration,
    until: Instant,
}

impl Troubles {
    /// Returns whether the shim of a container is not to be asked yet.
    pub(super) fn is_paused(&self, id: &str, now: Instant) -> bool {
        let known = self.lock();
        known.get(id).is_some_and(|trouble| now < trouble.until)
    }

    /// Records a failure. Returns whether it is the first since the last success, which is worth a log line.
    pub(super) fn failed(&self, id: &str, now: Instant) -> bool {
        let mut known = self.lock();
        if let Some(trouble) = known.get_mut(id) {
            // Queries that began together fail together, and are one failure.
            if trouble.until <= now {
                trouble.pause = (trouble.pause * 2).min(MAX_RETRY_PAUSE);
                trouble.until = now + trouble.pause;
            }
            return false;
        }
        if known.len() >= MAX_REMEMBERED_SHIMS {
            return false;
        }
        let pause = FIRST;
        let until = now + pause;
        known.insert(id.to_owned(), Trouble { pause, until });
        true
    }

    /// Records a success, or the removal of the container. Returns whether there was trouble before.
    pub(super) fn ended(&self, id: &str) -> bool {
        self.lock().remove(id).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Trouble>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end_with_a_success() {
        let troubles = Troubles::default();
        let mut now = Instant::now();
        assert!(!troubles.is_paused("a", now));
        assert!(troubles.failed("a", now), "the first");
        assert!(!troubles.failed("a", now), "at the same time");
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let start = now;
            while troubles.is_paused("a", now) {
                now += Duration::from_secs(1);
            }
            pauses.push((now - start).as_secs());
            assert!(!troubles.failed("a", now), "told already");
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300]);
        assert!(!troubles.is_paused("b", now), "another container");
        assert!(troubles.ended("a"));
        assert!(!troubles.ended("a") && !troubles.is_paused("a", now));
        assert!(troubles.failed("a", now), "told again");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let troubles = Troubles::default();
        let now = Instant::now();
        for id in 0..MAX_REMEMBERED_SHIMS + 10 {
            troubles.failed(&id.to_string(), now);
        }
        assert_eq!(troubles.lock().len(), MAX_REMEMBERED_SHIMS);
    }
}
