//! Turns: how many layers are fetched and unpacked at the same time, and whose is next.
//!
//! A slow registry must not keep others waiting. So turns go round: next is a layer of the registry that has the fewest
//! turns, then of the pull that has the fewest. A pull without any turn gets an extra one, as long as its registry has no
//! more than the regular ones. When those are gone, too, the slowest layer of another pull gives its turn up: its pull fails,
//! and the next try goes on from what was fetched. Within one pull nothing is ever given up.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::runtime::image::progress::{LayerPhase, LayerProgress, lock};

/// Extra turns for each regular one.
const EXTRA: usize = 2;
/// Bytes per second below which a layer gives up its turn to a pull that has none.
pub(super) const LEAST_RATE: u64 = 32 << 10;

/// See the module. All clones are one.
#[derive(Clone, Debug)]
pub(super) struct Turns(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    regular: usize,
    /// How long a layer is watched before it is called slow.
    watched: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    running: Vec<Running>,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
}

/// Whose layer it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Whose {
    /// Empty for an archive, which is never too slow.
    pub(super) registry: Arc<str>,
    /// A number that no other pull has meanwhile.
    pub(super) pull: usize,
}

#[derive(Debug)]
struct Waiting {
    id: u64,
    whose: Whose,
    watch: Watched,
    ready: oneshot::Sender<()>,
}

#[derive(Debug)]
struct Running {
    id: u64,
    whose: Whose,
    watch: Watched,
    /// When it was looked at last, and what had been fetched by then.
    mark: (Instant, u64),
}

/// How fast a layer is, and how it hears that it is too slow.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) progress: Arc<LayerProgress>,
    pub(super) give_up: CancellationToken,
}

/// A turn, or a place in the queue for one. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    id: u64,
}

impl Turns {
    pub(super) fn new(regular: usize, watched: Duration) -> Self {
        Self(Arc::new(Shared {
            regular: regular.max(1),
            watched: watched.max(Duration::from_millis(1)),
            state: Mutex::default(),
        }))
    }

    /// Waits for a turn.
    pub(super) async fn take(&self, whose: Whose, watch: Watched) -> Turn {
        let (turn, mut ready) = self.queue(whose, watch);
        loop {
            tokio::select! {
                _ = &mut ready => return turn,
                () = tokio::time::sleep(self.0.watched) => self.make_room(turn.id),
            }
        }
    }

    fn queue(&self, whose: Whose, watch: Watched) -> (Turn, oneshot::Receiver<()>) {
        let (sender, ready) = oneshot::channel();
        let mut state = lock(&self.0.state);
        let id = state.next;
        state.next += 1;
        state.waiting.push(Waiting {
            id,
            whose,
            watch,
            ready: sender,
        });
        state.give(self.0.regular);
        drop(state);
        let turns = self.clone();
        (Turn { turns, id }, ready)
    }

    /// For a pull that has waited without any turn: the slowest layer of the others has had its turn.
    fn make_room(&self, id: u64) {
        let mut state = lock(&self.0.state);
        let Some(waiting) = state.waiting.iter().find(|waiting| waiting.id == id) else {
            return;
        };
        let whose = waiting.whose.clone();
        if state.of_pull(&whose) > 0 {
            return;
        }
        // Where its registry has too many, a turn of another would be of no use to it.
        let only_own = state.of_registry(&whose) > self.0.regular;
        let mut slowest: Option<(u64, CancellationToken)> = None;
        for one in &mut state.running {
            if one.watch.give_up.is_cancelled() {
                return;
            }
            let fetched = one.watch.progress.bytes_fetched();
            let (since, before) = one.mark;
            let time = since.elapsed();
            if time < self.0.watched {
                continue;
            }
            one.mark = (Instant::now(), fetched);
            let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
            let rate = fetched.saturating_sub(before).saturating_mul(1000) / millis;
            let fetches = one.watch.progress.phase() == LayerPhase::Fetching;
            if fetches
                && (!only_own || one.whose.registry == whose.registry)
                && !one.whose.registry.is_empty()
                && rate < LEAST_RATE
                && slowest.as_ref().is_none_or(|(slow, _)| rate < *slow)
            {
                slowest = Some((rate, one.watch.give_up.clone()));
            }
        }
        drop(state);
        if let Some((_, give_up)) = slowest {
            give_up.cancel();
        }
    }
}

