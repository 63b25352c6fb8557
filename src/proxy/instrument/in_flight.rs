//! The table of calls in flight.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slab::Slab;

use super::signals::InFlightView;
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
}

impl InFlightView for InFlightCalls {
    fn for_each_oldest(&self, f: &mut dyn FnMut(Method, Duration)) {
        let mut oldest = [Duration::ZERO; Method::COUNT];
        let mut present = [false; Method::COUNT];
        for (_, call) in &*self.lock() {
            let i = call.method.index();
            oldest[i] = oldest[i].max(call.age());
            present[i] = true;
        }
        for method in Method::ALL {
            if present[method.index()] {
                f(method, oldest[method.index()]);
            }
        }
    }

    fn for_each_stuck(&self, f: &mut dyn FnMut(Method, usize)) {
        let mut stuck = [0; Method::COUNT];
        for (_, call) in &*self.lock() {
            stuck[call.method.index()] += usize::from(call.share_used() > 0);
        }
        for method in Method::ALL {
            if stuck[method.index()] > 0 {
                f(method, stuck[method.index()]);
            }
        }
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
