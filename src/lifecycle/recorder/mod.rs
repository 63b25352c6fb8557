//! The flight recorder: the last calls that ended, without payloads, in two rings. Polls come several times a second and
//! have a ring of their own, so that they never push out what matters.
//!
//! | module | what |
//! |---|---|
//! | `ring` | where the request path writes: in place, under a lock that nobody holds for long |
//! | [`dump`] | everything that is remembered, as JSON |
//! | [`perfetto`] | the same as a trace file for ui.perfetto.dev and chrome://tracing |
//! | [`dumps`] | when a dump is written, where, and how many are kept |

pub mod dump;
pub mod dumps;
mod files;
pub mod perfetto;
mod ring;
mod select;
mod when;

pub use self::dumps::Dumps;

use self::ring::Ring;
use crate::call::CallRecord;

/// The last calls that ended.
#[derive(Debug)]
pub struct Recorder {
    kept: Ring,
    polls: Ring,
}

/// A copy of what is remembered; within each list the calls stand in the order in which they ended.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Calls that changed something, failed or were slow.
    pub calls: Vec<CallRecord>,
    /// Other calls.
    pub polls: Vec<CallRecord>,
    /// Calls of both kinds that ended since the start of the process and are no longer remembered.
    pub forgotten: u64,
}

impl Recorder {
    /// A recorder for so many calls that matter and so many polls. It takes memory as it fills.
    pub fn new(calls: usize, polls: usize) -> Self {
        Self {
            kept: Ring::new(calls),
            polls: Ring::new(polls),
        }
    }

    /// Takes a call in. `matters` says whether it is more than an ordinary poll.
    pub fn record(&self, record: CallRecord, matters: bool) {
        let ring = if matters { &self.kept } else { &self.polls };
        ring.push(record);
    }

    /// All calls that are remembered, in the order in which they ended within each of the two rings: first polls.
    pub fn calls(&self) -> Vec<CallRecord> {
        let mut memory = self.memory();
        memory.polls.append(&mut memory.calls);
        memory.polls
    }

    /// All calls that are remembered, the two rings apart. Copied in small pieces: a call that ends meanwhile never waits
    /// for more than one of them.
    pub fn memory(&self) -> Memory {
        let (calls, forgotten) = self.kept.copy();
        let (polls, forgotten_polls) = self.polls.copy();
        Memory {
            calls,
            polls,
            forgotten: forgotten + forgotten_polls,
        }
    }

    /// Calls `f` under both locks.
    #[cfg(test)]
    fn while_locked(&self, f: impl FnOnce()) {
        self.kept.while_locked(|| self.polls.while_locked(f));
    }
}