/// One layer at a time may have a window of up to 128 MiB to be decompressed with.
#[derive(Clone, Debug, Default)]
pub(super) struct WideTurn(Arc<(Mutex<bool>, Condvar)>);

/// See [`WideTurn`]. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Wide(WideTurn);

impl WideTurn {
    /// Waits for it. Blocks; `None` when it is not wanted any more. The caller has all that it will decompress, so that no
    /// registry decides how long others wait.
    pub(super) fn take(&self, cancel: &CancellationToken) -> Option<Wide> {
        let (taken, ended) = &*self.0;
        let mut taken = lock(taken);
        while *taken {
            if cancel.is_cancelled() {
                return None;
            }
            // Nobody tells of a cancellation here.
            let waited = ended.wait_timeout(taken, Duration::from_millis(100));
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *taken = true;
        Some(Wide(self.clone()))
    }
}

impl Drop for Wide {
    fn drop(&mut self) {
        let (taken, ended) = &*self.0.0;
        *lock(taken) = false;
        ended.notify_one();
    }
}

impl State {
    fn of_registry(&self, whose: &Whose) -> usize {
        let same = |one: &&Running| one.whose.registry == whose.registry;
        self.running.iter().filter(same).count()
    }

    fn of_pull(&self, whose: &Whose) -> usize {
        let same = |one: &&Running| one.whose.pull == whose.pull;
        self.running.iter().filter(same).count()
    }

    /// Gives turns to those who wait, as many as there are.
    fn give(&mut self, regular: usize) {
        while let Some(place) = self.whose_turn(regular) {
            let Waiting {
                id,
                whose,
                watch,
                ready,
            } = self.waiting.remove(place);
            let mark = (Instant::now(), watch.progress.bytes_fetched());
            self.running.push(Running {
                id,
                whose,
                watch,
                mark,
            });
            // One that has gone meanwhile ends its turn itself: it waits for this lock.
            let _ = ready.send(());
        }
    }

