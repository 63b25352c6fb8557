//! Failed calls, current and past.

use super::cause::{CallFailure, FailureKind, WorkProgress};
use super::fault::{self, FaultClass};
use super::work;
use crate::call::{Ending, FaultKind};
use crate::cri::Method;
use crate::lifecycle::episode_call::{EpisodeCall, millis};
use crate::lifecycle::episode_store::Episode;
use crate::lifecycle::node::FactKind;
use crate::lifecycle::process_scanner::WorkKind;

fn is_same(one: &EpisodeCall, other: &EpisodeCall) -> bool {
    one.method == other.method
        && one.image == other.image
        && one.container_name() == other.container_name()
}

/// Returns whether the same call failed before, after at least the time that this one has taken, and tells more: an error, or work
/// that has not been observed for this one yet.
pub(super) fn is_retry(episode: &Episode, call: &EpisodeCall) -> bool {
    let mut calls = episode.calls.iter();
    calls.any(|c| {
        let tells_more = call.work.is_empty() && !c.work.is_empty();
        let failed = c.has_ended(Ending::Error) || c.is_bad() && tells_more;
        failed && is_same(c, call) && c.elapsed() >= call.elapsed()
    })
}

/// The newest failure that no later call resolved.
pub(super) fn newest_unresolved(episode: &Episode) -> Option<&EpisodeCall> {
    all_unresolved(episode).next()
}

/// All of them, the newest first.
pub(super) fn all_unresolved(episode: &Episode) -> impl Iterator<Item = &EpisodeCall> {
    let calls = episode.calls.iter().enumerate().rev();
    let bad = calls.filter(|(_, call)| call.is_bad());
    let open = bad.filter(|(i, call)| {
        let mut later = episode.calls.range(i + 1..);
        !later.any(|later| makes_good(later, call))
    });
    open.map(|(_, call)| call)
}

/// Returns whether a success resolves an earlier failure: that of the same call, and for a StartContainer also that of its
/// CreateContainer.
fn makes_good(later: &EpisodeCall, failed: &EpisodeCall) -> bool {
    let started = later.method == Method::StartContainer
        && failed.method == Method::CreateContainer
        && later.container_name() == failed.container_name();
    later.has_ended(Ending::Ok) && (started || is_same(later, failed))
}

/// The failure with the most tries, of an episode in which all were resolved.
pub(super) fn most_tried(episode: &Episode) -> Option<&EpisodeCall> {
    let bad = || episode.calls.iter().filter(|call| call.is_bad());
    bad().max_by_key(|call| bad().filter(|c| is_same(c, call)).count())
}

/// The number of failed attempts at the same call.
pub(super) fn tries(episode: &Episode, call: &EpisodeCall) -> usize {
    let calls = episode.calls.iter();
    calls.filter(|c| c.is_bad() && is_same(c, call)).count()
}

/// The failure of `call` and of earlier attempts at it. `past`: it was resolved.
pub(super) fn call_failure<'a>(
    episode: &'a Episode,
    call: &'a EpisodeCall,
    now: u64,
    is_resolved: bool,
) -> CallFailure<'a> {
    let calls = episode.calls.iter();
    let failed: Vec<_> = calls.filter(|c| c.is_bad() && is_same(c, call)).collect();
    // What a refused try says is that an earlier one was not undone. That one is the cause.
    let last = failed.iter().rposition(|c| !is_refusal(c));
    let refused = failed.len() - last.map_or(0, |at| at + 1);
    let (last, refused) = match last {
        Some(at) => (failed[at], refused),
        None => (call, 0),
    };
    CallFailure {
        last,
        tries: failed.len() - refused,
        kind: failure_kind(last, &failed),
        work: progress(&failed),
        refused_tries: refused,
        is_resolved,
        is_not_tried_again: !is_resolved && is_not_tried_again(episode, now),
        now,
    }
}

/// Returns whether the kubelet has not tried again although it was there.
fn is_not_tried_again(episode: &Episode, now: u64) -> bool {
    let mut facts = episode.node.iter();
    let is_away = facts.any(|fact| {
        let no_caller = fact.is_of_criscope() || fact.kind == FactKind::NoKubelet;
        no_caller && fact.within(episode.ended, now) > 0
    });
    episode.is_not_tried_again(now) && !is_away
}

