//! Containers that the kubelet kills, and why: rules that are functions of episodes. `words::kubelet` makes the sentences.

use std::collections::BTreeMap;

use super::kubelet::{is_hook, is_same_container};
use crate::call::{CallFacts, Client};
use crate::cri::Method;
use crate::lifecycle::episode_call::EpisodeCall;
use crate::lifecycle::episode_store::Episode;
use crate::lifecycle::kubelet::execs::ExecResult;
use crate::lifecycle::kubelet::probes::{FailedProbe, KillEvidence};

/// Kills further apart than this are not one series, in microseconds: six times the longest back-off of the kubelet.
const MAX_GAP_BETWEEN_KILLS: u64 = 30 * 60 * 1_000_000;
/// How long after the last kill a container that runs again counts as being killed again and again, in microseconds.
const KILL_LOOP_LASTS: u64 = 10 * 60 * 1_000_000;
/// The kubelet kills a container this soon after a failed postStart hook, in microseconds.
const KILL_FOLLOWS_HOOK_WITHIN: u64 = 2_000_000;
/// How long after its grace period a runtime has killed a container, in microseconds.
const KILL_OVERDUE_AFTER: u64 = 2_000_000;

/// Why the kubelet killed a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KillReason {
    /// An exec probe had failed before: a liveness or startup probe, or, on weak evidence, another.
    Probe(FailedProbe),
    /// Its postStart hook had failed just before.
    PostStart(ExecResult),
    /// Nothing that the CRI shows.
    Unknown,
}

impl KillReason {
    /// Returns whether the calls show it.
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
    /// From the first to the last.
    pub(super) window: u64,
    pub(super) reason: KillReason,
    /// Whether the pod was stopped since.
    pub(super) is_over: bool,
    /// When the last one ended, or now if it has not, in microseconds since 1970.
    pub(super) at: u64,
}

/// Returns whether the kubelet stopped a container.
pub(super) fn is_kill(call: &EpisodeCall) -> bool {
    let of_kubelet = call.peer.client != Client::Crictl;
    call.method == Method::StopContainer && of_kubelet && call.is_good()
}

/// Returns whether a stop in flight is a kill. Without a reason it may as well be the end of the pod, which shows only when the sandbox
/// is stopped.
fn is_under_way(pod: &[&Episode], call: &EpisodeCall) -> bool {
    call.is_in_flight() && known_kill_reason(pod, call).is_some()
}

/// Returns whether a stop goes on although the grace period is over and the runtime had time to kill the container.
pub(super) fn is_overdue(call: &EpisodeCall) -> bool {
    let CallFacts::Stop { grace } = call.facts else {
        return false;
    };
    call.elapsed_us() > u64::from(grace) * 1_000_000 + KILL_OVERDUE_AFTER
}

/// Why the kubelet is stopping a container, if the calls of the pod show it. The end of the pod is not excluded: only what happened
/// right before shows a reason.
pub(super) fn known_kill_reason(pod: &[&Episode], call: &EpisodeCall) -> Option<KillReason> {
    let is_stop = call.method == Method::StopContainer && call.peer.client != Client::Crictl;
    let reason = is_stop.then(|| reason(pod, call))?;
    match reason {
        KillReason::Probe(probe) if probe.evidence != KillEvidence::AtOnce => None,
        reason => reason.is_known().then_some(reason),
    }
}

/// Why the kubelet killed it.
pub(super) fn kill_reason(episodes: &[&Episode], kill: &EpisodeCall) -> KillReason {
    let probe = kill.probe.map(KillReason::Probe);
    if let Some(known) = probe.filter(|it| it.is_known()) {
        return known;
    }
    let calls = episodes.iter().flat_map(|episode| &episode.calls);
    let mut hooks = calls.filter(|call| is_hook(call) && is_same_container(call, kill));
    let failed = hooks.find_map(|call| {
        let result = ExecResult::from_record(call);
        let (end, began) = (call.end_us(), kill.began_us());
        let is_just_before = end <= began && began - end <= KILL_FOLLOWS_HOOK_WITHIN;
        (is_just_before && !result.is_good() && starts_with(episodes, call)).then_some(result)
    });
    let failed = failed.map(KillReason::PostStart);
    failed.or(probe).unwrap_or(KillReason::Unknown)
}

