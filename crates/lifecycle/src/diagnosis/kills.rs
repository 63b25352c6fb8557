//! Rules on containers that the kubelet kills, and on the reasons. `words::kubelet` makes the sentences.

use std::collections::BTreeMap;
use std::time::Duration;

use super::history;
use super::kubelet::{is_hook, is_same_container};
use crate::episode_call::EpisodeCall;
use crate::episode_store::Episode;
use crate::kubelet::execs::ExecResult;
use crate::kubelet::probes::{FailedProbe, KillEvidence};
use criscope_cri::Method;
use criscope_cri::units::times::UnixMicros;

/// Kills further apart than this are not one series: six times the longest back-off of the kubelet.
const MAX_GAP_BETWEEN_KILLS: Duration = Duration::from_secs(30 * 60);
/// How long after the last kill a container that runs again counts as being killed again and again.
const KILL_LOOP_LASTS: Duration = Duration::from_secs(10 * 60);
/// The kubelet kills a container this soon after a failed postStart hook.
const KILL_FOLLOWS_HOOK_WITHIN: Duration = Duration::from_secs(2);
/// How long after its grace period a runtime has killed a container.
const KILL_OVERDUE_AFTER: Duration = Duration::from_secs(2);

/// Why the kubelet killed a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KillReason {
    /// An exec probe had failed before: a liveness or startup probe, or, on weak evidence, another probe.
    Probe(FailedProbe),
    /// The postStart hook of the container had failed just before.
    PostStart(ExecResult),
    /// The CRI shows no reason.
    Unknown,
}

impl KillReason {
    /// Returns whether the calls show this reason.
    pub(super) fn is_known(self) -> bool {
        match self {
            Self::Probe(probe) => probe.evidence != KillEvidence::Weak,
            Self::PostStart(_) => true,
            Self::Unknown => false,
        }
    }
}

/// A series of kills of a container.
#[derive(Clone, Debug)]
pub(crate) struct KillLoop<'a> {
    pub(super) container: &'a str,
    pub(super) kills: usize,
    /// From the first kill to the last.
    pub(super) window: Duration,
    pub(super) reason: KillReason,
    /// True if the pod was stopped since.
    pub(super) is_over: bool,
    /// The end of the last kill, or now if it goes on.
    pub(super) at: UnixMicros,
}

/// Returns whether the kubelet stopped a container.
pub(super) fn is_kill(call: &EpisodeCall) -> bool {
    call.method == Method::StopContainer && call.peer.is_kubelet() && call.is_good()
}

/// Returns whether a stop in flight is a kill. A stop without a reason may be the end of the pod, which shows only when the
/// sandbox is stopped.
fn is_kill_in_flight(pod: &[&Episode], call: &EpisodeCall) -> bool {
    call.is_in_flight() && known_kill_reason(pod, call).is_some()
}

/// Returns whether a stop goes on although the grace period is over and the runtime had time to kill the container.
pub(super) fn is_overdue(call: &EpisodeCall) -> bool {
    let grace = call.facts.grace_period();
    grace.is_some_and(|grace| call.took() > grace + KILL_OVERDUE_AFTER)
}

/// The reason for which the kubelet is stopping a container, if the calls of the pod show it. The stop may be part of the pod's stop, so
/// only an event right before it shows a reason.
pub(super) fn known_kill_reason(pod: &[&Episode], call: &EpisodeCall) -> Option<KillReason> {
    let is_stop = call.method == Method::StopContainer && call.peer.is_kubelet();
    let reason = is_stop.then(|| kill_reason(pod, call))?;
    match reason {
        KillReason::Probe(probe) if probe.evidence != KillEvidence::AtOnce => None,
        reason => reason.is_known().then_some(reason),
    }
}

/// Why the kubelet killed a container by this call.
pub(super) fn kill_reason(episodes: &[&Episode], kill: &EpisodeCall) -> KillReason {
    let probe = kill.probe.map(KillReason::Probe);
    if let Some(known) = probe.filter(|reason| reason.is_known()) {
        return known;
    }
    let calls = history::calls(episodes);
    let mut hooks = calls.filter(|call| is_hook(call) && is_same_container(call, kill));
    let failed = hooks.find_map(|call| {
        let result = ExecResult::from_record(call);
        let (end, began) = (call.ended_at(), kill.began_at());
        let is_just_before = end <= began && began.since(end) <= KILL_FOLLOWS_HOOK_WITHIN;
        (is_just_before && !result.is_good() && starts_with(episodes, call)).then_some(result)
    });
    let failed = failed.map(KillReason::PostStart);
    failed.or(probe).unwrap_or(KillReason::Unknown)
}