fn progress<'a>(failed: &[&'a EpisodeCall]) -> WorkProgress<'a> {
    let looked = failed.iter().any(|call| call.scanned);
    let most = work::most(&failed.iter().copied());
    most.map_or(WorkProgress::Unseen { looked }, WorkProgress::SoFar)
}

fn failure_kind(last: &EpisodeCall, failed: &[&EpisodeCall]) -> FailureKind {
    // Code and text are those that the fault was told to have.
    if is_injected(last) {
        return FailureKind::Injected;
    }
    if is_refusal(last) {
        let times = failed.len();
        return FailureKind::NameReserved { times };
    }
    let ending = last.outcome().map(|outcome| outcome.ending);
    let is_alike = |c: &&&EpisodeCall| match ending {
        Some(Ending::Deadline) => is_late(c),
        Some(ending) => c.has_ended(ending),
        None => false,
    };
    let alike = || failed.iter().filter(is_alike);
    let said = last.error().is_some();
    match ending {
        Some(Ending::Deadline) if is_late(last) => FailureKind::DeadlinePassed {
            deadline: last.deadline_ms().unwrap_or(last.duration_ms()),
            times: alike().count(),
        },
        Some(Ending::Deadline) => FailureKind::RuntimeGaveUp {
            after: last.duration_ms(),
            deadline: last.deadline_ms(),
        },
        // A status of this code is the runtime's; a caller that cancels gets none.
        Some(Ending::Cancelled) if !said => FailureKind::CallerCancelled {
            longest: millis(alike().map(|c| c.elapsed_us()).max().unwrap_or_default()),
            times: alike().count(),
        },
        _ => error_kind(last),
    }
}

fn error_kind(last: &EpisodeCall) -> FailureKind {
    let fault = FaultClass::from_call(last);
    if fault::is_of_sandbox_image(last) {
        return FailureKind::PauseImage { fault };
    }
    if fault::is_of_network(last) {
        let text = error_message(last);
        // The text may name the plugin in a way that cannot be read; it need not be the one that was seen.
        let seen = || only_plugin(last).filter(|_| !fault::names_plugin(text));
        let plugin = fault::plugin(text).or_else(seen);
        return FailureKind::Network { plugin, fault };
    }
    FailureKind::Error { fault }
}

/// Returns whether it failed on purpose, without reaching the runtime.
pub(super) fn is_injected(call: &EpisodeCall) -> bool {
    call.fault
        .is_some_and(|fault| fault.kind() == FaultKind::Fail)
}

/// A caller's clock starts before ours, and a runtime gives up a little before the deadline that it was sent. In
/// milliseconds.
const DEADLINE_TOLERANCE_MS: f64 = 100.0;

/// Returns whether the caller's deadline had passed at the end.
fn is_late(call: &EpisodeCall) -> bool {
    let ran_out =
        |deadline: f64| call.duration_ms() + DEADLINE_TOLERANCE_MS.min(deadline / 10.0) >= deadline;
    call.has_ended(Ending::Deadline) && call.deadline_ms().is_some_and(ran_out)
}

/// Returns whether the runtime refused because it still holds the name for an earlier attempt.
fn is_refusal(call: &EpisodeCall) -> bool {
    let Some(error) = call.error() else {
        return false;
    };
    let makes = matches!(call.method, Method::RunPodSandbox | Method::CreateContainer);
    makes && (error.contains("is reserved") || error.contains("name is in use"))
}

/// The error message of a call.
pub(super) fn error_message(call: &EpisodeCall) -> &str {
    call.error().map_or("", |error| error)
}

/// The CNI plugin that was seen during the call, if there was only one: of several it is not known which one failed.
fn only_plugin(call: &EpisodeCall) -> Option<String> {
    let plugins = || call.work.iter().filter(|work| work.kind == WorkKind::Cni);
    let first = plugins().next()?;
    let is_only = plugins().all(|work| work.name == first.name);
    is_only.then(|| (*first.name).to_owned())
}
