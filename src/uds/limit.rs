//! A bounded number of connections. When all places are taken, the connection that has been quiet longest is asked to go,
//! so that idle connections never lock out a caller that has something to say.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Which connections may be asked to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evict {
    /// Only those that carry no request. If there are none, a newcomer waits.
    Idle,
    /// Idle ones first, then those whose request began longest ago.
    Any,
}

/// The places of one listener.
#[derive(Debug)]
pub struct ConnectionLimit {
    most: usize,
    evict: Evict,
    /// Counts up with each event, so that "longest ago" needs no clock.
    tick: AtomicU64,
    open: Mutex<BTreeMap<u64, Entry>>,
    changed: Notify,
}

#[derive(Debug)]
struct Entry {
    state: Arc<State>,
    leave: CancellationToken,
}

/// What a connection does.
#[derive(Debug, Default)]
struct State {
    requests: AtomicUsize,
    /// When it last began or ended a request.
    since: AtomicU64,
}

impl ConnectionLimit {
    /// At most this many connections at a time, and at least one.
    pub fn new(most: usize, evict: Evict) -> Arc<Self> {
        Arc::new(Self {
            most: most.max(1),
            evict,
            tick: AtomicU64::new(0),
            open: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// A place for a connection that was accepted. Waits until one is free, and asks another connection to go if need be.
    pub async fn take(self: &Arc<Self>) -> ConnectionPermit {
        loop {
            let changed = self.changed.notified();
            {
                let mut open = self.lock();
                if open.len() < self.most {
                    let id = self.next();
                    let state = Arc::<State>::default();
                    state.since.store(id, Ordering::Relaxed);
                    let leave = CancellationToken::new();
                    let entry = Entry {
                        state: Arc::clone(&state),
                        leave: leave.clone(),
                    };
                    open.insert(id, entry);
                    // Another that waits sees to its own place.
                    self.changed.notify_one();
                    return ConnectionPermit {
                        id,
                        state,
                        leave,
                        places: Arc::clone(self),
                    };
                }
                self.make_room(&open);
            }
            changed.await;
        }
    }

    fn make_room(&self, open: &BTreeMap<u64, Entry>) {
        if open.values().any(|entry| entry.leave.is_cancelled()) {
            return;
        }
        let requests = |entry: &Entry| entry.state.requests.load(Ordering::Relaxed);
        let victim = open
            .values()
            .filter(|entry| self.evict == Evict::Any || requests(entry) == 0)
            .min_by_key(|entry| {
                let since = entry.state.since.load(Ordering::Relaxed);
                (requests(entry) > 0, since)
            });
        if let Some(victim) = victim {
            victim.leave.cancel();
        }
    }

    fn next(&self) -> u64 {
        self.tick.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection, given back when dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    id: u64,
    state: Arc<State>,
    leave: CancellationToken,
    places: Arc<ConnectionLimit>,
}

impl ConnectionPermit {
    /// Returns when the place is wanted for another connection.
    pub async fn wanted(&self) {
        self.leave.cancelled().await;
    }

    /// Whether no request is being served.
    pub fn is_idle(&self) -> bool {
        self.state.requests.load(Ordering::Relaxed) == 0
    }

    /// Notes a request on this connection, until the value is dropped.
    pub fn request(&self) -> Busy {
        self.state.requests.fetch_add(1, Ordering::Relaxed);
        let since = self.places.next();
        self.state.since.store(since, Ordering::Relaxed);
        Busy {
            state: Arc::clone(&self.state),
            places: Arc::clone(&self.places),
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.places.lock().remove(&self.id);
        self.places.changed.notify_one();
    }
}

/// A request that is being served.
#[derive(Debug)]
pub struct Busy {
    state: Arc<State>,
    places: Arc<ConnectionLimit>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        let since = self.places.next();
        self.state.since.store(since, Ordering::Relaxed);
        self.state.requests.fetch_sub(1, Ordering::Relaxed);
        // A newcomer may be waiting for a connection that may be asked to go.
        self.places.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn is_wanted(place: &ConnectionPermit) -> bool {
        place.wanted().now_or_never().is_some()
    }

    #[tokio::test]
    async fn the_connection_that_was_quiet_longest_makes_room() {
        let places = ConnectionLimit::new(3, Evict::Any);
        let (a, b, c) = (
            places.take().await,
            places.take().await,
            places.take().await,
        );
        let busy = a.request();
        let mut newcomer = Box::pin(places.take());
        assert!((&mut newcomer).now_or_never().is_none(), "all are taken");
        assert!(!is_wanted(&a) && is_wanted(&b) && !is_wanted(&c));
        assert!((&mut newcomer).now_or_never().is_none());
        assert!(!is_wanted(&c), "one is enough");
        drop(b);
        let d = newcomer.await;
        drop(busy);
        // The order is now that of what they did last: c, d, a.
        let e = places.take();
        tokio::pin!(e);
        assert!((&mut e).now_or_never().is_none());
        assert!(is_wanted(&c) && !is_wanted(&d) && !is_wanted(&a));
    }

    #[tokio::test]
    async fn connections_with_requests_are_spared_where_that_was_asked_for() {
        for (evict, is_cut) in [(Evict::Idle, false), (Evict::Any, true)] {
            let places = ConnectionLimit::new(1, evict);
            let a = places.take().await;
            let busy = a.request();
            let newcomer = places.take();
            tokio::pin!(newcomer);
            assert!((&mut newcomer).now_or_never().is_none());
            assert_eq!(is_wanted(&a), is_cut, "{evict:?}");
            drop(busy);
            assert!((&mut newcomer).now_or_never().is_none());
            assert!(is_wanted(&a), "{evict:?}: it is idle now");
            drop(a);
            newcomer.await;
        }
    }

    #[tokio::test]
    async fn there_are_never_more_than_were_allowed() {
        let places = ConnectionLimit::new(4, Evict::Any);
        let took = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let (places, took) = (Arc::clone(&places), Arc::clone(&took));
                tokio::spawn(async move {
                    let place = places.take().await;
                    assert!(places.lock().len() <= 4);
                    took.fetch_add(1, Ordering::Relaxed);
                    place.wanted().await;
                })
            })
            .collect();
        while took.load(Ordering::Relaxed) < 100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(places.lock().len(), 4);
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
        assert!(places.lock().is_empty());
    }
}
