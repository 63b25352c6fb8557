//! Failed calls, current and past.

use std::time::Duration;

use super::cause::{CallFailure, FailureKind, WorkProgress};
use super::fault::{self, FaultClass};
use super::{broken_off, evidence, history, work};
use crate::episode_call::EpisodeCall;
use crate::episode_store::Episode;
use crate::node::NodeFactKind;
use crate::process_scanner::WorkKind;
use criscope_cri::Method;
use criscope_cri::call::{Ending, FaultKind};
use criscope_cri::units::times::UnixMicros;

fn is_same(one: &EpisodeCall, other: &EpisodeCall) -> bool {
    one.method == other.method
        && one.image == other.image
        && one.container_name() == other.container_name()
}

/// Returns whether the same call failed before after at least as long a time, and says more than this one: it has an error, or
/// observed work where this one has none yet. A downtime that broke it off says nothing about the call.
pub(super) fn is_retry(episode: &Episode, call: &EpisodeCall) -> bool {
    let mut calls = episode.calls.iter();
    calls.any(|c| {
        let tells_more = call.work.is_empty() && !c.work.is_empty();
        let failed = c.has_ended(Ending::Error) || c.is_bad() && tells_more;
        let tells_why = failed && broken_off::downtime(episode, c).is_none();
        tells_why && is_same(c, call) && c.elapsed() >= call.elapsed()
    })
}

/// The newest failure that no later call resolved.
pub(super) fn newest_unresolved(episode: &Episode) -> Option<&EpisodeCall> {
    all_unresolved(episode).next()
}

/// All failures that no later call resolved, the newest first.
pub(super) fn all_unresolved(episode: &Episode) -> impl Iterator<Item = &EpisodeCall> {
    let calls = episode.calls.iter().enumerate().rev();
    let bad = calls.filter(|(_, call)| call.is_bad());
    let open = bad.filter(|(i, call)| {
        let mut later = episode.calls.range(i + 1..);
        !later.any(|later| resolves(later, call))
    });
    let open = open.map(|(_, call)| call);
    // Another image may have taken the place of the one that could not be pulled.
    open.filter(|call| call.method != Method::PullImage || episode.is_unresolved(call.target()))
}

/// Returns whether a success resolves an earlier failure of the same call, for a StartContainer of its CreateContainer, or for a
/// StopContainer of the hook before it.
fn resolves(later: &EpisodeCall, failed: &EpisodeCall) -> bool {
    let started = later.method == Method::StartContainer
        && failed.method == Method::CreateContainer
        && later.container_name() == failed.container_name();
    let stopped = later.method == Method::StopContainer
        && failed.method == Method::ExecSync
        && later.container_name() == failed.container_name();
    later.has_ended(Ending::Ok) && (started || stopped || is_same(later, failed))
}

/// The failure with the most tries, of an episode in which all were resolved.
pub(super) fn most_tried(episode: &Episode) -> Option<&EpisodeCall> {
    let failed = episode.calls.iter().filter(|call| call.is_bad());
    failed.max_by_key(|call| tries(episode, call))
}

/// The number of failed attempts at the same call.
pub(super) fn tries(episode: &Episode, call: &EpisodeCall) -> usize {
    let calls = episode.calls.iter();
    calls.filter(|c| c.is_bad() && is_same(c, call)).count()
}

/// The pulls that failed between the end of a run and the pull of this restart, in another episode: the run had ended soon after its
/// start.
pub(super) fn pulls_before_restart<'a>(
    ended: UnixMicros,
    restart: &Episode,
    pod: &[&'a Episode],
    now: UnixMicros,
) -> Option<CallFailure<'a>> {
    let pulled = work::calls_of(restart, Method::PullImage);
    let images: Vec<_> = pulled.filter_map(|call| call.image.as_deref()).collect();
    let others = pod
        .iter()
        .copied()
        .filter(|other| other.number != restart.number && other.pod.attempt == restart.pod.attempt);
    let calls = others.flat_map(|other| other.calls.iter().map(move |call| (other, call)));
    let failed = calls.filter(|(_, call)| {
        let is_before = (ended..=restart.began).contains(&call.began_at());
        let image = call.image.as_deref();
        call.method == Method::PullImage
            && call.is_bad()
            && is_before
            && image.is_some_and(|image| images.contains(&image))
    });
    let (other, last) = failed.max_by_key(|(_, call)| call.began)?;
    Some(call_failure(other, last, now, true))
}

/// The failure of `call` and of earlier attempts at it. `is_resolved`: whether a later call succeeded.
pub(super) fn call_failure<'a>(
    episode: &'a Episode,
    call: &'a EpisodeCall,
    now: UnixMicros,
    is_resolved: bool,
) -> CallFailure<'a> {
    let calls = episode.calls.iter();
    let failed: Vec<_> = calls.filter(|c| c.is_bad() && is_same(c, call)).collect();
    // A try is refused because an earlier one was not undone. The earlier one is the cause.
    let last = failed.iter().rposition(|c| !is_refusal(c));
    let refused = failed.len() - last.map_or(0, |at| at + 1);
    let (last, refused) = match last {
        Some(at) => (failed[at], refused),
        None => (call, 0),
    };
    let kind = failure_kind(last, &failed);
    CallFailure {
        last,
        first: failed
            .first()
            .map_or(last.began_at(), |call| call.began_at()),
        tries: failed.len() - refused,
        evidence: evidence::failure_evidence(episode, last, kind.fault()),
        kind,
        work: progress(&failed),
        refused_tries: refused,
        is_resolved,
        is_given_up: false,
        is_not_tried_again: !is_resolved && is_not_tried_again(episode, now),
        now,
    }
}

