//! Why the kubelet kills a container of a pod that goes on.

use std::time::Duration;

use super::history;
use super::kubelet::{is_hook, is_same_container};
use super::reasons::{ClosedList, UnseenKill};
use crate::episode_call::EpisodeCall;
use crate::episode_store::Episode;
use crate::kubelet::execs::ExecResult;
use crate::kubelet::probes::{FailedProbe, KillEvidence};
use criscope_cri::Method;
use criscope_cri::subject::ExitReason;

/// The grace period when all containers of a pod are restarted: the kubelet asks for none, and leaves each container 2 s.
const RESTART_RULE_GRACE_PERIOD: Duration = Duration::from_secs(2);

/// Why the kubelet killed a container of a pod that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KillReason {
    /// An exec probe had failed before: a liveness or startup probe.
    Probe(FailedProbe),
    /// The postStart hook of the container had failed just before.
    PostStart(ExecResult),
    /// The next run of the container has another image.
    ImageChanged,
    /// The next run of the container has other limits: a resize that needs a restart.
    Resized,
    /// Another container ended with this exit code, for which the pod restarts all containers.
    RestartRule(i32),
    /// One of these reasons, or an exec `probe` that had failed before.
    OneOf {
        probe: Option<FailedProbe>,
        unseen: UnseenKills,
    },
}

/// The reasons that the calls leave, in the order of their list.
pub(crate) type UnseenKills = [Option<UnseenKill>; <UnseenKill as ClosedList>::ALL.len()];

/// The reasons of the list for which this holds.
fn unseen_kills(is_possible: impl Fn(UnseenKill) -> bool) -> UnseenKills {
    std::array::from_fn(|at| Some(UnseenKill::ALL[at]).filter(|reason| is_possible(*reason)))
}

impl KillReason {
    /// Returns whether the calls show this reason.
    pub(super) fn is_known(self) -> bool {
        !matches!(self, Self::OneOf { .. })
    }

    /// Returns whether the calls show this reason, or one that is likely.
    pub(super) fn is_likely(self) -> bool {
        !matches!(self, Self::OneOf { probe: None, .. })
    }
}

/// The reason for which the kubelet is stopping a container, if the calls of the pod show it. The stop may be part of the pod's stop, so
/// only an event right before it shows a reason.
pub(super) fn known_kill_reason(pod: &[&Episode], call: &EpisodeCall) -> Option<KillReason> {
    let is_stop = call.method == Method::StopContainer && call.peer.is_kubelet();
    let reason = is_stop.then(|| kill_reason(pod, call))?;
    match reason {
        KillReason::Probe(probe) if probe.evidence != KillEvidence::AtOnce => None,
        KillReason::Probe(probe) if is_below_threshold(pod, call, probe.in_a_row) => None,
        reason => reason.is_known().then_some(reason),
    }
}

/// Returns whether an earlier run of the container was killed after more failures of its probe than this: the probe's threshold is higher.
fn is_below_threshold(pod: &[&Episode], stop: &EpisodeCall, in_a_row: u32) -> bool {
    let mut earlier = history::calls(pod).filter(|call| {
        call.method == Method::StopContainer
            && call.began < stop.began
            && call.container_name() == stop.container_name()
            && call.container_id != stop.container_id
    });
    earlier.any(|call| {
        let probe = call
            .probe
            .filter(|probe| probe.evidence != KillEvidence::Weak);
        probe.is_some_and(|probe| probe.in_a_row > in_a_row)
    })
}

/// Why the kubelet killed a container by this call.
pub(super) fn kill_reason(episodes: &[&Episode], kill: &EpisodeCall) -> KillReason {
    if let Some(known) = kill
        .probe
        .filter(|probe| probe.evidence != KillEvidence::Weak)
    {
        return KillReason::Probe(known);
    }
    if let Some(result) = failed_post_start(episodes, kill) {
        return KillReason::PostStart(result);
    }
    if let Some(code) = restart_rule(episodes, kill) {
        return KillReason::RestartRule(code);
    }
    if has_new_image(episodes, kill) == Some(true) {
        return KillReason::ImageChanged;
    }
    if has_new_limits(episodes, kill) {
        return KillReason::Resized;
    }
    KillReason::OneOf {
        probe: kill.probe,
        unseen: unseen_kills(|reason| is_possible(reason, episodes, kill)),
    }
}

