//! Journals calls that run for a while. If criscope is killed, the next process tells from the journal which calls were lost.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::Aggregator;
use crate::episode_call::EpisodeCall;
use crate::journal::JournalLine;
use crate::kubelet::execs;
use criscope_cri::Method;
use criscope_cri::call::episode::is_episodic;
use criscope_cri::call::{Call, CallRecord};
use criscope_cri::units::times::UnixMicros;

/// A call is journaled once it has run for this long: most calls of a start end before, and cost no line.
const JOURNALED_AFTER: Duration = Duration::from_secs(1);

/// Calls of this process and of the last one that have not ended.
#[derive(Debug, Default)]
pub(super) struct RunningCalls {
    /// Numbers of the calls in flight that are in the journal.
    journaled: HashSet<u64>,
    /// Calls whose end is not in the journal of the last process.
    pub(super) unfinished: Vec<EpisodeCall>,
}

impl RunningCalls {
    /// Journals all calls anew.
    pub(super) fn forget(&mut self) {
        self.journaled.clear();
    }
}

impl Aggregator {
    /// Journals the calls that have run for a while, each once.
    pub(super) fn journal_running(&mut self, calls: &[Arc<Call>], now: UnixMicros) {
        self.journal_from(JOURNALED_AFTER, calls, now);
    }

    /// Journals all calls in flight: the next process must know them when it begins.
    pub(super) fn journal_handed_over(&mut self, calls: &[Arc<Call>], now: UnixMicros) {
        self.journal_from(Duration::ZERO, calls, now);
    }

    fn journal_from(&mut self, age: Duration, calls: &[Arc<Call>], now: UnixMicros) {
        let running = calls
            .iter()
            .filter(|call| call.age() >= age && is_part_of_story(call));
        let running: Vec<_> = running.collect();
        let journaled = &mut self.running.journaled;
        journaled.retain(|seq| running.iter().any(|call| call.seq == *seq));
        self.watch.has_running_calls = !running.is_empty();
        let new: Vec<_> = running
            .into_iter()
            .filter(|call| journaled.insert(call.seq))
            .collect();
        for call in new {
            let mut call = EpisodeCall::in_flight(call, Vec::new());
            self.parts.stories.store().identify(&mut call);
            let call = call.lost_at(now);
            self.write(if self.handover.is_left {
                JournalLine::handed_over(call)
            } else {
                JournalLine::running(call)
            });
        }
    }

    /// Applies the calls that were lost when criscope went down at this time.
    pub(super) fn apply_lost(&mut self, at: UnixMicros) {
        let unfinished = std::mem::take(&mut self.running.unfinished);
        for call in unfinished {
            let mut call = call.lost_at(at);
            let mut store = self.parts.stories.store();
            store.observe(&mut call);
            store.apply(call);
        }
        self.report_closed();
    }
}

/// Returns whether the call is part of an episode, as hooks are and probes are not.
fn is_part_of_story(call: &Call) -> bool {
    is_episodic(call.method)
        || call.method == Method::ExecSync && execs::is_hook(&CallRecord::in_flight(call))
}
