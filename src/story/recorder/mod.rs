//! The flight recorder: the last calls that ended, without payloads, in two rings. Polls come several times a second and
//! have a ring of their own, so that they never push out what matters.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Record;

/// The last calls that ended.
#[derive(Debug)]
pub struct Recorder {
    kept: Ring,
    polls: Ring,
}

impl Recorder {
    /// A recorder for so many calls that matter and so many polls.
    pub fn new(calls: usize, polls: usize) -> Self {
        Self {
            kept: Ring::new(calls),
            polls: Ring::new(polls),
        }
    }

    /// Takes a call in. `matters` says whether it is more than an ordinary poll.
    pub fn record(&self, record: Record, matters: bool) {
        let ring = if matters { &self.kept } else { &self.polls };
        ring.push(record);
    }

    /// All calls that are remembered, in the order in which they ended within each of the two rings: first polls.
    pub fn calls(&self) -> Vec<Record> {
        let mut calls = self.polls.copy();
        calls.extend(self.kept.copy());
        calls
    }
}

/// A ring that grows until it is full.
#[derive(Debug)]
struct Ring {
    records: Mutex<VecDeque<Record>>,
    limit: usize,
}

impl Ring {
    fn new(limit: usize) -> Self {
        Self {
            records: Mutex::default(),
            limit,
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, record: Record) {
        let mut records = self.lock();
        if records.len() >= self.limit {
            records.pop_front();
        }
        if self.limit > 0 {
            records.push_back(record);
        }
    }

    fn copy(&self) -> Vec<Record> {
        self.lock().iter().cloned().collect()
    }
}
