//! Counts the spans that were exported, and everything telemetry lost, by reason. Sinks count, scrapes read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tracing_appender::non_blocking::ErrorCounter;

use super::metric::{Metric, fixed, metrics};
use super::registry::{Registry, RegistryError};

metrics! {
    TELEMETRY_SPANS = Metric::counter("telemetry_spans_total", &[fixed("decision", &["exported", "failed", "dropped"])],
        "Finished spans by outcome: exported, failed (refused by the collector, or it was unreachable), dropped before they were sent.");
    TELEMETRY_DROPPED = Metric::counter("telemetry_dropped_total",
        &[fixed("signal", &["span", "log", "metric", "story", "observation", "passed_span", "dump"]), fixed("reason", &["queue_full", "export_failed", "shutdown", "rate_limited", "episodes_full", "journal_queue_full", "journal_failed", "journal_damaged", "panic", "write_failed", "export_queue_full", "not_allowed"])],
        "Telemetry that was lost, by signal and reason: spans, log lines, readings of metrics, calls of stories and lines of their journal, observations, forwarded spans of the runtime, dumps.");
}

/// The reason of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DropReason {
    /// A span: the export queue was full.
    SpanQueueFull,
    /// A span: the collector refused it or was unreachable.
    SpanExportFailed,
    /// A span that was not sent before the process exited.
    SpanShutdown,
    /// A log line: the writer's queue was full.
    LogQueueFull,
    /// A log line, suppressed by the rate limit (see [`super::logging`]).
    LogRateLimited,
    /// A log line that was written and not exported: the export queue was full.
    LogExportQueueFull,
    /// A log line that was written and not exported: the collector refused it or was unreachable.
    LogExportFailed,
    /// A reading of all metrics: the collector refused it or was unreachable. The next one has the same totals.
    MetricsExportFailed,
    /// A call, session, span or event of a container missing from its episode: the aggregator's queue was full.
    StoryQueueFull,
    /// An episode evicted before it was reported.
    EpisodesFull,
    /// A journal line: the writer's queue was full.
    JournalQueueFull,
    /// A journal line that could not be written.
    JournalFailed,
    /// A journal line that could not be read after a restart.
    JournalDamaged,
    /// An event that was not applied to its episode, or a check of all episodes: a defect, a panic in the aggregator.
    StoryPanic,
    /// Observations of a call: too many calls were observed at the same time.
    ObservationsFull,
    /// A forwarded span of the runtime: the queue to the collector was full.
    PassedQueueFull,
    /// A forwarded span of the runtime: the collector refused it or was unreachable.
    PassedFailed,
    /// A span that was received from a user who may not send any.
    PassedNotAllowed,
    /// A flight recorder dump: others were still being written.
    DumpQueueFull,
    /// A flight recorder dump that could not be written.
    DumpFailed,
}

impl DropReason {
    /// Every value.
    pub const ALL: [DropReason; 20] = [
        DropReason::SpanQueueFull,
        DropReason::SpanExportFailed,
        DropReason::SpanShutdown,
        DropReason::LogQueueFull,
        DropReason::LogRateLimited,
        DropReason::LogExportQueueFull,
        DropReason::LogExportFailed,
        DropReason::MetricsExportFailed,
        DropReason::StoryQueueFull,
        DropReason::EpisodesFull,
        DropReason::JournalQueueFull,
        DropReason::JournalFailed,
        DropReason::JournalDamaged,
        DropReason::StoryPanic,
        DropReason::ObservationsFull,
        DropReason::PassedQueueFull,
        DropReason::PassedFailed,
        DropReason::PassedNotAllowed,
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
            Self::LogExportQueueFull => ["log", "export_queue_full"],
            Self::LogExportFailed => ["log", "export_failed"],
            Self::MetricsExportFailed => ["metric", "export_failed"],
            Self::StoryQueueFull => ["story", "queue_full"],
            Self::EpisodesFull => ["story", "episodes_full"],
            Self::JournalQueueFull => ["story", "journal_queue_full"],
            Self::JournalFailed => ["story", "journal_failed"],
            Self::JournalDamaged => ["story", "journal_damaged"],
            Self::StoryPanic => ["story", "panic"],
            Self::ObservationsFull => ["observation", "queue_full"],
            Self::PassedQueueFull => ["passed_span", "queue_full"],
            Self::PassedFailed => ["passed_span", "export_failed"],
            Self::PassedNotAllowed => ["passed_span", "not_allowed"],
            Self::DumpQueueFull => ["dump", "queue_full"],
            Self::DumpFailed => ["dump", "write_failed"],
        }
    }
}

/// Counters of one process.
#[derive(Debug, Default)]
pub struct Drops {
    spans_exported: AtomicU64,
    counts: [AtomicU64; DropReason::ALL.len()],
    log_queue: OnceLock<ErrorCounter>,
}

impl Drops {
    /// Counts spans accepted by the collector.
    pub fn spans_exported(&self, n: usize) {
        self.spans_exported.fetch_add(n as u64, Ordering::Relaxed);
    }

    /// Counts `n` losses for a reason.
    pub fn add(&self, reason: DropReason, n: usize) {
        self.counts[reason as usize].fetch_add(n as u64, Ordering::Relaxed);
    }

    /// Includes the drop counter of the log writer. Only the first one set is used.
    pub fn watch_log_queue(&self, counter: ErrorCounter) {
        let _ = self.log_queue.set(counter);
    }

    /// Number of spans accepted by the collector.
    pub fn exported(&self) -> u64 {
        self.spans_exported.load(Ordering::Relaxed)
    }

    /// Number of losses for a reason.
    pub fn count(&self, reason: DropReason) -> u64 {
        let counted = self.counts[reason as usize].load(Ordering::Relaxed);
        match (reason, self.log_queue.get()) {
            (DropReason::LogQueueFull, Some(queue)) => counted + queue.dropped_lines() as u64,
            _ => counted,
        }
    }

    /// Registers the counters as metrics. All series exist from the start, so that a first loss is an increase.
    ///
    /// # Errors
    /// If a metric is registered already.
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
    use crate::metric::Values;

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