/// Returns whether the hook began when its container had just started.
fn starts_with(episodes: &[&Episode], hook: &EpisodeCall) -> bool {
    history::calls(episodes).any(|call| {
        let end = call.ended_at();
        call.method == Method::StartContainer
            && is_same_container(call, hook)
            && (end..=end + KILL_FOLLOWS_HOOK_WITHIN).contains(&hook.began_at())
    })
}

/// The newest series of kills in a pod.
pub(super) fn newest_kill_loop<'a>(
    episodes: &[&'a Episode],
    now: UnixMicros,
) -> Option<KillLoop<'a>> {
    let mut names = BTreeMap::<&str, Vec<&EpisodeCall>>::new();
    let mut creates = BTreeMap::<&str, Vec<&EpisodeCall>>::new();
    let mut stopped = UnixMicros::EPOCH;
    for call in history::calls(episodes) {
        let container = call.container.as_deref();
        match (call.method, container) {
            (Method::StopContainer, Some(container))
                if is_kill(call) || is_kill_in_flight(episodes, call) =>
            {
                names.entry(&container.name).or_default().push(call);
            }
            (Method::CreateContainer, Some(container)) => {
                creates.entry(&container.name).or_default().push(call);
            }
            (Method::StopPodSandbox, _) => stopped = call.began_at().max(stopped),
            _ => {}
        }
    }
    let series = names.into_iter().filter_map(|(container, kills)| {
        let creates = creates.get(container)?;
        kill_loop(episodes, container, kills, creates, stopped, now)
    });
    series.max_by_key(|series| series.at)
}

fn kill_loop<'a>(
    episodes: &[&Episode],
    container: &'a str,
    mut kills: Vec<&EpisodeCall>,
    creates: &[&EpisodeCall],
    stopped: UnixMicros,
    now: UnixMicros,
) -> Option<KillLoop<'a>> {
    let attempts = creates.iter().filter_map(|call| call.container.as_ref());
    let newest = attempts.map(|container| container.attempt).max()?;
    kills.sort_by_key(|call| call.began);
    // The kubelet repeats a stop that failed; each container is killed once.
    kills.dedup_by(|later, earlier| is_same_container(later, earlier));
    kills.retain(|call| {
        // After a kill the container is started again. The stop of its last run may be part of the pod's stop.
        let is_of_pod = is_of_attempt_from(newest, call) && stopped >= call.began_at();
        !is_of_pod && !is_of_replaced_sandbox(creates, call)
    });
    let last = kills.last()?;
    let at = last.ended_at();
    let last_break = kills
        .windows(2)
        .rposition(|pair| pair[1].began_at().since(pair[0].ended_at()) > MAX_GAP_BETWEEN_KILLS);
    let kills = &kills[last_break.map_or(0, |at| at + 1)..];
    let is_down = is_of_attempt_from(newest, last);
    if kills.len() < 2 || !(is_down || now.since(at) < KILL_LOOP_LASTS) {
        return None;
    }
    let reasons: Vec<_> = kills
        .iter()
        .map(|kill| kill_reason(episodes, kill))
        .collect();
    Some(KillLoop {
        container,
        kills: kills.len(),
        window: last.began_at().since(kills[0].began_at()),
        reason: majority_reason(&reasons),
        is_over: stopped >= at,
        at,
    })
}

/// Returns whether the call is about this run of its container, or a later one.
fn is_of_attempt_from(attempt: u32, call: &EpisodeCall) -> bool {
    let container = call.container.as_ref();
    container.is_none_or(|container| container.attempt >= attempt)
}

/// Returns whether the next CreateContainer after a stop is in another sandbox: then the stop was part of the replacement.
fn is_of_replaced_sandbox(creates: &[&EpisodeCall], stop: &EpisodeCall) -> bool {
    let later = creates.iter().filter(|create| create.began > stop.began);
    let next = later.min_by_key(|create| create.began);
    next.is_some_and(|next| next.sandbox_id.is_some() && next.sandbox_id != stop.sandbox_id)
}

/// The last known reason, if most reasons are known; else the last likely reason, if most are at least likely.
fn majority_reason(reasons: &[KillReason]) -> KillReason {
    let mut known = reasons.iter().filter(|reason| reason.is_known());
    let mut likely = reasons
        .iter()
        .filter(|reason| **reason != KillReason::Unknown);
    let reason = if 2 * known.clone().count() > reasons.len() {
        known.next_back()
    } else if 2 * likely.clone().count() > reasons.len() {
        likely.next_back()
    } else {
        None
    };
    reason.copied().unwrap_or(KillReason::Unknown)
}
