//! Two probes with equal requests and timeouts, told apart by when they run.
//!
//! The kubelet runs each probe in a rhythm of its own: at multiples of its period, from a start that is random where the kubelet was
//! started before. Runs that form two such series belong to two probes.
//!
//! Two cases have no such sign. Runs halfway between each other are as those of one probe with half the period, and remain one probe;
//! of runs at the same time it is known that there are two probes, but not which run is whose.

use std::time::Duration;

use super::{ExecResult, ProbeRun};
use criscope_cri::units::times::UnixMicros;

/// A run may be early or late by this much.
const RHYTHM_TOLERANCE: Duration = Duration::from_millis(150);
/// A run that had to wait for the one before begins this soon after its end.
const WAITING_RUN_FOLLOWS_WITHIN: Duration = Duration::from_millis(20);
/// Fewest runs that show a series.
const MIN_RUNS_IN_SERIES: usize = 3;

/// The runs of two probes, each with its period.
pub(super) struct TwoProbeSeries {
    pub(super) runs: [Vec<ProbeRun>; 2],
    pub(super) periods: [Duration; 2],
}

impl TwoProbeSeries {
    /// Divides the runs of two probes that seemed to be one, the oldest first. `None` if they are one series, or show nothing.
    pub(super) fn from_runs(runs: &[ProbeRun]) -> Option<Self> {
        let mut results = runs.iter().map(|run| run.result);
        let are_regular = results.all(|result| matches!(result, ExecResult::Exit(_)));
        let has_waited = runs
            .windows(2)
            .any(|pair| pair[1].began < pair[0].ended + WAITING_RUN_FOLLOWS_WITHIN);
        if !are_regular || has_waited || period(runs).is_some() {
            return None;
        }
        let (first, rest) = runs.split_first()?;
        let newest = runs.last()?.began;
        rest.iter().find_map(|second| {
            let runs = divided(runs, second.began.abs_diff(first.began));
            let periods = [period(&runs[0])?, period(&runs[1])?];
            let go_on = runs.iter().zip(periods).all(|(runs, period)| {
                let last = runs.last().map_or(UnixMicros::EPOCH, |run| run.began);
                last + period + RHYTHM_TOLERANCE >= newest
            });
            go_on.then_some(Self { runs, periods })
        })
    }

    /// Returns whether the two are too close to each other for a later run to be attributed to one of them.
    pub(super) fn are_close(&self) -> bool {
        let [one, other] = &self.runs;
        let mut pairs = one.iter().flat_map(|a| other.iter().map(move |b| (a, b)));
        pairs.any(|(a, b)| a.began.abs_diff(b.began) < 2 * RHYTHM_TOLERANCE)
    }
}

/// The runs that follow the first at multiples of this period, and the others.
fn divided(runs: &[ProbeRun], period: Duration) -> [Vec<ProbeRun>; 2] {
    let mut due = runs.first().map_or(UnixMicros::EPOCH, |run| run.began);
    let mut divided = [Vec::new(), Vec::new()];
    for run in runs {
        let is_due = run.began.abs_diff(due) <= RHYTHM_TOLERANCE;
        if is_due {
            due = run.began + period;
        }
        divided[usize::from(!is_due)].push(*run);
    }
    divided
}

/// The period of a series of runs; `None` if they are none.
fn period(runs: &[ProbeRun]) -> Option<Duration> {
    if runs.len() < MIN_RUNS_IN_SERIES {
        return None;
    }
    let pairs = runs.windows(2);
    let gaps = pairs.map(|pair| pair[1].began.abs_diff(pair[0].began));
    let (shortest, longest) = (gaps.clone().min()?, gaps.max()?);
    (longest - shortest <= 2 * RHYTHM_TOLERANCE).then_some((shortest + longest) / 2)
}
