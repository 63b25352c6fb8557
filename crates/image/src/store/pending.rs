//! Images whose layers are not safely on disk yet. They can be used at once; their records are in `pending/BOOT`, where they count for
//! this boot of the machine only, so a power failure loses them as a whole. A background thread syncs the file system and moves the
//! records to `images`.
//!
//! A pull itself syncs nothing: a sync would wait for everything that the disk has not written yet, also of other programs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::blocking::lock;
use crate::digest::Digest;
use crate::error::{Error, Result};

/// Images whose layers are not safely on disk yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) state: Mutex<State>,
    pub(super) settled: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Images, and how often each of their records was written.
    pub(super) images: BTreeMap<Digest, u64>,
    /// Images with a record that still has a tag which has moved to one of those.
    pub(super) stale: BTreeSet<Digest>,
    pub(super) is_running: bool,
    /// Syncs that failed, and why the last one did.
    failed: (u64, String),
}

impl State {
    fn is_settled(&self) -> bool {
        self.images.is_empty() && self.stale.is_empty()
    }
}

impl Pending {
    pub(super) fn contains(&self, id: &Digest) -> bool {
        lock(&self.state).images.contains_key(id)
    }

    /// Adds an image, or notes that its record was written again.
    pub(super) fn add(&self, id: &Digest) {
        *lock(&self.state).images.entry(id.clone()).or_default() += 1;
    }

    /// The record of this image must be written again once the pending ones are on disk.
    pub(super) fn outdated(&self, id: &Digest) {
        lock(&self.state).stale.insert(id.clone());
    }

    pub(super) fn forget(&self, id: &Digest) {
        let mut state = lock(&self.state);
        state.images.remove(id);
        state.stale.remove(id);
        self.settled.notify_all();
    }

    /// Returns whether the caller is to start the thread.
    pub(super) fn starts(&self) -> bool {
        let mut state = lock(&self.state);
        let starts = !state.is_running && !state.is_settled();
        state.is_running |= starts;
        starts
    }

    /// The pending work; `None` ends the thread.
    pub(super) fn next(&self) -> Option<BTreeMap<Digest, u64>> {
        let mut state = lock(&self.state);
        state.is_running = !state.is_settled();
        state.is_running.then(|| state.images.clone())
    }

    pub(super) fn failed(&self, error: &Error) {
        let (count, why) = &mut lock(&self.state).failed;
        *count += 1;
        *why = error.to_string();
        self.settled.notify_all();
    }

    /// Blocks until nothing is pending, or a sync fails.
    pub(super) fn wait(&self) -> Result<()> {
        let state = lock(&self.state);
        let (before, _) = state.failed;
        let waited = self.settled.wait_while(state, |state| {
            !state.is_settled() && state.failed.0 == before
        });
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_settled() {
            Ok(())
        } else {
            Err(Error::internal(format!(
                "images are not safely on disk: {}",
                state.failed.1
            )))
        }
    }
}
