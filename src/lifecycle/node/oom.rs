//! Processes that the kernel killed for lack of memory, as it counts them for the whole node (`oom_kill` of `/proc/vmstat`).
//! A runtime does not always report such an end as what it is: the exit code is then 137 and nothing else is known.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;

/// Samples that are kept; one a second.
const SAMPLES: usize = 64;
/// Samples further apart than this say nothing about a moment between them, in microseconds.
const APART: u64 = 5_000_000;

/// The counter at some times, in microseconds since 1970.
#[derive(Clone, Debug, Default)]
pub(crate) struct OomKills(VecDeque<(u64, u64)>);

impl OomKills {
    /// Reads the counter from a file like `/proc/vmstat`. A kernel that does not count yields none.
    pub(crate) fn sample(&mut self, file: &Path, now: u64) {
        let text = fs::read_to_string(file).unwrap_or_default();
        if let Some(count) = parse(&text) {
            self.note(now, count);
        }
    }

    fn note(&mut self, at: u64, count: u64) {
        if self.0.len() >= SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back((at, count));
    }

    /// How many processes were killed just before `at`, as far as samples are close enough.
    pub(crate) fn before(&self, at: u64) -> u32 {
        let earlier = self.0.iter().rev().find(|(time, _)| *time < at);
        let later = self.0.iter().find(|(time, _)| *time >= at);
        match (earlier, later) {
            (Some((from, before)), Some((to, after))) if to - from <= APART => {
                u32::try_from(after.saturating_sub(*before)).unwrap_or(u32::MAX)
            }
            _ => 0,
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

    const SECOND: u64 = 1_000_000;

    #[test]
    fn kills_count_if_the_samples_are_close() {
        assert_eq!(
            parse("nr_free_pages 1\noom_kill_x 4\noom_kill 70\n"),
            Some(70)
        );
        assert_eq!(parse("nr_free_pages 1\n"), None);
        let mut kills = OomKills::default();
        assert_eq!(kills.before(5 * SECOND), 0);
        for (at, count) in [(10, 70), (11, 70), (12, 72), (30, 80)] {
            kills.note(at * SECOND, count);
        }
        assert_eq!(kills.before(10 * SECOND), 0, "nothing was known before");
        assert_eq!(kills.before(11 * SECOND - 1), 0);
        assert_eq!(kills.before(11 * SECOND + 5), 2);
        assert_eq!(kills.before(20 * SECOND), 0, "too far apart");
        assert_eq!(kills.before(31 * SECOND), 0, "not sampled since");
        for at in 0..2 * SAMPLES as u64 {
            kills.note((100 + at) * SECOND, 80);
        }
        assert_eq!(kills.0.len(), SAMPLES);
    }
}
