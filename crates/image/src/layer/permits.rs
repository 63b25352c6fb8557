//! Download permits: how many layers are fetched and unpacked at the same time, and which one is next.
//!
//! A slow registry must not starve others. So permits are shared fairly: the next one goes to the registry that holds the
//! fewest, then to the pull that holds the fewest. A pull without a permit gets an extra one, as long as its registry holds
//! no more than the regular number. When the extra permits are used up as well, the slowest layer of another pull loses its
//! permit: that pull fails, and its retry resumes the download. A pull never displaces its own layers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::blocking::lock;
use crate::progress::{LayerPhase, LayerProgress};

/// Number of extra permits per regular permit.
const EXTRA: usize = 2;
/// Bytes per second below which a layer loses its permit to a pull that has none.
pub(super) const LEAST_RATE: u64 = 32 << 10;

/// Grants permits. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Permits(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    regular: usize,
    /// How long a layer is measured before it can count as slow.
    measured: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    running: Vec<QueuedLayer>,
    /// In order of arrival.
    waiting: Vec<QueuedLayer>,
}

/// The pull that requests a permit, and the registry of its layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requester {
    /// The registry; empty for an archive, which never counts as slow.
    pub(super) registry: Arc<str>,
    /// Unique among the pulls in progress.
    pub(super) pull: usize,
}

/// A layer in the queue, or one with a permit.
#[derive(Debug)]
struct QueuedLayer {
    id: u64,
    requester: Requester,
    monitor: Monitor,
    /// When it was last measured with a permit, and the number of bytes fetched until then.
    mark: (Instant, u64),
    /// Receives the permit, unless it was there at once.
    ready: Option<oneshot::Sender<()>>,
}

/// The progress of a layer, and the token that revokes its permit.
#[derive(Clone, Debug)]
pub(super) struct Monitor {
    pub(super) progress: Arc<LayerProgress>,
    pub(super) give_up: CancellationToken,
}

/// A permit, or a position in the queue. Returned when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    permits: Permits,
    id: u64,
}

impl Permits {
    pub(super) fn new(regular: usize, measured: Duration) -> Self {
        Self(Arc::new(Shared {
            regular: regular.max(1),
            measured: measured.max(Duration::from_millis(1)),
            state: Mutex::default(),
        }))
    }

    /// Waits for a permit.
    pub(super) async fn acquire(&self, requester: Requester, monitor: Monitor) -> Permit {
        let (permit, mut ready) = self.queue(requester, monitor);
        loop {
            tokio::select! {
                _ = &mut ready => return permit,
                () = tokio::time::sleep(self.0.measured) => self.displace_slowest(permit.id),
            }
        }
    }

    /// A permit for another connection of a layer that has one, if no pull waits.
    pub(super) fn spare(&self, requester: Requester, monitor: Monitor) -> Option<Permit> {
        let mut state = lock(&self.0.state);
        if state.running.len() >= self.0.regular || !state.waiting.is_empty() {
            return None;
        }
        let layer = state.layer(requester, monitor, None);
        let (permits, id) = (self.clone(), layer.id);
        state.run(layer);
        Some(Permit { permits, id })
    }

    fn queue(&self, requester: Requester, monitor: Monitor) -> (Permit, oneshot::Receiver<()>) {
        let (sender, ready) = oneshot::channel();
        let mut state = lock(&self.0.state);
        let layer = state.layer(requester, monitor, Some(sender));
        let id = layer.id;
        state.waiting.push(layer);
        state.grant(self.0.regular);
        drop(state);
        let permits = self.clone();
        (Permit { permits, id }, ready)
    }

    /// Takes the permit of the slowest layer of other pulls, for a pull that has waited without any permit.
    fn displace_slowest(&self, id: u64) {
        let mut state = lock(&self.0.state);
        let Some(waiting) = state.waiting.iter().find(|waiting| waiting.id == id) else {
            return;
        };
        let requester = waiting.requester.clone();
        if state.held_by_pull(&requester) > 0 {
            return;
        }
        // If its own registry holds too many, a permit of another registry would not be granted to it.
        let only_own = state.held_by_registry(&requester) > self.0.regular;
        let mut slowest: Option<(u64, CancellationToken)> = None;
        for one in &mut state.running {
            if one.monitor.give_up.is_cancelled() {
                return;
            }
            let fetched = one.monitor.progress.bytes_fetched();
            let (since, before) = one.mark;
            let time = since.elapsed();
            if time < self.0.measured {
                continue;
            }
            one.mark = (Instant::now(), fetched);
            let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
            let rate = fetched.saturating_sub(before).saturating_mul(1000) / millis;
            let fetches = one.monitor.progress.phase() == LayerPhase::Fetching;
            if fetches
                && (!only_own || one.requester.registry == requester.registry)
                && !one.requester.registry.is_empty()
                && rate < LEAST_RATE
                && slowest.as_ref().is_none_or(|(slow, _)| rate < *slow)
            {
                slowest = Some((rate, one.monitor.give_up.clone()));
            }
        }
        drop(state);
        if let Some((_, give_up)) = slowest {
            give_up.cancel();
        }
    }
}