/// Returns whether the calls leave this reason of a kill.
fn is_possible(reason: UnseenKill, episodes: &[&Episode], kill: &EpisodeCall) -> bool {
    let start = start_of(episodes, kill);
    let is_of_sync = start.and_then(|start| is_in_same_sync(episodes, start, kill));
    if is_of_sync == Some(true) {
        return reason == UnseenKill::PostStartHook;
    }
    if has_longer_grace_period(episodes, kill) {
        return reason == UnseenKill::Probe;
    }
    match reason {
        UnseenKill::Probe | UnseenKill::Resize => true,
        UnseenKill::PostStartHook => {
            is_of_sync.is_none()
                && start.is_none_or(|start| !has_gone_on(episodes, start, kill))
                && kill.probe.is_none()
        }
        UnseenKill::NewImage => has_new_image(episodes, kill).is_none(),
        UnseenKill::RestartRule => {
            let grace = kill.facts.grace_period();
            next_create(episodes, kill).is_none()
                && grace.is_none_or(|grace| grace <= RESTART_RULE_GRACE_PERIOD)
        }
        UnseenKill::UnknownState => {
            let exit = kill.container.as_deref().and_then(|run| {
                let mut exits = history::exits(episodes);
                exits.find(|exit| exit.is_of_run(run))
            });
            exit.map_or(start.is_none(), |exit| exit.reason == ExitReason::Unknown)
        }
    }
}

/// The StartContainer of the run that was killed.
fn start_of<'a>(episodes: &[&'a Episode], kill: &EpisodeCall) -> Option<&'a EpisodeCall> {
    history::calls(episodes).find(|call| call.has_started() && is_same_container(call, kill))
}

/// The CreateContainer of the run after the one that was killed.
fn next_create<'a>(episodes: &[&'a Episode], kill: &EpisodeCall) -> Option<&'a EpisodeCall> {
    let creates = history::calls(episodes).filter(|call| {
        call.method == Method::CreateContainer
            && call.container_name() == kill.container_name()
            && call.began > kill.began
    });
    creates.min_by_key(|call| call.began)
}

/// Returns whether the start and the kill of a container are part of one sync of the pod; `None` if the kubelet's spans do not show it. A
/// sync kills what is not to keep before it starts anything, so a later kill in the same sync is that of a failed postStart hook.
fn is_in_same_sync(episodes: &[&Episode], start: &EpisodeCall, kill: &EpisodeCall) -> Option<bool> {
    let mut syncs = episodes.iter().flat_map(|episode| &episode.syncs);
    let began = start.began_at();
    let sync = syncs.find(|sync| (sync.began..=sync.ended).contains(&began))?;
    Some(sync.ended >= kill.began_at())
}

/// Returns whether the kubelet went on with the pod between the start of a container and its kill: its postStart hook had succeeded by
/// then, or it has none.
fn has_gone_on(episodes: &[&Episode], start: &EpisodeCall, kill: &EpisodeCall) -> bool {
    let (from, to) = (start.ended_at(), kill.began_at());
    let is_hook_done = hooks_of(episodes, kill).any(|hook| hook.ended_at() <= to);
    is_hook_done
        || history::calls(episodes).any(|call| {
            let is_step = matches!(
                call.method,
                Method::PullImage | Method::CreateContainer | Method::StartContainer
            );
            is_step && call.peer.is_kubelet() && (from..to).contains(&call.began_at())
        })
}

/// The exec hooks of the run that was killed.
fn hooks_of<'a>(
    episodes: &[&'a Episode],
    kill: &EpisodeCall,
) -> impl Iterator<Item = &'a EpisodeCall> {
    history::calls(episodes).filter(|call| is_hook(call) && is_same_container(call, kill))
}

/// Returns whether the grace period of a kill is longer than the pod's own: only a probe can have another one, and hooks only shorten it.
fn has_longer_grace_period(episodes: &[&Episode], kill: &EpisodeCall) -> bool {
    let mut creates = history::calls(episodes).filter(|call| is_same_container(call, kill));
    let own = creates.find_map(|call| call.facts.container_request()?.pod_grace);
    let own = own.map(|own| Duration::from_secs(own.into()));
    let given = kill.facts.grace_period();
    given
        .zip(own)
        .is_some_and(|(given, own)| given > own.max(RESTART_RULE_GRACE_PERIOD))
}

