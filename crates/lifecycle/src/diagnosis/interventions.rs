//! What others did to a container just before it ended: a command that ran in it, or a memory limit that was lowered before the kernel
//! killed a process. What they did to it before its pod was stopped, that they removed a run of it after its end, and pods that they made.

use std::time::Duration;

use super::before::{self, Predecessor, PreviousRun};
use super::cause::Cause;
use super::history;
use super::remarks::{Diagnosis, Remark};
use crate::episode_store::{Episode, ExitRecord, InterventionKind};
use criscope_cri::Method;
use criscope_cri::call::Peer;
use criscope_cri::subject::{ContainerIdentity, ExitReason};
use criscope_cri::units::times::UnixMicros;

/// A program may need this long to end after a command such as `kill` in its container. The sentence says how long it was.
const END_FOLLOWS_COMMAND_WITHIN: Duration = Duration::from_secs(1);

/// The command of a streaming Exec begins when its client connects, and may need as long to end the program.
const END_FOLLOWS_SESSION_WITHIN: Duration = Duration::from_secs(3);

/// A person who stops a container, and then the pod because the kubelet has started it again, does so within this time.
const POD_STOPPED_AFTER_CONTAINER_WITHIN: Duration = Duration::from_secs(60);

/// What happened to a container before its end, or before an OOM kill in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InterventionBefore<'a> {
    pub(super) container: &'a str,
    pub(super) by: &'a Peer,
    pub(super) what: WhatHappened,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum WhatHappened {
    /// A command ran in the container when it ended, or had ended this long before.
    Command { before: Duration },
    /// A session with a command had begun this long before.
    Session { before: Duration },
    /// A hook of the kubelet ran in the container.
    Hook,
    /// The memory limit had been set this long before.
    MemoryLimit { bytes: u64, before: Duration },
    /// A run that had ended was removed. The kubelet counts its back-off from the newest run that it finds (`doBackOff` in
    /// `pkg/kubelet/kuberuntime/kuberuntime_manager.go`).
    EndRemoved,
}

/// Adds what others did to the container whose end, or whose OOM kill, this diagnosis is about.
pub(super) fn add_interventions<'a>(diagnosis: &mut Diagnosis<'a>, pod: &[&'a Episode]) {
    let found = diagnosis.causes().find_map(|cause| match cause {
        Cause::ContainerExited(exit) => before_exit(exit, pod),
        Cause::StartedAgain(Predecessor::ContainerRun(run)) if run.stopped_by.is_none() => {
            before_exit(run.exit?, pod)
        }
        Cause::CrashLoop(crashes) => {
            before_exit(crashes.last, pod).or_else(|| removed_after(crashes.last, pod))
        }
        Cause::OomKills { kills, .. } => limit_before(&kills.container, kills.last, pod),
        _ => None,
    });
    if let Some(found) = found {
        diagnosis.remarks.insert(0, Remark::Intervened(found));
    }
}

/// The run that another program than the kubelet ended last, if the container was started again and the pod was stopped soon after.
pub(super) fn run_ended_by_hand<'a>(
    stop: &Episode,
    pod: &[&'a Episode],
    now: UnixMicros,
) -> Option<PreviousRun<'a>> {
    let recent = history::exits(pod).filter(|exit| {
        exit.at <= stop.began && stop.began.since(exit.at) <= POD_STOPPED_AFTER_CONTAINER_WITHIN
    });
    let by_hand = recent.filter(|exit| {
        let stop = before::stopped_by(exit, pod);
        stop.is_some_and(|call| !call.peer.is_kubelet())
    });
    before::run_before_restart(by_hand.max_by_key(|exit| exit.at)?, pod, now)
}

