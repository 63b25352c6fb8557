//! Rates, errors and durations of calls by method, over the last minute, the last hour and since the start.
//!
//! Snapshots of the histograms that the request path fills anyway: one every five seconds for the last minute, one every
//! minute for the last hour. The calls since then are the difference. Only methods that were called have snapshots, about 7
//! KiB in total each: 300 KiB for all methods, a third of that on a node.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::call::{Ending, routine};
use crate::cri::method::Method;
use crate::telemetry::family::{Counters, Histograms};
use crate::telemetry::metric::CALL_BUCKETS;

/// Interval between two snapshots.
pub const STEP: Duration = Duration::from_secs(5);

/// Snapshots per minute.
const STEPS_PER_MINUTE: usize = 12;

/// Snapshots of the last minute, and one more, so that the oldest is never younger than a minute.
const FINE: usize = STEPS_PER_MINUTE + 1;

/// The same for the last hour.
const COARSE: usize = 60 + 1;

/// Bounds of the call histogram; the last count is the total.
const BUCKETS: usize = CALL_BUCKETS.len() + 1;

/// The ends that are told apart, as indices of [`Counts::ends`]. The last is part of no other.
const OK: usize = 0;
const FAILED: usize = 1;
const CANCELLED: usize = 2;
const ROUTINE: usize = 3;

/// Counts of one method: calls by their end, and calls up to each bound. They wrap: a difference is right as long as fewer
/// than 2^32 calls lie between two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    ends: [u32; 4],
    up_to: [u32; BUCKETS],
}

impl Counts {
    fn since(&self, before: &Self) -> Self {
        let mut since = *self;
        for (now, before) in since.ends.iter_mut().zip(before.ends) {
            *now = now.wrapping_sub(before);
        }
        for (now, before) in since.up_to.iter_mut().zip(before.up_to) {
            *now = now.wrapping_sub(before);
        }
        since
    }

    /// The duration in seconds that a share of the calls did not exceed; `None` without calls. As Prometheus does it: calls
    /// are spread evenly within a bucket, and the last bound is the largest result.
    fn quantile(&self, share: f64) -> Option<f64> {
        let bounds = CALL_BUCKETS;
        let all = self.up_to[BUCKETS - 1];
        if all == 0 {
            return None;
        }
        let rank = share * f64::from(all);
        let bucket = self.up_to.iter().position(|n| f64::from(*n) >= rank)?;
        let Some(upper) = bounds.get(bucket) else {
            return bounds.last().copied();
        };
        let (lower, below) = match bucket {
            0 => (0.0, 0),
            bucket => (bounds[bucket - 1], self.up_to[bucket - 1]),
        };
        let within = f64::from(self.up_to[bucket] - below).max(1.0);
        Some(lower + (upper - lower) * (rank - f64::from(below)) / within)
    }
}

/// Calls of one method within a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Within {
    /// Length of the window; shorter than requested while the process is young.
    pub time: Duration,
    /// Calls that ended.
    pub calls: u64,
    /// Of these, those that ended with an error, or at their deadline, unless that is routine.
    pub errors: u64,
    /// Of these, those whose error is routine ([`crate::call::routine`]).
    pub routine: u64,
    /// Of these, those that the caller cancelled.
    pub cancelled: u64,
    /// Median, 95th and 99th percentile; `None` without calls.
    pub quantiles: [Option<Duration>; 3],
}

impl Within {
    fn of(counts: &Counts, time: Duration) -> Self {
        let ended = |end: usize| u64::from(counts.ends[end]);
        let quantile = |share| counts.quantile(share).map(Duration::from_secs_f64);
        Self {
            time,
            calls: [OK, FAILED, CANCELLED, ROUTINE]
                .into_iter()
                .map(ended)
                .sum(),
            errors: ended(FAILED),
            routine: ended(ROUTINE),
            cancelled: ended(CANCELLED),
            quantiles: [0.5, 0.95, 0.99].map(quantile),
        }
    }
}

/// Rates of one method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// The method.
    pub method: Method,
    /// The last minute.
    pub minute: Within,
    /// The last hour.
    pub hour: Within,
    /// Since the start of the process.
    pub all: Within,
}

/// A ring of snapshots: the time of each, the oldest overwritten.
#[derive(Debug)]
struct SnapshotTimes<const N: usize> {
    at: [Option<Instant>; N],
    next: usize,
}

impl<const N: usize> SnapshotTimes<N> {
    fn new() -> Self {
        Self {
            at: [None; N],
            next: 0,
        }
    }

    fn put(&mut self, now: Instant) -> usize {
        let index = self.next;
        self.at[index] = Some(now);
        self.next = (index + 1) % N;
        index
    }

    /// The youngest snapshot of at least this age, or else the oldest.
    fn before(&self, now: Instant, age: Duration) -> Option<(usize, Instant)> {
        let snapshots = self.at.iter().enumerate();
        let snapshots = snapshots.filter_map(|(index, at)| Some((index, (*at)?)));
        let old = snapshots
            .clone()
            .filter(|(_, at)| now.saturating_duration_since(*at) >= age)
            .max_by_key(|(_, at)| *at);
        old.or_else(|| snapshots.min_by_key(|(_, at)| *at))
    }
}

/// All snapshots of one method.
#[derive(Debug)]
struct Snapshots {
    fine: [Counts; FINE],
    coarse: [Counts; COARSE],
}

