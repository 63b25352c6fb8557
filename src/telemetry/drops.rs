//! What became of spans and log lines: exported, or lost and why. Sinks count here; a scrape reads it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tracing_appender::non_blocking::ErrorCounter;

use super::metric::{Metric, fixed, metrics};
use super::registry::{Registry, RegistryError};

metrics! {
    TELEMETRY_SPANS = Metric::counter("telemetry_spans_total", &[fixed("decision", &["exported", "failed", "dropped"])],
        "Finished spans by what became of them: taken by the collector, refused or unreachable, never sent.");
    TELEMETRY_DROPPED = Metric::counter("telemetry_dropped_total",
        &[fixed("signal", &["span", "log", "story", "observation", "passed_span", "dump"]), fixed("reason", &["queue_full", "export_failed", "shutdown", "rate_limited", "episodes_full", "journal_queue_full", "journal_failed", "journal_damaged", "write_failed"])],
        "What was lost, and why: spans, log lines, calls of the stories of pods and lines of their journal, observations, spans of the runtime that were to be passed on, dumps.");
}

/// Why something was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DropReason {
    /// A span, because too many waited for the collector.
    SpanQueueFull,
    /// A span, because the collector refused it or could not be reached.
    SpanExportFailed,
    /// A span that could not be sent before the process ended.
    SpanShutdown,
    /// A log line, because too many waited to be written.
    LogQueueFull,
    /// A log line, because too many like it were written (see [`super::logging`]).
    LogRateLimited,
    /// A call that is missing in the story of its pod, because too many waited to be told.
    StoryQueueFull,
    /// An episode that had to make room for others before it was told.
    EpisodesFull,
    /// A line of the journal of the stories, because too many waited to be written.
    JournalQueueFull,
    /// A line of the journal, because it could not be written.
    JournalFailed,
    /// A line of the journal that could not be read after a restart.
    JournalDamaged,
    /// What was seen of a call, because too many calls took long at a time.
    ObservationsFull,
    /// A span of the runtime that was to be passed on, because too many waited for the collector.
    PassedQueueFull,
    /// A span of the runtime that was to be passed on, because the collector refused it or could not be reached.
    PassedFailed,
    /// A dump of the flight recorder, because others were still being written.
    DumpQueueFull,
    /// A dump of the flight recorder that could not be written.
    DumpFailed,
}

impl DropReason {
    /// Every value.
    pub const ALL: [DropReason; 15] = [
        DropReason::SpanQueueFull,
        DropReason::SpanExportFailed,
        DropReason::SpanShutdown,
        DropReason::LogQueueFull,
        DropReason::LogRateLimited,
        DropReason::StoryQueueFull,
        DropReason::EpisodesFull,
        DropReason::JournalQueueFull,
        DropReason::JournalFailed,
        DropReason::JournalDamaged,
        DropReason::ObservationsFull,
        DropReason::PassedQueueFull,
        DropReason::PassedFailed,
        DropReason::DumpQueueFull,
        DropReason::DumpFailed,
    ];

    /// The labels `signal` and `reason`.
    pub const fn labels(self) -> [&'static str; 2] {
        match self {
            Self::SpanQueueFull => ["span", "queue_full"],
            Self::SpanExportFailed => ["span", "export_failed"],
            Self::SpanShutdown => ["span", "shutdown"],
            Self::LogQueueFull => ["log", "queue_full"],
            Self::LogRateLimited => ["log", "rate_limited"],
            Self::StoryQueueFull => ["story", "queue_full"],
            Self::EpisodesFull => ["story", "episodes_full"],
            Self::JournalQueueFull => ["story", "journal_queue_full"],
            Self::JournalFailed => ["story", "journal_failed"],
            Self::JournalDamaged => ["story", "journal_damaged"],
            Self::ObservationsFull => ["observation", "queue_full"],
            Self::PassedQueueFull => ["passed_span", "queue_full"],
            Self::PassedFailed => ["passed_span", "export_failed"],
            Self::DumpQueueFull => ["dump", "queue_full"],
            Self::DumpFailed => ["dump", "write_failed"],
        }
    }
}

/// The counts of one process.
#[derive(Debug, Default)]
pub struct Drops {
    spans_exported: AtomicU64,
    counts: [AtomicU64; DropReason::ALL.len()],
    log_queue: OnceLock<ErrorCounter>,
}

impl Drops {
    /// Counts spans that the collector took.
    pub fn spans_exported(&self, n: usize) {
        self.spans_exported.fetch_add(n as u64, Ordering::Relaxed);
    }

    /// Counts a reason of `n`.
    pub fn add(&self, reason: DropReason, n: usize) {
        self.counts[reason as usize].fetch_add(n as u64, Ordering::Relaxed);
    }

    /// Takes in the counter of the log writer's queue. Only the first one counts.
    pub fn watch_log_queue(&self, counter: ErrorCounter) {
        let _ = self.log_queue.set(counter);
    }

    /// Spans that the collector took so far.
    pub fn exported(&self) -> u64 {
        self.spans_exported.load(Ordering::Relaxed)
    }

    /// What was lost so far for one reason.
    pub fn count(&self, reason: DropReason) -> u64 {
        let counted = self.counts[reason as usize].load(Ordering::Relaxed);
        match (reason, self.log_queue.get()) {
            (DropReason::LogQueueFull, Some(queue)) => counted + queue.dropped_lines() as u64,
            _ => counted,
        }
    }

    /// Shows the counts as metrics. All of them from the start, so that the first reason is seen as an increase.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn register(self: &Arc<Self>, registry: &Registry) -> Result<(), RegistryError> {
        let drops = Arc::clone(self);
        registry.computed(&TELEMETRY_DROPPED, move |out| {
            for reason in DropReason::ALL {
                out.put(&reason.labels(), drops.count(reason) as f64);
            }
        })?;
        let drops = Arc::clone(self);
        registry.computed(&TELEMETRY_SPANS, move |out| {
            let dropped =
                drops.count(DropReason::SpanQueueFull) + drops.count(DropReason::SpanShutdown);
            out.put(&["exported"], drops.exported() as f64);
            out.put(
                &["failed"],
                drops.count(DropReason::SpanExportFailed) as f64,
            );
            out.put(&["dropped"], dropped as f64);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metric::Values;

    #[test]
    fn reasons_are_in_the_catalogue() {
        for reason in DropReason::ALL {
            for (label, value) in TELEMETRY_DROPPED.labels.iter().zip(reason.labels()) {
                assert!(
                    matches!(label.values, Values::Fixed(v) if v.contains(&value)),
                    "{value}"
                );
            }
        }
    }

    #[test]
    fn losses_add_up() {
        let drops = Drops::default();
        drops.add(DropReason::SpanQueueFull, 2);
        drops.add(DropReason::SpanQueueFull, 3);
        assert_eq!(drops.count(DropReason::SpanQueueFull), 5);
        assert_eq!(drops.count(DropReason::SpanShutdown), 0);
    }
}
