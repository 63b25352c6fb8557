//! The journal of the aggregator: replayed at the start, written from then on.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::Aggregator;
use crate::Stories;
use crate::journal::{self, JournalFiles, JournalLine, JournalRole, JournalWriter, ReplayResult};
use crate::usual::UsualFile;
use criscope_cri::units::times::UnixMicros;
use criscope_telemetry::Drops;
use criscope_telemetry::drops::DropReason;

impl Aggregator {
    /// Replays the journal and opens it for writing.
    pub(super) async fn begin(&mut self) {
        self.counts_from = self.now();
        self.parts.stories.store().set_boot(self.boot.at);
        let Some(dir) = self.parts.state_dir.clone() else {
            return self.parts.stories.store().watch_since(self.counts_from);
        };
        self.usual = Some(UsualFile::load(&dir, &self.parts.stories).await);
        let files = JournalFiles::new(&dir);
        let stories = Arc::clone(&self.parts.stories);
        let replayed = spawn_blocking({
            let files = files.clone();
            move || replay(&files, &stories)
        });
        // Lines that were read before a panic stay; new lines are appended to the journal.
        let replayed = replayed.await.unwrap_or_else(|error| {
            if error.is_panic() {
                self.panicked("a panic while the journal was read: earlier stories are incomplete");
            }
            ReplayResult::default()
        });
        self.journal_until = replayed.last;
        self.running.unfinished = replayed.running;
        let newest = JournalRole::Newest {
            replayed: replayed.newer_len,
        };
        let began = self.counts_from;
        if replayed.last > UnixMicros::EPOCH {
            self.counts_from = self.counts_from.min(replayed.last);
        }
        {
            let mut store = self.parts.stories.store();
            let first = store.episodes().next().map(|episode| episode.began);
            store.watch_since(first.unwrap_or(began).min(began));
        }
        let damaged = replayed.damaged;
        self.parts.drops.add(DropReason::JournalDamaged, damaged);
        self.journal = start_journal(files, newest, &self.parts.drops);
        self.begin_handed_over(replayed.handed_over);
        for number in replayed.unreported {
            self.report(number);
        }
    }

    pub(super) fn write(&self, line: Option<JournalLine<'_>>) {
        if let (Some(journal), Some(line)) = (&self.journal, line) {
            journal.write(&line);
        }
    }
}

/// Replays the journal. Blocks.
fn replay(files: &JournalFiles, stories: &Stories) -> ReplayResult {
    let (replayed, result) = journal::replay(files, &stories.store);
    if let Err(error) = result {
        tracing::warn!(
            target: "criscope::lifecycle",
            event = "story.journal",
            file.directory = %files.dir.display(),
            error.message = %error,
            "the journal cannot be read: stories start empty"
        );
    }
    if replayed.damaged > 0 {
        tracing::warn!(
            target: "criscope::lifecycle",
            event = "story.journal",
            file.directory = %files.dir.display(),
            lines = replayed.lines,
            damaged = replayed.damaged,
            "damaged lines of the journal were skipped"
        );
    }
    replayed
}

pub(super) fn start_journal(
    files: JournalFiles,
    role: JournalRole,
    drops: &Arc<Drops>,
) -> Option<JournalWriter> {
    match JournalWriter::start(files, role, drops) {
        Ok(journal) => Some(journal),
        Err(error) => {
            tracing::warn!(
                target: "criscope::lifecycle",
                event = "story.journal",
                error.message = %error,
                "no thread for the journal: stories will not survive a restart"
            );
            None
        }
    }
}
