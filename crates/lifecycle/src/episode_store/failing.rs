//! Reports of episodes that keep failing: at the first failure, and after 1, 3, 7, 15... minutes.

use std::time::Duration;

use opentelemetry::trace::SpanId;

use super::{Episode, EpisodeStore};
use criscope_cri::units::times::UnixMicros;

/// The interval between the first two reports. Each next one is twice as long.
const FIRST_REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// A report that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DueReport {
    /// The episode.
    pub(crate) number: u64,
    /// True if its root span is due: the episode has failed for a while, and will go on or end as a failure.
    pub(crate) root: bool,
}

impl Episode {
    /// Number of reports due by `now`, including the first.
    fn reports_due(&self, now: UnixMicros) -> u32 {
        let since = self.failing_since.filter(|_| self.is_failing());
        since.map_or(0, |since| {
            1 + (1 + now.since(since).as_secs() / FIRST_REPORT_INTERVAL.as_secs()).ilog2()
        })
    }

    /// Counts the reports that are due by `now`; `None` if none is.
    fn take_due(&mut self, now: UnixMicros) -> Option<DueReport> {
        let due = self.reports_due(now);
        if due <= self.failure_reports {
            return None;
        }
        self.failure_reports = due;
        let root = due > 1 && self.exported.is_none();
        let number = self.number;
        Some(DueReport { number, root })
    }

    /// The time from which its spans have to be exported; `None` if all spans have to be, including the root span with the id
    /// `root`.
    pub(crate) fn exported(&self, root: SpanId) -> Option<UnixMicros> {
        let (known, until) = self.exported?;
        (known == root).then_some(until)
    }
}

impl EpisodeStore {
    /// The reports of failing episodes that are due by `now`.
    pub(crate) fn take_due(&mut self, now: UnixMicros) -> Vec<DueReport> {
        let open = self.open.iter();
        open.filter_map(|number| self.episodes.get_mut(number)?.take_due(now))
            .collect()
    }

    /// Remembers that the root span of an episode was exported, and its other spans up to this time.
    pub(crate) fn note_exported(&mut self, number: u64, root: SpanId, until: UnixMicros) {
        if let Some(episode) = self.episodes.get_mut(&number) {
            episode.exported = Some((root, until));
        }
    }
}