    fn whose_turn(&self, regular: usize) -> Option<usize> {
        let places = self.waiting.iter().enumerate();
        if self.running.len() < regular {
            let fewest = |(place, one): &(usize, &Waiting)| {
                (
                    self.of_registry(&one.whose),
                    self.of_pull(&one.whose),
                    *place,
                )
            };
            return places.min_by_key(fewest).map(|(place, _)| place);
        }
        if self.running.len() >= regular * (1 + EXTRA) {
            return None;
        }
        let mut starved = places.filter(|(_, one)| {
            self.of_pull(&one.whose) == 0 && self.of_registry(&one.whose) <= regular
        });
        starved.next().map(|(place, _)| place)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = lock(&self.turns.0.state);
        state.waiting.retain(|one| one.id != self.id);
        state.running.retain(|one| one.id != self.id);
        state.give(self.turns.0.regular);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::image::digest::Digest;

    fn whose(registry: &str, pull: usize) -> Whose {
        Whose {
            registry: registry.into(),
            pull,
        }
    }

    fn watch() -> Watched {
        let progress = Arc::new(LayerProgress::new(Digest::of(b"x"), 1 << 30));
        progress.enter(LayerPhase::Fetching);
        Watched {
            progress,
            give_up: CancellationToken::new(),
        }
    }

    fn turns(regular: usize) -> Turns {
        Turns::new(regular, Duration::from_secs(30))
    }

    /// Takes a place, and says whether it is a turn already.
    fn take(turns: &Turns, registry: &str, pull: usize) -> (Turn, bool) {
        let (turn, mut ready) = turns.queue(whose(registry, pull), watch());
        let is_ready = ready.try_recv().is_ok();
        (turn, is_ready)
    }

    #[tokio::test]
    async fn one_pull_has_the_regular_turns_and_no_more() {
        let turns = turns(3);
        let ready: Vec<_> = (0..5).map(|_| take(&turns, "a", 1)).collect();
        let count = ready.iter().filter(|(_, ready)| *ready).count();
        assert_eq!(count, 3);
        drop(ready);
        assert!(take(&turns, "a", 1).1);
        assert!(lock(&turns.0.state).running.is_empty());
    }

    #[tokio::test]
    async fn another_registry_and_another_pull_need_not_wait() {
        let turns = turns(3);
        let slow: Vec<_> = (0..6).map(|_| take(&turns, "slow", 1)).collect();
        let other = take(&turns, "other", 2);
        assert!(other.1, "another registry");
        let same = take(&turns, "slow", 3);
        assert!(same.1, "another pull of the slow one");
        // But a registry cannot take all the extra turns.
        let more: Vec<_> = (4..20).map(|pull| take(&turns, "slow", pull)).collect();
        assert!(more.iter().all(|(_, ready)| !ready));
        assert!(take(&turns, "third", 30).1);
        drop((slow, other, same, more));
    }

    #[tokio::test]
    async fn next_is_who_has_the_fewest() {
        let turns = turns(1);
        let running = take(&turns, "a", 1);
        let (mine, mut mine_ready) = turns.queue(whose("a", 1), watch());
        let extra: Vec<_> = (0..2)
            .map(|n| take(&turns, &format!("b{n}"), 10 + n))
            .collect();
        assert!(extra.iter().all(|(_, ready)| *ready));
        let (other, mut other_ready) = turns.queue(whose("c", 2), watch());
        // One extra turn has come back.
        drop(extra.into_iter().next());
        assert!(other_ready.try_recv().is_ok() && mine_ready.try_recv().is_err());
        drop((running, other));
        let _ = (mine, mine_ready);
    }

    #[tokio::test(start_paused = true)]
    async fn a_registry_makes_room_for_its_own_pulls_only_within_itself() {
        let turns = turns(1);
        let all: Vec<_> = (0..3).map(|_| watch()).collect();
        let mut held = Vec::new();
        for (pull, registry) in ["other", "slow", "slow"].into_iter().enumerate() {
            held.push(turns.take(whose(registry, pull), all[pull].clone()).await);
        }
        all[1].progress.fetched(1 << 30);
        let (waiting, _ready) = turns.queue(whose("slow", 9), watch());
        tokio::time::sleep(Duration::from_secs(31)).await;
        turns.make_room(waiting.id);
        let gave_up: Vec<_> = all.iter().map(|one| one.give_up.is_cancelled()).collect();
        assert_eq!(gave_up, [false, false, true]);
    }

    #[test]
    fn one_wide_window_at_a_time() {
        let (turn, cancel) = (WideTurn::default(), CancellationToken::new());
        let first = turn.take(&cancel).expect("the first");
        let second = std::thread::scope(|scope| {
            let second = scope.spawn(|| turn.take(&cancel));
            assert!(!second.is_finished());
            cancel.cancel();
            second.join().expect("joined")
        });
        assert!(second.is_none());
        drop(first);
        assert!(turn.take(&cancel).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_slowest_gives_up_its_turn_to_a_pull_that_has_none() {
        let turns = turns(1);
        let all: Vec<_> = (0..3).map(|_| watch()).collect();
        let mut held = Vec::new();
        for (pull, watch) in all.iter().enumerate() {
            let registry = format!("slow{pull}");
            held.push(Some(
                turns.take(whose(&registry, pull), watch.clone()).await,
            ));
        }
        // A layer of a pull that has a turn waits as long as it takes.
        let patient = turns.queue(whose("slow0", 0), watch());
        tokio::time::sleep(Duration::from_secs(600)).await;
        turns.make_room(patient.0.id);
        let gave_up = |n: usize| all[n].give_up.is_cancelled();
        assert!(!(0..3).any(gave_up));
        let waiting = turns.take(whose("other", 9), watch());
        tokio::pin!(waiting);
        let fast = LEAST_RATE * 31;
        let mut seconds = 0;
        loop {
            tokio::select! {
                _turn = &mut waiting => break,
                () = tokio::time::sleep(Duration::from_secs(1)) => {
                    seconds += 1;
                    all[0].progress.fetched(LEAST_RATE * 2);
                    all[1].progress.fetched(10);
                    all[2].progress.fetched(fast / 31);
                    for (n, turn) in held.iter_mut().enumerate() {
                        if gave_up(n) {
                            *turn = None;
                        }
                    }
                }
            }
            assert!(seconds < 1000);
        }
        assert!(gave_up(1) && !gave_up(0) && !gave_up(2));
    }
}