/// The result of the postStart hook that failed before this kill. A hook in the episode that started its container is a postStart hook.
/// One that the kubelet broke off has not failed: its pod was deleted.
fn failed_post_start(episodes: &[&Episode], kill: &EpisodeCall) -> Option<ExecResult> {
    let started = episodes.iter().filter(|episode| {
        let mut calls = episode.calls.iter();
        calls.any(|call| call.has_started() && is_same_container(call, kill))
    });
    let hooks = started.flat_map(|episode| &episode.calls);
    let mut hooks = hooks.filter(|call| is_hook(call) && is_same_container(call, kill));
    hooks.find_map(|hook| {
        let result = ExecResult::from_record(hook);
        (result.has_failed() && hook.ended_at() <= kill.began_at()).then_some(result)
    })
}

/// The exit code of another container, if the kubelet restarted all containers for it (`getContainersToReset` in
/// pkg/kubelet/kuberuntime/kuberuntime_manager.go): it killed the container with the least grace period, and removed it before it
/// created any.
fn restart_rule(episodes: &[&Episode], kill: &EpisodeCall) -> Option<i32> {
    let calls = history::calls(episodes);
    let later = calls.filter(|call| call.began > kill.began && call.peer.is_kubelet());
    let removed = later
        .clone()
        .find(|call| call.method == Method::RemoveContainer && is_same_container(call, kill))?;
    let mut creates = later.filter(|call| call.method == Method::CreateContainer);
    let is_first = !creates.any(|call| call.began < removed.began);
    let is_least = kill.facts.grace_period()? <= RESTART_RULE_GRACE_PERIOD;
    let others = history::exits(episodes).filter(|exit| {
        !exit.stop_requested
            && exit.at <= kill.began_at()
            && Some(&*exit.container) != kill.container_name()
    });
    let source = others.max_by_key(|exit| exit.at)?;
    (is_first && is_least).then_some(source.code)
}

/// Returns whether the run after this kill was created from another image than the run before; `None` if it is not known.
fn has_new_image(episodes: &[&Episode], kill: &EpisodeCall) -> Option<bool> {
    let creates = history::calls(episodes).filter(|call| {
        call.method == Method::CreateContainer
            && call.image.is_some()
            && call.container_name() == kill.container_name()
    });
    let before = creates.filter(|call| call.began < kill.began);
    let before = before.max_by_key(|call| call.began)?;
    let after = next_create(episodes, kill)?;
    after.image.as_ref()?;
    Some(before.image != after.image)
}

/// Returns whether the run after this kill was created with other limits than the run before had in the end.
fn has_new_limits(episodes: &[&Episode], kill: &EpisodeCall) -> bool {
    let mut creates = history::calls(episodes).filter(|call| is_same_container(call, kill));
    let before = creates.find_map(|call| call.facts.container_request());
    let after = next_create(episodes, kill).and_then(|next| next.facts.container_request());
    before.zip(after).is_some_and(|(before, after)| {
        let cpu = before.cpu_millis.zip(after.cpu_millis);
        let memory = before.memory.zip(after.memory);
        cpu.is_some_and(|(before, after)| before != after)
            || memory.is_some_and(|(before, after)| before != after)
    })
}

/// The last known reason, if most reasons are known; else the last likely reason, if most are at least likely; else all that are possible.
pub(super) fn majority_reason(reasons: &[KillReason]) -> KillReason {
    let mut known = reasons.iter().filter(|reason| reason.is_known());
    let mut likely = reasons.iter().filter(|reason| reason.is_likely());
    let reason = if 2 * known.clone().count() > reasons.len() {
        known.next_back()
    } else if 2 * likely.clone().count() > reasons.len() {
        likely.next_back()
    } else {
        None
    };
    if let Some(reason) = reason {
        return *reason;
    }
    KillReason::OneOf {
        probe: None,
        unseen: unseen_kills(|possible| {
            reasons.iter().any(|reason| match reason {
                KillReason::OneOf { unseen, .. } => unseen.contains(&Some(possible)),
                _ => false,
            })
        }),
    }
}