impl CallFailure<'_> {
    /// The same failure, which is over if a call of the pod stopped the sandbox since.
    pub(super) fn given_up_in(mut self, pod: &[&Episode]) -> Self {
        let mut calls = history::calls(pod);
        self.is_given_up = calls.any(|call| {
            let is_of_sandbox = call.pod == self.last.pod;
            let is_later = call.began_at() >= self.last.ended_at();
            call.is_good() && history::ends_sandbox(call) && is_of_sandbox && is_later
        }) && !self.last.method.takes_away();
        self.is_not_tried_again &= !self.is_given_up;
        self
    }

    /// Returns whether the failure is over.
    pub(super) fn is_past(&self) -> bool {
        self.is_resolved || self.is_given_up
    }
}

/// Returns whether the kubelet has not tried again although it was running.
fn is_not_tried_again(episode: &Episode, now: UnixMicros) -> bool {
    let mut facts = episode.node.iter();
    let is_away = facts.any(|fact| {
        let is_of_kubelet = matches!(
            fact.kind,
            NodeFactKind::NoKubelet | NodeFactKind::KubeletSilent
        );
        let no_caller = fact.is_of_criscope() || is_of_kubelet;
        no_caller && !fact.within(episode.ended, now).is_zero()
    });
    episode.is_not_tried_again(now) && !is_away
}

/// The observed work for these calls, which has ended.
pub(super) fn progress<'a>(failed: &[&'a EpisodeCall]) -> WorkProgress<'a> {
    let most = work::longest_of_all_kinds(&failed.iter().copied());
    most.map_or(WorkProgress::Unseen, WorkProgress::SoFar)
}

fn failure_kind(last: &EpisodeCall, failed: &[&EpisodeCall]) -> FailureKind {
    // Code and text are those of the fault's rule, not of a runtime.
    if is_injected(last) {
        return FailureKind::Injected;
    }
    if is_refusal(last) {
        let times = failed.len();
        return FailureKind::NameReserved { times };
    }
    let ending = last.outcome().map(|outcome| outcome.ending);
    let alike = failed.iter().filter(|call| match ending {
        Some(Ending::Deadline) => is_late(call),
        Some(ending) => call.has_ended(ending),
        None => false,
    });
    let has_error = last.error().is_some();
    match ending {
        Some(Ending::Deadline) if is_late(last) => {
            let (deadline, times) = (last.deadline.unwrap_or(last.took()), alike.count());
            if is_in_network(last) {
                let plugin = plugin(last);
                return FailureKind::NetworkHung {
                    plugin,
                    deadline,
                    times,
                };
            }
            FailureKind::DeadlinePassed { deadline, times }
        }
        Some(Ending::Deadline) => FailureKind::RuntimeGaveUp {
            after: last.took(),
            deadline: last.deadline,
        },
        // A status with this code is the runtime's; a caller that cancels gets none.
        Some(Ending::Cancelled) if !has_error => FailureKind::CallerCancelled {
            times: alike.clone().count(),
            longest: alike.map(|c| c.took()).max().unwrap_or_default(),
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
        let plugin = plugin(last);
        return FailureKind::Network { plugin, fault };
    }
    FailureKind::Error { fault }
}

/// Returns whether the call failed on purpose, without reaching the runtime.
pub(super) fn is_injected(call: &EpisodeCall) -> bool {
    call.fault
        .is_some_and(|fault| fault.kind() == FaultKind::Fail)
}

/// A caller's clock starts before ours, and a runtime gives up a little before the deadline that it was sent.
const DEADLINE_TOLERANCE: Duration = Duration::from_millis(100);

/// Returns whether the caller's deadline had passed at the end.
fn is_late(call: &EpisodeCall) -> bool {
    call.has_ended(Ending::Deadline)
        && call
            .deadline
            .is_some_and(|deadline| call.took() + DEADLINE_TOLERANCE.min(deadline / 10) >= deadline)
}

/// Returns whether the runtime refused because it still holds the name for an earlier attempt.
fn is_refusal(call: &EpisodeCall) -> bool {
    let Some(error) = call.error() else {
        return false;
    };
    let makes = call.method.makes_sandbox() || call.method == Method::CreateContainer;
    makes && (error.contains("is reserved") || error.contains("name is in use"))
}

/// The error message of a call.
pub(super) fn error_message(call: &EpisodeCall) -> &str {
    call.error().map_or("", |error| error)
}

/// Returns whether a failed call failed in the network: its text says so, or a CNI plugin took most of its time.
pub(super) fn is_in_network(call: &EpisodeCall) -> bool {
    let is_of_method = call.method.makes_sandbox() || call.method == Method::StopPodSandbox;
    let plugins = work::longest(WorkKind::Cni, &std::iter::once(call));
    let is_most = plugins.is_some_and(|worker| 2 * worker.took >= call.took());
    is_of_method && (fault::is_of_network(call) || is_most)
}

/// The CNI plugin in which a call failed, if it is known.
fn plugin(call: &EpisodeCall) -> Option<String> {
    let text = error_message(call);
    match fault::plugin(text) {
        Some(plugin) => Some(plugin),
        // The text names a plugin in a way that cannot be read, and it need not be the one that was seen.
        None if fault::names_plugin(text) => None,
        None => only_plugin(call),
    }
}

/// The CNI plugin that was seen during the call, if there was only one. Of several plugins any may have failed.
fn only_plugin(call: &EpisodeCall) -> Option<String> {
    let mut plugins = call.work.iter().filter(|work| work.kind == WorkKind::Cni);
    let first = plugins.next()?;
    let is_only = plugins.all(|work| work.name == first.name);
    is_only.then(|| (*first.name).to_owned())
}