/// The other program that made this pod, if only that program called for it before the kubelet stopped it.
pub(super) fn unknown_pod_of<'a>(stop: &'a Episode, pod: &[&'a Episode]) -> Option<&'a Peer> {
    let made = history::calls(pod).find(|call| call.method.makes_sandbox() && call.is_good())?;
    let mut of_kubelet = history::calls(pod).filter(|call| call.peer.is_kubelet());
    let only_ends = of_kubelet.all(|call| {
        matches!(call.method, Method::StopContainer | Method::RemoveContainer)
            || history::ends_sandbox(call)
    });
    let is_ended_by_kubelet = stop.calls.iter().any(|call| call.peer.is_kubelet());
    (!made.peer.is_kubelet() && only_ends && is_ended_by_kubelet).then_some(&made.peer)
}

fn before_exit<'a>(exit: &ExitRecord, pod: &[&'a Episode]) -> Option<InterventionBefore<'a>> {
    let container = ContainerIdentity {
        name: exit.container.clone(),
        attempt: exit.attempt,
    };
    let oom_at = exit.oom_at.unwrap_or(exit.at);
    let is_oom = exit.oom_at.is_some() || exit.reason == ExitReason::OomKilled;
    if is_oom && let Some(limit) = limit_before(&container, oom_at, pod) {
        return Some(limit);
    }
    command_at(exit, pod).or_else(|| hook_at(exit, pod))
}

/// The command of another program that ran in the container at its end, or shortly before.
fn command_at<'a>(exit: &ExitRecord, pod: &[&'a Episode]) -> Option<InterventionBefore<'a>> {
    let all = pod.iter().flat_map(|episode| &episode.interventions);
    let commands = all.filter(|done| {
        let window = match done.kind {
            InterventionKind::Command => END_FOLLOWS_COMMAND_WITHIN,
            InterventionKind::Session => END_FOLLOWS_SESSION_WITHIN,
            InterventionKind::MemoryLimit(_) | InterventionKind::Removal => return false,
        };
        exit.is_of_run(&done.container) && done.began <= exit.at && exit.at <= done.ended + window
    });
    let last = commands.max_by_key(|done| done.ended)?;
    let before = exit.at.since(last.ended);
    Some(InterventionBefore {
        container: &last.container.name,
        by: &last.peer,
        what: match last.kind {
            InterventionKind::Session => WhatHappened::Session { before },
            _ => WhatHappened::Command { before },
        },
    })
}

/// The hook of the kubelet that ran in the container at its end.
fn hook_at<'a>(exit: &ExitRecord, pod: &[&'a Episode]) -> Option<InterventionBefore<'a>> {
    let mut hooks = history::calls(pod).filter(|call| {
        let container = call.container.as_deref();
        call.method == Method::ExecSync
            && container.is_some_and(|container| exit.is_of_run(container))
            && (call.began_at()..=call.ended_at()).contains(&exit.at)
    });
    let hook = hooks.next()?;
    Some(InterventionBefore {
        container: hook.container_name()?,
        by: &hook.peer,
        what: WhatHappened::Hook,
    })
}

/// The removal of this run, or of the one before it, by another program than the kubelet after it had ended.
fn removed_after<'a>(exit: &ExitRecord, pod: &[&'a Episode]) -> Option<InterventionBefore<'a>> {
    let all = pod.iter().flat_map(|episode| &episode.interventions);
    let removals = all.filter(|done| {
        let run = &done.container;
        done.kind == InterventionKind::Removal
            && run.name == exit.container
            && (exit.attempt..=exit.attempt + 1).contains(&(run.attempt + 1))
    });
    let newest = removals.max_by_key(|done| done.began)?;
    Some(InterventionBefore {
        container: &newest.container.name,
        by: &newest.peer,
        what: WhatHappened::EndRemoved,
    })
}

/// The memory limit that another program than the kubelet had set last.
fn limit_before<'a>(
    container: &ContainerIdentity,
    time: UnixMicros,
    pod: &[&'a Episode],
) -> Option<InterventionBefore<'a>> {
    let all = pod.iter().flat_map(|episode| &episode.interventions);
    let limits = all.filter_map(|done| match done.kind {
        InterventionKind::MemoryLimit(bytes) => Some((done, bytes)),
        _ => None,
    });
    let own = limits.filter(|(done, _)| *done.container == *container && done.began <= time);
    let (last, bytes) = own.max_by_key(|(done, _)| done.began)?;
    (!last.peer.is_kubelet()).then(|| InterventionBefore {
        container: &last.container.name,
        by: &last.peer,
        what: WhatHappened::MemoryLimit {
            bytes,
            before: time.since(last.began),
        },
    })
}
