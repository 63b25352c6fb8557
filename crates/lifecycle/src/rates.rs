//! Rates, errors and durations of calls by method, over the last minute, the last hour and since the start.
//!
//! The module takes snapshots of the histograms that the request path fills anyway: one every five seconds for the last
//! minute, one every minute for the last hour. A rate is the difference to a snapshot. Only methods that were called have
//! snapshots, about 7 KiB per method: 300 KiB for all methods, about 100 KiB on a node.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use criscope_cri::call::{Ending, routine};
use criscope_cri::method::Method;
use criscope_cri::status::Code;
use criscope_telemetry::family::{Counters, Histograms};
use criscope_telemetry::metric::CALL_BUCKETS;

/// Interval between two snapshots.
pub const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(5);

/// Snapshots per minute.
const SNAPSHOTS_PER_MINUTE: usize = 12;

/// Snapshots of the last minute, and one more, so that the oldest is never younger than a minute.
const MINUTE_SNAPSHOTS: usize = SNAPSHOTS_PER_MINUTE + 1;

/// Snapshots of the last hour, and one more, so that the oldest is never younger than an hour.
const HOUR_SNAPSHOTS: usize = 60 + 1;

/// Bounds of the call histogram; the last count is the total.
const BUCKET_COUNT: usize = CALL_BUCKETS.len() + 1;

/// The outcomes of calls, as indices of [`CallCounts::ends`]. They exclude each other.
const OK: usize = 0;
const FAILED: usize = 1;
const CANCELLED: usize = 2;
const ROUTINE: usize = 3;

/// Counts of one method: calls by outcome, and calls up to each bound. Counts wrap: a difference is right as long as fewer
/// than 2^32 calls lie between two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CallCounts {
    ends: [u32; 4],
    up_to: [u32; BUCKET_COUNT],
}

impl CallCounts {
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

    /// The duration in seconds that a share of the calls did not exceed; `None` without calls. The estimate is the one of
    /// Prometheus: calls are spread evenly within a bucket, and the last bound is the largest result.
    fn quantile(&self, share: f64) -> Option<f64> {
        let bounds = CALL_BUCKETS;
        let all = self.up_to[BUCKET_COUNT - 1];
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
pub struct WindowRates {
    /// Length of the window; shorter than requested while the process is young.
    pub time: Duration,
    /// Calls that ended.
    pub calls: u64,
    /// Calls that ended with an error or at their deadline, without routine errors.
    pub errors: u64,
    /// Calls with a routine error ([`criscope_cri::call::routine`]).
    pub routine: u64,
    /// Calls that the caller cancelled.
    pub cancelled: u64,
    /// Median, 95th and 99th percentile; `None` without calls.
    pub quantiles: [Option<Duration>; 3],
}

impl WindowRates {
    fn new(counts: &CallCounts, time: Duration) -> Self {
        let ends = counts.ends.map(u64::from);
        Self {
            time,
            calls: ends.iter().sum(),
            errors: ends[FAILED],
            routine: ends[ROUTINE],
            cancelled: ends[CANCELLED],
            quantiles: [0.5, 0.95, 0.99]
                .map(|share| counts.quantile(share).map(Duration::from_secs_f64)),
        }
    }
}

/// Rates of one method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MethodRates {
    /// The method.
    pub method: Method,
    /// The last minute.
    pub minute: WindowRates,
    /// The last hour.
    pub hour: WindowRates,
    /// Since the start of the process.
    pub all: WindowRates,
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
struct MethodSnapshots {
    fine: [CallCounts; MINUTE_SNAPSHOTS],
    coarse: [CallCounts; HOUR_SNAPSHOTS],
}

#[derive(Debug)]
struct SnapshotState {
    fine: SnapshotTimes<MINUTE_SNAPSHOTS>,
    coarse: SnapshotTimes<HOUR_SNAPSHOTS>,
    steps: usize,
    methods: [Option<Box<MethodSnapshots>>; Method::COUNT],
}

/// The rates of all methods.
pub struct CallRates {
    durations: Arc<Histograms<(Method, Ending)>>,
    routine: Arc<Counters<(Method, Code)>>,
    started: Instant,
    started_at: SystemTime,
    state: Mutex<SnapshotState>,
}

impl fmt::Debug for CallRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rates").finish_non_exhaustive()
    }
}

impl CallRates {
    /// Rates of the calls in `durations`, by method and ending. `routine` counts the calls with a routine error, by method and
    /// code.
    pub fn new(
        durations: Arc<Histograms<(Method, Ending)>>,
        routine: Arc<Counters<(Method, Code)>>,
    ) -> Self {
        let rates = Self {
            durations,
            routine,
            started: Instant::now(),
            started_at: SystemTime::now(),
            state: Mutex::new(SnapshotState {
                fine: SnapshotTimes::new(),
                coarse: SnapshotTimes::new(),
                steps: 0,
                methods: [const { None }; Method::COUNT],
            }),
        };
        rates.step(rates.started);
        rates
    }