/// Returns whether the hook began when its container had just started.
fn starts_with(episodes: &[&Episode], hook: &EpisodeCall) -> bool {
    let mut calls = episodes.iter().flat_map(|episode| &episode.calls);
    calls.any(|call| {
        let end = call.end_us();
        call.method == Method::StartContainer
            && is_same_container(call, hook)
            && (end..=end + KILL_FOLLOWS_HOOK_WITHIN).contains(&hook.began_us())
    })
}

/// The newest series of kills in a pod. `now` in microseconds since 1970.
pub(super) fn newest_kill_loop<'a>(episodes: &[&'a Episode], now: u64) -> Option<KillLoop<'a>> {
    let mut names = BTreeMap::<&str, Vec<&EpisodeCall>>::new();
    let mut creates = BTreeMap::<&str, Vec<&EpisodeCall>>::new();
    let mut stopped = 0;
    for call in episodes.iter().flat_map(|episode| &episode.calls) {
        let container = call.container.as_deref();
        match (call.method, container) {
            (Method::StopContainer, Some(container))
                if is_kill(call) || is_under_way(episodes, call) =>
            {
                names.entry(&container.name).or_default().push(call);
            }
            (Method::CreateContainer, Some(container)) => {
                creates.entry(&container.name).or_default().push(call);
            }
            (Method::StopPodSandbox, _) => stopped = call.began_us().max(stopped),
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
    stopped: u64,
    now: u64,
) -> Option<KillLoop<'a>> {
    let attempts = creates.iter().filter_map(|call| call.container.as_ref());
    let newest = attempts.map(|container| container.attempt).max()?;
    kills.sort_by_key(|call| call.began);
    // The kubelet repeats a stop that failed; each container is killed once.
    kills.dedup_by(|later, earlier| is_same_container(later, earlier));
    // The last one may be that of the pod: a kill is one after which the container is started again.
    let is_last = |call: &EpisodeCall| call.container.as_ref().is_none_or(|c| c.attempt >= newest);
    let of_pod = |call: &EpisodeCall| is_last(call) && stopped >= call.began_us();
    // Nor is the end of a sandbox that is replaced.
    let of_sandbox = |call: &EpisodeCall| {
        let later = creates.iter().filter(|it| it.began > call.began);
        let next = later.min_by_key(|it| it.began);
        next.is_some_and(|next| next.sandbox_id.is_some() && next.sandbox_id != call.sandbox_id)
    };
    kills.retain(|call| !of_pod(call) && !of_sandbox(call));
    let last = kills.last()?;
    let at = last.end_us();
    let gap = |pair: &[&EpisodeCall]| pair[1].began_us().saturating_sub(pair[0].end_us());
    let far = kills
        .windows(2)
        .rposition(|pair| gap(pair) > MAX_GAP_BETWEEN_KILLS);
    let kills = &kills[far.map_or(0, |at| at + 1)..];
    let is_down = is_last(last);
    if kills.len() < 2 || !(is_down || now.saturating_sub(at) < KILL_LOOP_LASTS) {
        return None;
    }
    let reasons: Vec<_> = kills.iter().map(|kill| reason(episodes, kill)).collect();
    Some(KillLoop {
        container,
        kills: kills.len(),
        window: last.began_us().saturating_sub(kills[0].began_us()),
        reason: majority_reason(&reasons),
        is_over: stopped >= at,
        at,
    })
}

/// The last of the reasons that are known, if most are; or else of those that are likely.
fn majority_reason(reasons: &[KillReason]) -> KillReason {
    let last = |is_it: &dyn Fn(&KillReason) -> bool| {
        let of_it = || reasons.iter().filter(|it| is_it(it));
        of_it()
            .next_back()
            .filter(|_| 2 * of_it().count() > reasons.len())
    };
    let known = last(&|it| it.is_known());
    let likely = || last(&|it| *it != KillReason::Unknown);
    known
        .or_else(likely)
        .copied()
        .unwrap_or(KillReason::Unknown)
}