impl State {
    /// Permits held for the registry of a requester.
    fn held_by_registry(&self, requester: &Requester) -> usize {
        let running = self.running.iter().map(|one| &one.requester.registry);
        running.filter(|one| **one == requester.registry).count()
    }

    /// Permits held by the pull of a requester.
    fn held_by_pull(&self, requester: &Requester) -> usize {
        let running = self.running.iter().map(|one| one.requester.pull);
        running.filter(|one| *one == requester.pull).count()
    }

    fn layer(
        &mut self,
        requester: Requester,
        monitor: Monitor,
        ready: Option<oneshot::Sender<()>>,
    ) -> QueuedLayer {
        self.next += 1;
        QueuedLayer {
            id: self.next,
            requester,
            monitor,
            mark: (Instant::now(), 0),
            ready,
        }
    }

    fn run(&mut self, mut layer: QueuedLayer) {
        layer.mark = (Instant::now(), layer.monitor.progress.bytes_fetched());
        let ready = layer.ready.take();
        self.running.push(layer);
        // If the receiver is gone, its permit is being dropped, and that waits for this lock.
        let _ = ready.map(|ready| ready.send(()));
    }

    /// Grants all available permits.
    fn grant(&mut self, regular: usize) {
        while let Some(index) = self.next_index(regular) {
            let layer = self.waiting.remove(index);
            self.run(layer);
        }
    }

    fn next_index(&self, regular: usize) -> Option<usize> {
        let waiting = self.waiting.iter().enumerate();
        if self.running.len() < regular {
            let next = waiting.min_by_key(|(index, one)| {
                (
                    self.held_by_registry(&one.requester),
                    self.held_by_pull(&one.requester),
                    *index,
                )
            });
            return next.map(|(index, _)| index);
        }
        if self.running.len() >= regular * (1 + EXTRA) {
            return None;
        }
        let mut starved = waiting.filter(|(_, one)| {
            self.held_by_pull(&one.requester) == 0
                && self.held_by_registry(&one.requester) <= regular
        });
        starved.next().map(|(index, _)| index)
    }
}