    /// The time at which counting began.
    pub fn started_at(&self) -> SystemTime {
        self.started_at
    }

    /// Takes snapshots until dropped.
    pub async fn run(self: Arc<Self>) {
        let mut interval = tokio::time::interval(SNAPSHOT_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        interval.tick().await;
        loop {
            interval.tick().await;
            self.step(Instant::now());
        }
    }

    fn lock(&self) -> MutexGuard<'_, SnapshotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts of every method that was called.
    fn read(&self) -> [Option<CallCounts>; Method::COUNT] {
        // Read first: a call that ends meanwhile is then an error for a moment, instead of a negative number of errors.
        let routine = Method::ALL.map(|method| self.routine(method));
        let mut all = Method::ALL.map(|method| self.durations_of(method));
        for (counts, routine) in all.iter_mut().zip(routine) {
            if let Some(CallCounts { ends, .. }) = counts {
                ends[FAILED] = ends[FAILED].wrapping_sub(routine);
                ends[ROUTINE] = routine;
            }
        }
        all
    }

    /// The counts of a method, if it was called; calls with a routine error count as failed.
    fn durations_of(&self, method: Method) -> Option<CallCounts> {
        let mut all: Option<CallCounts> = None;
        for ending in Ending::ALL {
            let Some(observed) = self.durations.counts((method, ending)) else {
                continue;
            };
            let counts = all.get_or_insert_default();
            let end = match ending {
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
        }
        all
    }

    /// Calls of a method so far whose error is routine.
    fn routine(&self, method: Method) -> u32 {
        let codes = routine::CODES.into_iter();
        let counts = codes.filter_map(|code| self.routine.used((method, code)));
        // Wrapping is intended.
        counts.fold(0, |sum, count| sum.wrapping_add(count.get() as u32))
    }

    fn step(&self, now: Instant) {
        let counts = self.read();
        let mut state = self.lock();
        let fine = state.fine.put(now);
        let coarse = state
            .steps
            .is_multiple_of(SNAPSHOTS_PER_MINUTE)
            .then(|| state.coarse.put(now));
        state.steps += 1;
        for (snapshots, counts) in state.methods.iter_mut().zip(counts) {
            let Some(counts) = counts else { continue };
            let snapshots = snapshots.get_or_insert_with(|| {
                // The first call of a method: earlier snapshots are zero.
                Box::new(MethodSnapshots {
                    fine: [CallCounts::default(); MINUTE_SNAPSHOTS],
                    coarse: [CallCounts::default(); HOUR_SNAPSHOTS],
                })
            });
            snapshots.fine[fine] = counts;
            if let Some(coarse) = coarse {
                snapshots.coarse[coarse] = counts;
            }
        }
    }

    /// Rates of every method that was called, in the order of [`Method::ALL`].
    pub fn figures(&self) -> Vec<MethodRates> {
        self.figures_at(Instant::now())
    }

    fn figures_at(&self, now: Instant) -> Vec<MethodRates> {
        let counts = self.read();
        let state = self.lock();
        let minute = state
            .fine
            .before(now, SNAPSHOT_INTERVAL * SNAPSHOTS_PER_MINUTE as u32);
        let hour = state.coarse.before(now, Duration::from_secs(3600));

        let figures = Method::ALL.into_iter().zip(counts).zip(&state.methods);
        let figures = figures.filter_map(|((method, counts), snapshots)| {
            let counts = counts?;
            let snapshots = snapshots.as_deref();
            let (fine, coarse) = (
                snapshots.map(|s| &s.fine[..]).unwrap_or_default(),
                snapshots.map(|s| &s.coarse[..]).unwrap_or_default(),
            );
            Some(MethodRates {
                method,
                minute: self.window(&counts, fine, minute, now),
                hour: self.window(&counts, coarse, hour, now),
                all: self.window(&counts, &[], None, now),
            })
        });
        figures.collect()
    }

    /// The rates since a snapshot, which is given as its index and time; since the start of the process without one.
    fn window(
        &self,
        counts: &CallCounts,
        snapshots: &[CallCounts],
        since: Option<(usize, Instant)>,
        now: Instant,
    ) -> WindowRates {
        let (before, at) = match since {
            Some((index, at)) => (snapshots.get(index).copied().unwrap_or_default(), at),
            None => (CallCounts::default(), self.started),
        };
        WindowRates::new(&counts.since(&before), now.saturating_duration_since(at))
    }
}

#[cfg(test)]
pub(super) mod tests;
