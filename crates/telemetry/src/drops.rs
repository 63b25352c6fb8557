//! Counts the spans that were exported, and everything telemetry lost, by reason. Sinks count, scrapes read.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tracing_appender::non_blocking::ErrorCounter;

use super::metric::{Metric, Unit, fixed, metrics};
use super::registry::{Registry, RegistryError};

metrics! {
    TELEMETRY_SPANS = Metric::counter("telemetry_spans_total", &[fixed("decision", &["exported", "failed", "dropped"])],
        "Finished spans by outcome: exported, failed (refused by the collector, or it was unreachable), dropped before they were sent.");
    TELEMETRY_DROPPED = Metric::counter("telemetry_dropped_total",
        &[fixed("signal", &["span", "log", "metric", "story", "observation", "passed_span", "dump"]), fixed("reason", &["queue_full", "export_failed", "shutdown", "rate_limited", "episodes_full", "journal_queue_full", "journal_failed", "journal_damaged", "panic", "write_failed", "export_queue_full", "not_allowed"])],
        "Telemetry that was lost, by signal and reason: spans, log lines, readings of metrics, calls of stories and lines of their journal, observations, forwarded spans of the runtime, dumps.");
    JOURNAL_WAITING = Metric::gauge("story_journal_waiting_lines", Unit::Count, &[],
        "Lines of the journal that could not be written, and are written as soon as the disk has space; 1 MiB at most, and none of them survives a restart.");
}

criscope_cri::named! {
    /// The reason of a loss; its name is the signal and the reason within it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum DropReason {
        /// A span: the export queue was full.
        SpanQueueFull = "span/queue_full",
        /// A span: the collector refused it or was unreachable.
        SpanExportFailed = "span/export_failed",
        /// A span that was not sent before the process exited.
        SpanShutdown = "span/shutdown",
        /// A log line: the writer's queue was full.
        LogQueueFull = "log/queue_full",
        /// A log line, suppressed by the rate limit (see [`super::logging`]).
        LogRateLimited = "log/rate_limited",
        /// A log line that was written and not exported: the export queue was full.
        LogExportQueueFull = "log/export_queue_full",
        /// A log line that was written and not exported: the collector refused it or was unreachable.
        LogExportFailed = "log/export_failed",
        /// A reading of all metrics: the collector refused it or was unreachable. The next one has the same totals.
        MetricsExportFailed = "metric/export_failed",
        /// A call, session, span or event of a container missing from its episode: the aggregator's queue was full.
        StoryQueueFull = "story/queue_full",
        /// An episode evicted before it was reported.
        EpisodesFull = "story/episodes_full",
        /// A journal line: the writer's queue was full.
        JournalQueueFull = "story/journal_queue_full",
        /// A journal line that could not be written.
        JournalFailed = "story/journal_failed",
        /// A journal line that could not be read after a restart.
        JournalDamaged = "story/journal_damaged",
        /// An event that was not applied to its episode, or a check of all episodes: a defect, a panic in the aggregator.
        StoryPanic = "story/panic",
        /// Observations of a call: too many calls were observed at the same time.
        ObservationsFull = "observation/queue_full",
        /// A forwarded span of the runtime: the queue to the collector was full.
        PassedQueueFull = "passed_span/queue_full",
        /// A forwarded span of the runtime: the collector refused it or was unreachable.
        PassedFailed = "passed_span/export_failed",
        /// A span that was received from a user who may not send any.
        PassedNotAllowed = "passed_span/not_allowed",
        /// A flight recorder dump: others were still being written.
        DumpQueueFull = "dump/queue_full",
        /// A flight recorder dump that could not be written.
        DumpFailed = "dump/write_failed",
    }
}

impl DropReason {
    /// The labels `signal` and `reason`.
    pub fn labels(self) -> [&'static str; 2] {
        let (signal, reason) = self.name().split_once('/').unwrap_or_default();
        [signal, reason]
    }
}

/// Counters of one process.
#[derive(Debug, Default)]
pub struct Drops {
    spans_exported: AtomicU64,
    counts: [AtomicU64; DropReason::ALL.len()],
    log_queue: OnceLock<ErrorCounter>,
    journal_waiting: AtomicUsize,
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

    /// Sets the number of journal lines that wait for space on the disk.
    pub fn set_journal_waiting(&self, lines: usize) {
        self.journal_waiting.store(lines, Ordering::Relaxed);
    }

    /// Number of journal lines that wait for space on the disk.
    pub fn journal_waiting(&self) -> usize {
        self.journal_waiting.load(Ordering::Relaxed)
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
        registry.computed(&JOURNAL_WAITING, move |out| {
            out.put(&[], drops.journal_waiting() as f64);
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
