//! The table of calls in flight.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slab::Slab;

use crate::call::Call;
use crate::cri::Method;

/// Every call that has begun and not ended. Cheap to enter and leave; readers copy the references.
#[derive(Debug, Default)]
pub struct InFlightCalls {
    calls: Mutex<Slab<Arc<Call>>>,
}

impl InFlightCalls {
    fn lock(&self) -> MutexGuard<'_, Slab<Arc<Call>>> {
        // A panic elsewhere cannot leave a slab half-written.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call; dropping the seat removes it.
    pub fn enter(self: &Arc<Self>, call: Arc<Call>) -> InFlightGuard {
        let key = self.lock().insert(call);
        InFlightGuard {
            table: Arc::clone(self),
            key,
        }
    }

    /// The calls in flight, the oldest first.
    pub fn calls(&self) -> Vec<Arc<Call>> {
        let mut calls: Vec<_> = self
            .lock()
            .iter()
            .map(|(_, call)| Arc::clone(call))
            .collect();
        calls.sort_unstable_by_key(|call| call.seq);
        calls
    }

    /// The number of calls in flight.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns whether no call is in flight.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The age of the oldest call of each method that has one.
    pub fn oldest(&self) -> HashMap<Method, Duration> {
        let mut oldest = HashMap::<_, Duration>::new();
        for (_, call) in &*self.lock() {
            let age = oldest.entry(call.method).or_default();
            *age = call.age().max(*age);
        }
        oldest
    }

    /// The number of calls of each method that were reported as stuck.
    pub fn stuck(&self) -> HashMap<Method, usize> {
        let mut stuck = HashMap::new();
        for (_, call) in self.lock().iter().filter(|(_, call)| call.share_used() > 0) {
            *stuck.entry(call.method).or_default() += 1;
        }
        stuck
    }
}

/// An entry of the table.
#[derive(Debug)]
pub struct InFlightGuard {
    table: Arc<InFlightCalls>,
    key: usize,
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.table.lock().try_remove(self.key);
    }
}
