//! Handover of the journal: as the old process, which writes its last calls, and as the next one, which reads them.

use std::path::PathBuf;

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use super::Aggregator;
use super::journaling::start_journal;
use crate::episode_call::EpisodeCall;
use crate::handover::{HandoverFile, HandoverSteps, Predecessor, predecessors};
use crate::journal::{self, JournalFiles, JournalLine, JournalRole};
use criscope_cri::units::times::UnixMicros;

/// This process in a handover.
#[derive(Debug, Default)]
pub(super) struct HandoverState {
    pub(super) steps: HandoverSteps,
    /// Set once the journal belongs to the next process: this one appends its last calls, and reports nothing else.
    pub(super) is_left: bool,
    file: Option<HandoverFile>,
    /// Directory of the journal, while processes that hand over to this one may run.
    predecessors: Option<PathBuf>,
    /// Set if one of them accepted connections when this process began: then criscope was not down.
    pub(super) was_accepting: bool,
    reading: Option<ReadingOthers>,
}

/// Lines of other processes on their way from the journal.
#[derive(Debug)]
struct ReadingOthers {
    lines: oneshot::Receiver<Vec<u8>>,
    /// Set if no other process ran when they were asked for: these are the last.
    are_last: bool,
}

impl HandoverState {
    /// Looks for processes that hand over to this one. Blocks.
    pub(super) fn begin(dir: Option<PathBuf>) -> Self {
        let found: Vec<Predecessor> = dir.as_deref().map(predecessors).unwrap_or_default();
        Self {
            was_accepting: found.iter().any(|predecessor| predecessor.accepts),
            predecessors: dir.filter(|_| !found.is_empty()),
            ..Self::default()
        }
    }
}

impl Aggregator {
    /// Tells of a handover to the next process by these steps.
    #[must_use]
    pub fn with_handover(mut self, steps: HandoverSteps) -> Self {
        self.handover.steps = steps;
        self
    }

    /// Leaves the journal to the next process.
    pub(super) async fn hand_over(&mut self) {
        while let Ok(event) = self.parts.events.try_recv() {
            self.handle_guarded(event).await;
        }
        self.guarded(Self::leave_journal).await;
        self.handover.steps.journaled.cancel();
    }

    async fn leave_journal(&mut self) {
        self.write_last_lines();
        self.handover.is_left = true;
        if let Some(usual) = self.usual.take() {
            usual.close(&self.parts.stories).await;
        }
        let Some(dir) = self.parts.state_dir.clone() else {
            return;
        };
        if let Some(journal) = self.journal.take() {
            let _ = spawn_blocking(move || journal.close()).await;
        }
        let created = spawn_blocking({
            let dir = dir.clone();
            move || HandoverFile::create(&dir)
        });
        match created.await {
            Ok(Ok(file)) => self.handover.file = Some(file),
            Ok(Err(error)) => tracing::warn!(
                target: "criscope::lifecycle",
                event = "handover.file",
                file.directory = %dir.display(),
                error.message = %error,
                "the next process will record the calls in flight as lost"
            ),
            Err(_) => {}
        }
        let files = JournalFiles::new(&dir);
        self.journal = start_journal(files, JournalRole::HandingOver, &self.parts.drops);
        let (calls, now) = ((self.parts.in_flight)(), self.now());
        self.running.forget();
        self.journal_handed_over(&calls, now);
        // The lines must be in the file before the next process reads it.
        if let Some(journal) = self.journal.take() {
            let _ = spawn_blocking(move || journal.close()).await;
        }
        let files = JournalFiles::new(&dir);
        self.journal = start_journal(files, JournalRole::HandingOver, &self.parts.drops);
        self.end_node().await;
    }

    /// The work of each second while the next process has the journal.
    pub(super) async fn tick_after_handover(&mut self) {
        let (calls, now) = ((self.parts.in_flight)(), self.now());
        self.journal_running(&calls, now);
        if self.handover.steps.taken_over.is_cancelled() {
            if let Some(file) = &self.handover.file {
                file.accepts_no_more();
            }
        } else {
            // Calls get through, so criscope is not down.
            self.end_node().await;
        }
    }

    /// Removes the file: all calls have ended.
    pub(super) fn end_handover(&mut self) {
        self.handover.file = None;
    }

    /// Applies what the processes before have appended to the journal.
    pub(super) async fn read_predecessors(&mut self) {
        if let Some(mut reading) = self.handover.reading.take() {
            match reading.lines.try_recv() {
                Ok(lines) => {
                    self.apply_lines(&lines);
                    if reading.are_last {
                        return self.end_of_predecessors();
                    }
                }
                Err(oneshot::error::TryRecvError::Empty) => {
                    self.handover.reading = Some(reading);
                    return;
                }
                Err(oneshot::error::TryRecvError::Closed) => {}
            }
        }
        let Some(dir) = self.handover.predecessors.clone() else {
            return;
        };
        // Looked for before the lines are read: a process that has ended has written all of its lines.
        let found = spawn_blocking(move || predecessors(&dir)).await;
        let are_last = found.is_ok_and(|found| found.is_empty());
        match &self.journal {
            Some(journal) => {
                let lines = journal.read_others();
                self.handover.reading = Some(ReadingOthers { lines, are_last });
            }
            None if are_last => self.end_of_predecessors(),
            None => {}
        }
    }

    fn apply_lines(&mut self, lines: &[u8]) {
        let lines = lines.split(|byte| *byte == b'\n');
        let lines = lines.filter_map(|line| serde_json::from_slice(line).ok());
        for line in lines.collect::<Vec<JournalLine<'_>>>() {
            match line {
                JournalLine::Call(call) => {
                    let mut handed_over = self.parts.stories.handed_over();
                    handed_over.retain(|other| !journal::is_same(other, &call));
                    drop(handed_over);
                    let applied = self.parts.stories.store().apply((*call).clone());
                    self.report_call(&call, applied);
                }
                JournalLine::HandedOver(call) => {
                    let call = call.into_owned();
                    let mut handed_over = self.parts.stories.handed_over();
                    handed_over.retain(|other| !journal::is_same(other, &call));
                    handed_over.push(call);
                }
                line @ (JournalLine::Exit(_)
                | JournalLine::Intervention(_)
                | JournalLine::ImageLookup(_)) => {
                    journal::replay_line(line, &self.parts.stories.store);
                }
                // What the other process knew when it handed over was replayed, and this one goes on from there.
                _ => {}
            }
        }
    }

    /// The processes before have ended: calls whose end they did not write are lost.
    fn end_of_predecessors(&mut self) {
        self.handover.predecessors = None;
        self.lose_handed_over(self.now());
    }

    /// Ends the calls of processes that ended before them.
    pub(super) fn lose_handed_over(&mut self, at: UnixMicros) {
        let lost = std::mem::take(&mut *self.parts.stories.handed_over());
        for call in lost {
            let mut call: EpisodeCall = call.lost_at(at);
            self.parts.stories.store().observe(&mut call);
            // Without a line each process from now on would lose it anew.
            self.write(JournalLine::call(&call));
            let applied = self.parts.stories.store().apply(call.clone());
            self.report_call(&call, applied);
        }
    }

    /// Takes the calls that the journal says are handed over.
    pub(super) fn begin_handed_over(&mut self, calls: Vec<EpisodeCall>) {
        *self.parts.stories.handed_over() = calls;
        if self.handover.predecessors.is_none() {
            self.lose_handed_over(self.journal_until);
        }
    }
}
