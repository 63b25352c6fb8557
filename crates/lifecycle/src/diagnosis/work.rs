//! Observed work of CNI plugins, the OCI runtime and the runtime itself within calls.

use std::time::Duration;

use crate::episode_call::{EpisodeCall, ObservedWork};
use crate::episode_store::Episode;
use crate::process_scanner::WorkKind;
use criscope_cri::Method;
use criscope_cri::units::times::UnixMicros;

/// The longest worker of a kind over several calls.
#[derive(Debug)]
pub(crate) struct LongestWorker<'a> {
    pub(super) kind: WorkKind,
    pub(super) name: &'a str,
    /// True if the work is a step of the built-in runtime.
    pub(super) own: bool,
    pub(super) activity: Option<&'a str>,
    /// Concurrent work counts once.
    pub(super) took: Duration,
    /// The part of the time that no span within explains, so that of nested spans the innermost counts as the longest.
    alone: Duration,
    /// The call during which it worked longest.
    pub(super) call: &'a EpisodeCall,
}

/// The longest worker of this kind in these calls.
pub(super) fn longest<'a>(
    kind: WorkKind,
    calls: &(impl Iterator<Item = &'a EpisodeCall> + Clone),
) -> Option<LongestWorker<'a>> {
    let of_kind: Vec<_> = calls
        .clone()
        .flat_map(|call| call.work.iter().map(move |work| (call, work)))
        .filter(|(_, work)| work.kind == kind)
        .collect();
    let mut names: Vec<&str> = of_kind.iter().map(|(_, work)| &*work.name).collect();
    names.sort_unstable();
    names.dedup();
    let workers = names.into_iter().filter_map(|name| {
        let own = of_kind.iter().filter(|(_, work)| *work.name == *name);
        let took = covered(own.clone().map(|(_, work)| *work));
        let alone = own.clone().map(|(call, work)| alone(call, work)).sum();
        let (call, _) = own.clone().max_by_key(|(_, work)| work.took())?;
        let active = own.clone().filter(|(_, work)| work.activity.is_some());
        let active = active.max_by_key(|(_, work)| work.took());
        Some(LongestWorker {
            kind,
            name,
            own: own.clone().any(|(_, work)| work.own),
            activity: active.and_then(|(_, work)| work.activity.as_deref()),
            took,
            alone: took.min(alone),
            call,
        })
    });
    workers.max_by_key(|worker| worker.alone)
}

/// The part of a span without the spans within it. Other work has no spans within it.
fn alone(call: &EpisodeCall, span: &ObservedWork) -> Duration {
    let within = call.work.iter().filter(|work| {
        let is_below = work.kind == span.kind && work.depth > span.depth;
        is_below && work.began >= span.began && work.ended <= span.ended
    });
    span.took().saturating_sub(covered(within))
}

/// Total time that this work covers.
fn covered<'a>(work: impl Iterator<Item = &'a ObservedWork>) -> Duration {
    let mut spans: Vec<_> = work.map(|work| (work.began, work.ended)).collect();
    spans.sort_unstable();
    let (mut sum, mut end) = (Duration::ZERO, UnixMicros::EPOCH);
    for (from, to) in spans {
        sum += to.since(from.max(end));
        end = end.max(to);
    }
    sum
}

/// The longest worker of all kinds in these calls.
pub(super) fn longest_of_all_kinds<'a>(
    calls: &(impl Iterator<Item = &'a EpisodeCall> + Clone),
) -> Option<LongestWorker<'a>> {
    let kinds = WorkKind::ALL.into_iter();
    let workers = kinds.filter_map(|kind| longest(kind, calls));
    // If two workers have the same time, the first is more specific. A worker that holds a call up explains the work of others.
    workers.reduce(|a, b| {
        let holds = matches!(a.kind, WorkKind::Injected | WorkKind::Blocked);
        let explains = holds && 2 * a.took >= b.took;
        if b.took > a.took && !explains { b } else { a }
    })
}

/// Work observed last within this time counts as current: scans are periodic.
const SCANNED_WORK_CURRENT_FOR: Duration = Duration::from_secs(2);

/// Steps of the built-in runtime that ended within this time count as current: their times are exact.
const STEP_CURRENT_FOR: Duration = Duration::from_millis(5);

/// The current work for a call in flight.
pub(super) fn at_work(call: &EpisodeCall) -> Option<LongestWorker<'_>> {
    let now = call.ended_at();
    WorkKind::ALL.into_iter().find_map(|kind| {
        let mut newest_first = call.work.iter().rev();
        let work = newest_first.find(|work| work.kind == kind && is_current(work, now))?;
        Some(LongestWorker {
            name: &work.name,
            own: work.own,
            activity: work.activity.as_deref(),
            ..longest(kind, &std::iter::once(call))?
        })
    })
}

fn is_current(work: &ObservedWork, now: UnixMicros) -> bool {
    let since = now.since(work.ended);
    if work.own {
        since <= STEP_CURRENT_FOR
    } else {
        work.is_process() && since <= SCANNED_WORK_CURRENT_FOR
    }
}

/// The calls of an episode with this method.
pub(super) fn calls_of(
    episode: &Episode,
    method: Method,
) -> impl Iterator<Item = &EpisodeCall> + Clone {
    episode
        .calls
        .iter()
        .filter(move |call| call.method == method)
}