impl Permit {
    /// Returns whether a pull waits for a permit.
    pub(super) fn is_wanted(&self) -> bool {
        !lock(&self.permits.0.state).waiting.is_empty()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = lock(&self.permits.0.state);
        state.waiting.retain(|one| one.id != self.id);
        state.running.retain(|one| one.id != self.id);
        state.grant(self.permits.0.regular);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    fn requester(registry: &str, pull: usize) -> Requester {
        Requester {
            registry: registry.into(),
            pull,
        }
    }

    fn monitor() -> Monitor {
        let progress = Arc::new(LayerProgress::new(Digest::sha256(b"x"), 1 << 30));
        progress.enter(LayerPhase::Fetching);
        Monitor {
            progress,
            give_up: CancellationToken::new(),
        }
    }

    fn permits(regular: usize) -> Permits {
        Permits::new(regular, Duration::from_secs(30))
    }

    /// Requests a permit, and returns whether it was granted at once.
    fn take(permits: &Permits, registry: &str, pull: usize) -> (Permit, bool) {
        let (permit, mut ready) = permits.queue(requester(registry, pull), monitor());
        let is_ready = ready.try_recv().is_ok();
        (permit, is_ready)
    }

    #[tokio::test]
    async fn one_pull_gets_only_the_regular_permits() {
        let permits = permits(3);
        let ready: Vec<_> = (0..5).map(|_| take(&permits, "a", 1)).collect();
        let count = ready.iter().filter(|(_, ready)| *ready).count();
        assert_eq!(count, 3);
        drop(ready);
        assert!(take(&permits, "a", 1).1);
        assert!(lock(&permits.0.state).running.is_empty());
    }

    #[tokio::test]
    async fn a_spare_permit_is_one_without_a_waiter() {
        let permits = permits(2);
        let first = take(&permits, "a", 1);
        let spare = permits.spare(requester("a", 1), monitor()).expect("one");
        assert!(permits.spare(requester("a", 1), monitor()).is_none());
        assert!(!spare.is_wanted());
        let waiting = take(&permits, "a", 1);
        assert!(!waiting.1 && spare.is_wanted());
        drop(spare);
        assert!(permits.spare(requester("a", 1), monitor()).is_none());
        drop((first, waiting));
        assert!(lock(&permits.0.state).running.is_empty());
    }

    #[tokio::test]
    async fn other_registries_and_pulls_get_extra_permits() {
        let permits = permits(3);
        let slow: Vec<_> = (0..6).map(|_| take(&permits, "slow", 1)).collect();
        let other = take(&permits, "other", 2);
        assert!(other.1, "another registry");
        let same = take(&permits, "slow", 3);
        assert!(same.1, "another pull of the slow one");
        // But one registry cannot take all the extra permits.
        let more: Vec<_> = (4..20).map(|pull| take(&permits, "slow", pull)).collect();
        assert!(more.iter().all(|(_, ready)| !ready));
        assert!(take(&permits, "third", 30).1);
        drop((slow, other, same, more));
    }

    #[tokio::test]
    async fn the_requester_with_the_fewest_permits_is_next() {
        let permits = permits(1);
        let running = take(&permits, "a", 1);
        let (mine, mut mine_ready) = permits.queue(requester("a", 1), monitor());
        let extra: Vec<_> = (0..2)
            .map(|n| take(&permits, &format!("b{n}"), 10 + n))
            .collect();
        assert!(extra.iter().all(|(_, ready)| *ready));
        let (other, mut other_ready) = permits.queue(requester("c", 2), monitor());
        // One extra permit is free again.
        drop(extra.into_iter().next());
        assert!(other_ready.try_recv().is_ok() && mine_ready.try_recv().is_err());
        drop((running, other));
        let _ = (mine, mine_ready);
    }

    #[tokio::test(start_paused = true)]
    async fn a_registry_over_its_share_displaces_only_its_own_layers() {
        let permits = permits(1);
        let all: Vec<_> = (0..3).map(|_| monitor()).collect();
        let mut held = Vec::new();
        for (pull, registry) in ["other", "slow", "slow"].into_iter().enumerate() {
            held.push(
                permits
                    .acquire(requester(registry, pull), all[pull].clone())
                    .await,
            );
        }
        all[1].progress.fetched(1 << 30);
        let (waiting, _ready) = permits.queue(requester("slow", 9), monitor());
        tokio::time::sleep(Duration::from_secs(31)).await;
        permits.displace_slowest(waiting.id);
        let gave_up: Vec<_> = all.iter().map(|one| one.give_up.is_cancelled()).collect();
        assert_eq!(gave_up, [false, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_slowest_layer_loses_its_permit_to_a_pull_without_one() {
        let permits = permits(1);
        let all: Vec<_> = (0..3).map(|_| monitor()).collect();
        let mut held = Vec::new();
        for (pull, monitor) in all.iter().enumerate() {
            let registry = format!("slow{pull}");
            held.push(Some(
                permits
                    .acquire(requester(&registry, pull), monitor.clone())
                    .await,
            ));
        }
        // A layer of a pull that has a permit displaces no other.
        let patient = permits.queue(requester("slow0", 0), monitor());
        tokio::time::sleep(Duration::from_secs(600)).await;
        permits.displace_slowest(patient.0.id);
        let gave_up = |n: usize| all[n].give_up.is_cancelled();
        assert!(!(0..3).any(gave_up));
        let waiting = permits.acquire(requester("other", 9), monitor());
        tokio::pin!(waiting);
        let fast = LEAST_RATE * 31;
        let mut seconds = 0;
        loop {
            tokio::select! {
                _permit = &mut waiting => break,
                () = tokio::time::sleep(Duration::from_secs(1)) => {
                    seconds += 1;
                    all[0].progress.fetched(LEAST_RATE * 2);
                    all[1].progress.fetched(10);
                    all[2].progress.fetched(fast / 31);
                    for (n, permit) in held.iter_mut().enumerate() {
                        if gave_up(n) {
                            *permit = None;
                        }
                    }
                }
            }
            assert!(seconds < 1000);
        }
        assert!(gave_up(1) && !gave_up(0) && !gave_up(2));
    }
}
