//! A bounded number of connections. At the limit, the connection idle for longest is asked to close, so that idle
//! connections never lock out an active caller.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http_body::Body;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::BoxError;
use crate::observed::BodyObserver;

/// Which connections may be asked to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionPolicy {
    /// Only those without a request in progress. If there are none, new connections wait.
    Idle,
    /// Idle ones first, then the one whose request began longest ago.
    Any,
}

/// The permits of one listener.
#[derive(Debug)]
pub struct ConnectionLimit {
    most: usize,
    evict: EvictionPolicy,
    /// Incremented with each event, so that the oldest can be found without a clock.
    tick: AtomicU64,
    open: Mutex<BTreeMap<u64, PermitEntry>>,
    changed: Notify,
}

#[derive(Debug)]
struct PermitEntry {
    state: Arc<ConnectionActivity>,
    leave: CancellationToken,
}

/// Activity of a connection.
#[derive(Debug, Default)]
struct ConnectionActivity {
    requests: AtomicUsize,
    /// When it last began or ended a request.
    since: AtomicU64,
}

impl ConnectionActivity {
    fn is_busy(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }
}

impl ConnectionLimit {
    /// At most this many connections at a time, and at least one.
    pub fn new(most: usize, evict: EvictionPolicy) -> Arc<Self> {
        Arc::new(Self {
            most: most.max(1),
            evict,
            tick: AtomicU64::new(0),
            open: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// A permit for an accepted connection. Waits until one is free, and asks another connection to close if necessary.
    pub async fn take(self: &Arc<Self>) -> ConnectionPermit {
        loop {
            let changed = self.changed.notified();
            {
                let mut open = self.lock();
                if open.len() < self.most {
                    let id = self.next();
                    let state = Arc::<ConnectionActivity>::default();
                    state.since.store(id, Ordering::Relaxed);
                    let leave = CancellationToken::new();
                    let entry = PermitEntry {
                        state: Arc::clone(&state),
                        leave: leave.clone(),
                    };
                    open.insert(id, entry);
                    // The next waiter evicts for itself.
                    self.changed.notify_one();
                    return ConnectionPermit {
                        id,
                        state,
                        leave,
                        limit: Arc::clone(self),
                    };
                }
                self.make_room(&open);
            }
            changed.await;
        }
    }

    /// Asks the connection that is idle for longest to close, unless one is closing already.
    fn make_room(&self, open: &BTreeMap<u64, PermitEntry>) {
        // A connection may get a request just when it is asked to close. Then it stays for as long as the request takes, and
        // makes no room.
        let evictable: Vec<_> = open
            .values()
            .filter(|entry| self.may_evict(entry))
            .collect();
        if evictable.iter().any(|entry| entry.leave.is_cancelled()) {
            return;
        }
        let victim = evictable.into_iter().min_by_key(|entry| {
            let since = entry.state.since.load(Ordering::Relaxed);
            (entry.state.is_busy(), since)
        });
        if let Some(victim) = victim {
            victim.leave.cancel();
        }
    }

    fn may_evict(&self, entry: &PermitEntry) -> bool {
        self.evict == EvictionPolicy::Any || !entry.state.is_busy()
    }

    fn next(&self) -> u64 {
        self.tick.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, PermitEntry>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The permit of one connection, returned when dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    id: u64,
    state: Arc<ConnectionActivity>,
    leave: CancellationToken,
    limit: Arc<ConnectionLimit>,
}

impl ConnectionPermit {
    /// Resolves when the permit is needed for another connection.
    pub async fn wanted(&self) {
        self.leave.cancelled().await;
    }

    /// Resolves when the permit is needed for another connection and no request is in progress. A request that arrives just then
    /// keeps the connection: the caller ends it after that request.
    pub async fn wanted_while_idle(&self) {
        self.wanted().await;
        if !self.is_idle() {
            pending().await
        }
    }

    /// Returns whether no request is in progress.
    pub fn is_idle(&self) -> bool {
        !self.state.is_busy()
    }

    /// Marks a request as in progress until the value is dropped.
    pub fn request(&self) -> RequestInProgress {
        self.state.requests.fetch_add(1, Ordering::Relaxed);
        let since = self.limit.next();
        self.state.since.store(since, Ordering::Relaxed);
        if self.leave.is_cancelled() {
            // Whoever waits for this connection to close needs another one.
            self.limit.changed.notify_one();
        }
        RequestInProgress {
            state: Arc::clone(&self.state),
            limit: Arc::clone(&self.limit),
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limit.lock().remove(&self.id);
        self.limit.changed.notify_one();
    }
}

/// A request in progress.
#[derive(Debug)]
pub struct RequestInProgress {
    state: Arc<ConnectionActivity>,
    limit: Arc<ConnectionLimit>,
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        let since = self.limit.next();
        self.state.since.store(since, Ordering::Relaxed);
        self.state.requests.fetch_sub(1, Ordering::Relaxed);
        // A new connection may be waiting for one that may be evicted.
        self.limit.changed.notify_one();
    }
}

/// A request is in progress until its response body is dropped.
impl<B> BodyObserver<B> for RequestInProgress where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin
{
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn is_wanted(place: &ConnectionPermit) -> bool {
        place.wanted().now_or_never().is_some()
    }

    #[tokio::test]
    async fn the_connection_idle_for_longest_is_evicted() {
        let limit = ConnectionLimit::new(3, EvictionPolicy::Any);
        let (a, b, c) = (limit.take().await, limit.take().await, limit.take().await);
        let busy = a.request();
        let mut newcomer = Box::pin(limit.take());
        assert!((&mut newcomer).now_or_never().is_none(), "all are taken");
        assert!(!is_wanted(&a) && is_wanted(&b) && !is_wanted(&c));
        assert!((&mut newcomer).now_or_never().is_none());
        assert!(!is_wanted(&c), "one is enough");
        drop(b);
        let d = newcomer.await;
        drop(busy);
        // The order is now that of their last activity: c, d, a.
        let e = limit.take();
        tokio::pin!(e);
        assert!((&mut e).now_or_never().is_none());
        assert!(is_wanted(&c) && !is_wanted(&d) && !is_wanted(&a));
    }

    #[tokio::test]
    async fn busy_connections_are_evicted_only_by_any() {
        for (evict, is_cut) in [(EvictionPolicy::Idle, false), (EvictionPolicy::Any, true)] {
            let limit = ConnectionLimit::new(1, evict);
            let a = limit.take().await;
            let busy = a.request();
            let newcomer = limit.take();
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
    async fn a_request_that_comes_with_the_eviction_makes_another_connection_go() {
        let limit = ConnectionLimit::new(2, EvictionPolicy::Idle);
        let (a, b) = (limit.take().await, limit.take().await);
        let mut newcomer = Box::pin(limit.take());
        assert!((&mut newcomer).now_or_never().is_none());
        assert!(is_wanted(&a) && !is_wanted(&b));
        let busy = a.request();
        assert!(a.wanted_while_idle().now_or_never().is_none(), "it stays");
        assert!((&mut newcomer).now_or_never().is_none());
        assert!(is_wanted(&b) && b.wanted_while_idle().now_or_never().is_some());
        drop(b);
        newcomer.await;
        drop(busy);
    }

    #[tokio::test]
    async fn the_limit_is_never_exceeded() {
        let limit = ConnectionLimit::new(4, EvictionPolicy::Any);
        let took = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let (limit, took) = (Arc::clone(&limit), Arc::clone(&took));
                tokio::spawn(async move {
                    let place = limit.take().await;
                    assert!(limit.lock().len() <= 4);
                    took.fetch_add(1, Ordering::Relaxed);
                    place.wanted().await;
                })
            })
            .collect();
        while took.load(Ordering::Relaxed) < 100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(limit.lock().len(), 4);
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
        assert!(limit.lock().is_empty());
    }
}
