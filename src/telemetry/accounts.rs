//! What became of spans and log lines: exported, or lost and why. Sinks count here; a scrape reads it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tracing_appender::non_blocking::ErrorCounter;

use super::catalogue;
use super::registry::{Registry, RegistryError};

/// Why something was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Loss {
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
    SightingsFull,
    /// A span of the runtime that was to be passed on, because too many waited for the collector.
    PassedQueueFull,
    /// A span of the runtime that was to be passed on, because the collector refused it or could not be reached.
    PassedFailed,
    /// A dump of the flight recorder, because others were still being written.
    DumpQueueFull,
    /// A dump of the flight recorder that could not be written.
    DumpFailed,
}

impl Loss {
    /// Every value.
    pub const ALL: [Loss; 15] = [
        Loss::SpanQueueFull,
        Loss::SpanExportFailed,
        Loss::SpanShutdown,
        Loss::LogQueueFull,
        Loss::LogRateLimited,
        Loss::StoryQueueFull,
        Loss::EpisodesFull,
        Loss::JournalQueueFull,
        Loss::JournalFailed,
        Loss::JournalDamaged,
        Loss::SightingsFull,
        Loss::PassedQueueFull,
        Loss::PassedFailed,
        Loss::DumpQueueFull,
        Loss::DumpFailed,
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
            Self::SightingsFull => ["sighting", "queue_full"],
            Self::PassedQueueFull => ["passed_span", "queue_full"],
            Self::PassedFailed => ["passed_span", "export_failed"],
            Self::DumpQueueFull => ["dump", "queue_full"],
            Self::DumpFailed => ["dump", "write_failed"],
        }
    }
}

/// The counts of one process.
#[derive(Debug, Default)]
pub struct Accounts {
    spans_exported: AtomicU64,
    losses: [AtomicU64; Loss::ALL.len()],
    log_queue: OnceLock<ErrorCounter>,
}

impl Accounts {
    /// Counts spans that the collector took.
    pub fn spans_exported(&self, n: usize) {
        self.spans_exported.fetch_add(n as u64, Ordering::Relaxed);
    }

    /// Counts a loss of `n`.
    pub fn lost(&self, loss: Loss, n: usize) {
        self.losses[loss as usize].fetch_add(n as u64, Ordering::Relaxed);
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
    pub fn losses(&self, loss: Loss) -> u64 {
        let counted = self.losses[loss as usize].load(Ordering::Relaxed);
        match (loss, self.log_queue.get()) {
            (Loss::LogQueueFull, Some(queue)) => counted + queue.dropped_lines() as u64,
            _ => counted,
        }
    }

    /// Shows the counts as metrics. All of them from the start, so that the first loss is seen as an increase.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn register(self: &Arc<Self>, registry: &Registry) -> Result<(), RegistryError> {
        let accounts = Arc::clone(self);
        registry.computed(&catalogue::TELEMETRY_DROPPED, move |out| {
            for loss in Loss::ALL {
                out.put(&loss.labels(), accounts.losses(loss) as f64);
            }
        })?;
        let accounts = Arc::clone(self);
        registry.computed(&catalogue::TELEMETRY_SPANS, move |out| {
            let dropped =
                accounts.losses(Loss::SpanQueueFull) + accounts.losses(Loss::SpanShutdown);
            out.put(&["exported"], accounts.exported() as f64);
            out.put(&["failed"], accounts.losses(Loss::SpanExportFailed) as f64);
            out.put(&["dropped"], dropped as f64);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::catalogue::Values;

    #[test]
    fn reasons_are_in_the_catalogue() {
        for loss in Loss::ALL {
            for (label, value) in catalogue::TELEMETRY_DROPPED
                .labels
                .iter()
                .zip(loss.labels())
            {
                assert!(
                    matches!(label.values, Values::Fixed(v) if v.contains(&value)),
                    "{value}"
                );
            }
        }
    }

    #[test]
    fn losses_add_up() {
        let accounts = Accounts::default();
        accounts.lost(Loss::SpanQueueFull, 2);
        accounts.lost(Loss::SpanQueueFull, 3);
        assert_eq!(accounts.losses(Loss::SpanQueueFull), 5);
        assert_eq!(accounts.losses(Loss::SpanShutdown), 0);
    }
}
