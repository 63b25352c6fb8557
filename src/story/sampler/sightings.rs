//! What was seen so far, by the call it was seen for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Whose work was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// A CNI plugin.
    Cni,
    /// The OCI runtime.
    Oci,
    /// The runtime itself, by a span that it reported.
    Runtime,
}

impl Work {
    /// A word for pages and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cni => "cni",
            Self::Oci => "oci",
            Self::Runtime => "runtime",
        }
    }
}

/// A process that worked for a call, from the first to the last time it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Whose work it was.
    pub work: Work,
    /// Name of the program: the CNI plugin's type, the OCI runtime.
    pub name: Arc<str>,
    /// The program it had started, or its command.
    pub doing: Option<Arc<str>>,
    /// When it began: its start as the kernel tells it, or when it was first seen.
    pub began: SystemTime,
    /// When it was last seen.
    pub last_seen: SystemTime,
}

/// Most calls, and most sightings of one call, that are held.
const LIMITS: (usize, usize) = (256, 64);

/// The sightings of calls in flight, by the number of the call.
#[derive(Debug, Default)]
pub struct Sightings {
    calls: Mutex<HashMap<u64, Vec<Sighting>>>,
}

impl Sightings {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Vec<Sighting>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was seen for a call that is in flight, in the order in which it began.
    pub fn of(&self, seq: u64) -> Vec<Sighting> {
        self.lock().get(&seq).cloned().unwrap_or_default()
    }

    /// The same for a call that has ended, which is then forgotten.
    pub fn take(&self, seq: u64) -> Vec<Sighting> {
        self.lock().remove(&seq).unwrap_or_default()
    }

    /// Replaces what was seen for a call. False if there is no room.
    pub fn put(&self, seq: u64, mut sightings: Vec<Sighting>) -> bool {
        sightings.truncate(LIMITS.1);
        let mut calls = self.lock();
        let room = calls.len() < LIMITS.0 || calls.contains_key(&seq);
        if room {
            calls.insert(seq, sightings);
        }
        room
    }

    /// Forgets calls that are no longer in flight and that nobody asked for.
    pub fn retain(&self, in_flight: impl Fn(u64) -> bool) {
        self.lock().retain(|seq, _| in_flight(*seq));
    }
}
