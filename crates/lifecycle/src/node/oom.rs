//! The number of processes that the kernel killed for lack of memory on the whole node (`oom_kill` of `/proc/vmstat`). A
//! runtime does not always report such a kill: the exit code is then 137, and nothing else is known.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::time::Duration;

use criscope_cri::units::times::UnixMicros;

/// Upper bound of samples that are kept. There is one per second.
const MAX_SAMPLES: usize = 64;
/// Samples further apart than this tell nothing about a moment between them.
const MAX_SAMPLE_GAP: Duration = Duration::from_secs(5);

/// Samples of the kernel's counter: time and count.
#[derive(Clone, Debug, Default)]
pub(crate) struct OomKillCounter(VecDeque<(UnixMicros, u64)>);

impl OomKillCounter {
    /// Reads the counter from a file like `/proc/vmstat`. A kernel without the counter yields no sample.
    pub(crate) fn sample(&mut self, file: &Path, now: UnixMicros) {
        let text = fs::read_to_string(file).unwrap_or_default();
        if let Some(count) = parse(&text) {
            self.note(now, count);
        }
    }

    fn note(&mut self, at: UnixMicros, count: u64) {
        if self.0.len() >= MAX_SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back((at, count));
    }

    /// The number of processes that were killed just before `at`; `None` if the samples are too far apart, or criscope was not running.
    pub(crate) fn before(&self, at: UnixMicros) -> Option<u32> {
        let earlier = self.0.iter().rev().find(|(time, _)| *time < at);
        let later = self.0.iter().find(|(time, _)| *time >= at);
        match (earlier, later) {
            (Some((from, before)), Some((to, after))) if to.since(*from) <= MAX_SAMPLE_GAP => {
                Some(u32::try_from(after.saturating_sub(*before)).unwrap_or(u32::MAX))
            }
            _ => None,
        }
    }
}

fn parse(text: &str) -> Option<u64> {
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> UnixMicros {
        UnixMicros::new(seconds * 1_000_000)
    }

    #[test]
    fn kills_count_if_the_samples_are_close() {
        assert_eq!(
            parse("nr_free_pages 1\noom_kill_x 4\noom_kill 70\n"),
            Some(70)
        );
        assert_eq!(parse("nr_free_pages 1\n"), None);
        let mut kills = OomKillCounter::default();
        assert_eq!(kills.before(at(5)), None);
        for (seconds, count) in [(10, 70), (11, 70), (12, 72), (30, 80)] {
            kills.note(at(seconds), count);
        }
        assert_eq!(kills.before(at(10)), None, "nothing was known before");
        assert_eq!(kills.before(at(11) - Duration::from_micros(1)), Some(0));
        assert_eq!(kills.before(at(11) + Duration::from_micros(5)), Some(2));
        assert_eq!(kills.before(at(20)), None, "too far apart");
        assert_eq!(kills.before(at(31)), None, "not sampled since");
        for n in 0..2 * MAX_SAMPLES as u64 {
            kills.note(at(100 + n), 80);
        }
        assert_eq!(kills.0.len(), MAX_SAMPLES);
    }
}
