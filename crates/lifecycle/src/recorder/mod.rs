//! The flight recorder: the last finished calls, without payloads, in two rings. Polls, several per second, have a separate
//! ring so that they cannot push out more important calls.
//!
//! | module | content |
//! |---|---|
//! | `ring` | the ring that the request path writes to, under a lock that is held briefly |
//! | [`dump`] | a copy of both rings and the calls in flight, as JSON |
//! | [`perfetto`] | a dump as a trace file for ui.perfetto.dev and chrome://tracing |
//! | [`dumps`] | when a dump is written, where, and how many are kept |

pub mod dump;
pub mod dumps;
mod files;
pub mod perfetto;
mod ring;
mod select;
mod when;

use std::sync::Arc;

pub use self::dumps::DumpWriter;

use self::ring::RecordRing;
use criscope_cri::call::CallRecord;

/// The last finished calls.
#[derive(Debug)]
pub struct FlightRecorder {
    kept: RecordRing,
    polls: RecordRing,
}

/// The recorder's contents at one moment; each list is in the order in which the calls ended.
#[derive(Clone, Debug, Default)]
pub struct RecordedCalls {
    /// Calls that changed something, failed or were slow.
    pub calls: Vec<Arc<CallRecord>>,
    /// Other calls.
    pub polls: Vec<Arc<CallRecord>>,
    /// Calls of both kinds that ended since the start of the process and have been overwritten.
    pub forgotten: u64,
}

impl FlightRecorder {
    /// A recorder with these capacities. It allocates as it fills.
    pub fn new(calls: usize, polls: usize) -> Self {
        Self {
            kept: RecordRing::new(calls),
            polls: RecordRing::new(polls),
        }
    }

    /// Records a call. `matters` is false for an ordinary poll.
    pub fn record(&self, record: Arc<CallRecord>, matters: bool) {
        let ring = if matters { &self.kept } else { &self.polls };
        ring.push(record);
    }

    /// All recorded calls: first the polls, then the others, each in the order in which they ended.
    pub fn calls(&self) -> Vec<Arc<CallRecord>> {
        let mut memory = self.memory();
        memory.polls.append(&mut memory.calls);
        memory.polls
    }

    /// All recorded calls, one list per ring. Collected in pieces: a call that ends meanwhile waits for one piece at most.
    pub fn memory(&self) -> RecordedCalls {
        let (calls, forgotten) = self.kept.collect();
        let (polls, forgotten_polls) = self.polls.collect();
        RecordedCalls {
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