#[derive(Debug)]
struct State {
    fine: SnapshotTimes<FINE>,
    coarse: SnapshotTimes<COARSE>,
    steps: usize,
    methods: [Option<Box<Snapshots>>; Method::COUNT],
}

/// See the module documentation.
pub struct Rates {
    durations: Arc<Histograms<2>>,
    routine: Arc<Counters<2>>,
    started: Instant,
    started_at: SystemTime,
    state: Mutex<State>,
}

impl fmt::Debug for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rates").finish_non_exhaustive()
    }
}

impl Rates {
    /// Rates of the calls in these histograms, by method and ending. `routine` counts those whose error is routine, by method
    /// and code.
    pub fn new(durations: Arc<Histograms<2>>, routine: Arc<Counters<2>>) -> Self {
        let rates = Self {
            durations,
            routine,
            started: Instant::now(),
            started_at: SystemTime::now(),
            state: Mutex::new(State {
                fine: SnapshotTimes::new(),
                coarse: SnapshotTimes::new(),
                steps: 0,
                methods: [const { None }; Method::COUNT],
            }),
        };
        rates.step(rates.started);
        rates
    }

    /// When counting began.
    pub fn started_at(&self) -> SystemTime {
        self.started_at
    }

    /// Takes snapshots until dropped.
    pub async fn run(self: Arc<Self>) {
        let mut interval = tokio::time::interval(STEP);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        interval.tick().await;
        loop {
            interval.tick().await;
            self.step(Instant::now());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts of every method that was called.
    fn read(&self) -> [Option<Counts>; Method::COUNT] {
        // Read first: a call that ends meanwhile is then an error for a moment, instead of a negative number of errors.
        let routine = Method::ALL.map(|method| self.routine(method));
        let mut all = [None; Method::COUNT];
        self.durations.read(|[method, ending], observed| {
            let counts: &mut Counts = all[method].get_or_insert_default();
            let end = match Ending::ALL[ending] {
                Ending::Ok => OK,
                Ending::Error | Ending::Deadline => FAILED,
                Ending::Cancelled => CANCELLED,
            };
            // Wrapping is intended.
            counts.ends[end] = counts.ends[end].wrapping_add(observed.count as u32);
            let up_to = observed.up_to.into_iter().chain([observed.count]);
            for (sum, n) in counts.up_to.iter_mut().zip(up_to) {
                *sum = sum.wrapping_add(n as u32);
            }
        });
        for (counts, routine) in all.iter_mut().zip(routine) {
            if let Some(Counts { ends, .. }) = counts {
                ends[FAILED] = ends[FAILED].wrapping_sub(routine);
                ends[ROUTINE] = routine;
            }
        }
        all
    }

    /// Calls of a method so far whose error is routine.
    fn routine(&self, method: Method) -> u32 {
        let codes = routine::CODES.into_iter();
        let counts = codes.filter_map(|code| self.routine.used([method.index(), code as usize]));
        // Wrapping is intended.
        counts.fold(0, |sum, count| sum.wrapping_add(count.get() as u32))
    }

    fn step(&self, now: Instant) {
        let counts = self.read();
        let mut state = self.lock();
        let fine = state.fine.put(now);
        let coarse = state
            .steps
            .is_multiple_of(STEPS_PER_MINUTE)
            .then(|| state.coarse.put(now));
        state.steps += 1;
        for (snapshots, counts) in state.methods.iter_mut().zip(counts) {
            let Some(counts) = counts else { continue };
            let snapshots = snapshots.get_or_insert_with(|| {
                // Its first call: earlier snapshots are zero.
                Box::new(Snapshots {
                    fine: [Counts::default(); FINE],
                    coarse: [Counts::default(); COARSE],
                })
            });
            snapshots.fine[fine] = counts;
            if let Some(coarse) = coarse {
                snapshots.coarse[coarse] = counts;
            }
        }
    }

    /// Rates of every method that was called, in the order of [`Method::ALL`].
    pub fn figures(&self) -> Vec<Figures> {
        self.figures_at(Instant::now())
    }

    fn figures_at(&self, now: Instant) -> Vec<Figures> {
        let counts = self.read();
        let state = self.lock();
        let minute = state.fine.before(now, STEP * STEPS_PER_MINUTE as u32);
        let hour = state.coarse.before(now, Duration::from_secs(3600));
        let age = |at: Instant| now.saturating_duration_since(at);
        let zero = Counts::default();
        let figures = Method::ALL.into_iter().zip(counts).zip(&state.methods);
        let figures = figures.filter_map(|((method, counts), snapshots)| {
            let counts = counts?;
            let snapshots = snapshots.as_deref();
            let fine = |index: usize| snapshots.map_or(&zero, |c| &c.fine[index]);
            let coarse = |index: usize| snapshots.map_or(&zero, |c| &c.coarse[index]);
            let within = |before: Option<(&Counts, Instant)>| {
                let (before, at) = before.unwrap_or((&zero, self.started));
                Within::of(&counts.since(before), age(at))
            };
            Some(Figures {
                method,
                minute: within(minute.map(|(index, at)| (fine(index), at))),
                hour: within(hour.map(|(index, at)| (coarse(index), at))),
                all: Within::of(&counts, age(self.started)),
            })
        });
        figures.collect()
    }
}

#[cfg(test)]
pub(super) mod tests;
