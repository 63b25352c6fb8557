//! Outcomes of episodes: which containers are up, which have ended, and which were never started.

use std::collections::BTreeSet;
use std::time::Duration;

use super::cause::{Cause, EpisodeOutcome, NotSlow};
use super::remarks::{Diagnosis, Remark};
use super::{ephemeral, history};
use crate::episode_call::EpisodeCall;
use crate::episode_store::{AwaitedContainers, Episode, ExitRecord};
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

/// A single container that runs for longer than this without a further call may be an init container, if the kubelet's checkpoint was
/// not read: the next call after a container that nothing waits for takes less.
const NEXT_CONTAINER_WITHIN: Duration = Duration::from_secs(2);

/// An episode that was not slow.
pub(super) fn not_slow<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    now: UnixMicros,
) -> NotSlow<'a> {
    let started = history::has_started(episode);
    let end = match episode.kind {
        Kind::Start | Kind::Restart if started => outcome_of_start(episode, pod, now),
        Kind::Restart if episode.container.is_none() => EpisodeOutcome::ImagePulled,
        Kind::Stop => match only_stopped(episode) {
            Some(name) => EpisodeOutcome::ContainerStopped(name),
            None => EpisodeOutcome::PodStopped,
        },
        _ => EpisodeOutcome::Incomplete,
    };
    let took = episode.duration();
    NotSlow { took, end }
}

/// The container that was stopped, if the pod was not.
fn only_stopped(episode: &Episode) -> Option<&str> {
    let mut calls = episode.calls.iter();
    let is_of_container = calls.all(|call| {
        matches!(
            call.method,
            Method::StopContainer | Method::ExecSync | Method::RemoveContainer
        )
    });
    let last = episode.calls.back().filter(|_| is_of_container)?;
    last.container_name()
}

/// Adds to a start that was slow, or had failures, that its containers have done their work. Then they are not up.
pub(super) fn with_ends<'a>(
    mut slow: Diagnosis<'a>,
    episode: &'a Episode,
    pod: &[&'a Episode],
    now: UnixMicros,
) -> Diagnosis<'a> {
    let is_slow = matches!(
        slow.cause,
        Cause::SlowPhase(_)
            | Cause::Kubelet(_)
            | Cause::Recovered(_)
            | Cause::BackendWasAway(_)
            | Cause::BrokenOff(_)
            | Cause::NodeInGap { .. }
            | Cause::NodeInCall { .. }
    );
    if episode.kind != Kind::Stop
        && is_slow
        && let EpisodeOutcome::Containers { up, ended } = not_slow(episode, pod, now).end
    {
        let are_done = ended
            .iter()
            .all(|exit| exit.code == 0 && !exit.stop_requested);
        if up.is_empty() && !ended.is_empty() {
            let took = episode.duration();
            for remark in &mut slow.remarks {
                if matches!(remark, Remark::Ended { .. }) {
                    *remark = Remark::StartTook(took);
                }
            }
            if are_done {
                slow.remarks.insert(0, Remark::ContainersEnded(ended));
            }
        }
    }
    slow
}

/// How a container that has done its work failed before.
pub(super) fn failed_before<'a>(
    diagnosis: &Diagnosis<'a>,
    pod: &[&'a Episode],
) -> Option<Remark<'a>> {
    let Cause::NotSlow(NotSlow {
        end: EpisodeOutcome::Containers { up, ended },
        ..
    }) = &diagnosis.cause
    else {
        return None;
    };
    let [done] = &ended[..] else { return None };
    let is_done = up.is_empty() && done.code == 0 && !done.stop_requested;
    let failed = history::exits(pod).filter(|exit| {
        let is_own = exit.container == done.container && exit.at < done.at;
        is_own && exit.code != 0 && !exit.stop_requested
    });
    let exit = failed.clone().max_by_key(|exit| exit.at)?;
    let times = failed.count();
    is_done.then_some(Remark::FailedBefore { exit, times })
}

/// Outcome of a start or restart: its running and its ended containers.
fn outcome_of_start<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    now: UnixMicros,
) -> EpisodeOutcome<'a> {
    let calls = episode.calls.iter();
    let mut names: Vec<_> = calls
        .filter(|call| call.has_started())
        .filter_map(|call| call.container_name())
        .collect();
    let mut known = BTreeSet::new();
    names.retain(|name| known.insert(*name));
    let (mut up, mut ended, mut stopped) = (Vec::new(), Vec::new(), Vec::new());
    for name in names {
        match newest_run(name, episode, pod) {
            RunState::Up => up.push(name),
            RunState::Ended(exit) if is_init(exit, pod) => {}
            RunState::Ended(exit) => ended.push(exit),
            RunState::StoppedWithPod => stopped.push(name),
        }
    }
    // After a restart the other containers count, too.
    let others = pod.iter().copied().filter(|other| {
        let is_own = other.number == episode.number || other.pod.attempt != episode.pod.attempt;
        episode.kind == Kind::Restart && !is_own && !ephemeral::is_ephemeral(other, pod)
    });
    for name in others.flat_map(Episode::started_containers) {
        if let RunState::Ended(exit) = newest_run(name, episode, pod)
            && known.insert(name)
            && !is_init(exit, pod)
        {
            ended.push(exit);
        }
    }
    // Sidecars are stopped once the others are done.
    if ended.is_empty() {
        up.extend(stopped);
    }
    let since = now.since(episode.ended);
    match &up[..] {
        [name]
            if ended.is_empty()
                && episode.kind == Kind::Start
                && episode.is_open()
                && !episode.knows_containers()
                && !has_hooks(name, episode)
                && since >= NEXT_CONTAINER_WITHIN =>
        {
            EpisodeOutcome::OneContainerUp {
                container: name,
                since,
            }
        }
        _ => EpisodeOutcome::Containers { up, ended },
    }
}

/// Returns whether a container has hooks, which an ordinary init container has not.
fn has_hooks(name: &str, episode: &Episode) -> bool {
    let mut own = episode
        .calls
        .iter()
        .filter(|call| call.container_name() == Some(name));
    own.any(|call| {
        let request = call.facts.container_request();
        call.method == Method::ExecSync || request.is_some_and(|request| request.pre_stop.is_some())
    })
}

/// The state of the newest run of a container.
enum RunState<'a> {
    Up,
    Ended(&'a ExitRecord),
    /// It was up until its pod was stopped.
    StoppedWithPod,
}

/// The state of the newest run of a container.
fn newest_run<'a>(name: &str, episode: &Episode, pod: &[&'a Episode]) -> RunState<'a> {
    let starts = history::calls(pod).filter(|call| call.has_started_container(name));
    let Some(newest) = starts.max_by_key(|call| call.began) else {
        return RunState::Up;
    };
    let exit = exit_of(newest, pod);
    let mut calls = pod
        .iter()
        .filter(|other| other.pod.attempt == episode.pod.attempt)
        .flat_map(|other| &other.calls);
    let is_pod_stopped = calls
        .any(|call| call.is_good() && history::ends_sandbox(call) && call.began >= newest.began);
    match exit {
        Some(exit) if !(exit.stop_requested && is_pod_stopped) => RunState::Ended(exit),
        None if !is_pod_stopped => RunState::Up,
        _ => RunState::StoppedWithPod,
    }
}

/// The exit of the run that this call started. A container that was removed may come back with the same number.
fn exit_of<'a>(start: &EpisodeCall, pod: &[&'a Episode]) -> Option<&'a ExitRecord> {
    let mut exits = history::exits(pod);
    exits.find(|exit| exit.is_of_start(start) && exit.at >= start.began_at())
}

/// The containers of a pod that are up.
pub(super) fn running<'a>(pod: &[&'a Episode]) -> Vec<&'a str> {
    let newest = pod.iter().map(|episode| episode.pod.attempt).max();
    let own: Vec<_> = pod
        .iter()
        .copied()
        .filter(|episode| Some(episode.pod.attempt) == newest)
        .collect();
    let starts = history::calls(&own).filter(|call| call.has_started());
    let names: BTreeSet<_> = starts.filter_map(|call| call.container_name()).collect();
    let Some(first) = own.first() else {
        return Vec::new();
    };
    let names = names.into_iter();
    names
        .filter(|name| matches!(newest_run(name, first, &own), RunState::Up))
        .collect()
}

/// Returns whether a container ended well and another one was started for the first time after it: an init container. The StartContainer
/// of a run may end after its exit, so the begin counts.
pub(super) fn is_init(exit: &ExitRecord, pod: &[&Episode]) -> bool {
    let own = pod.iter().filter(|e| !ephemeral::is_ephemeral(e, pod));
    let mut later = own
        .flat_map(|episode| &episode.calls)
        .filter(|call| call.has_started() && call.began_at() > exit.at)
        .filter(|call| call.container_name() != Some(&*exit.container));
    exit.code == 0 && !exit.stop_requested && later.any(|call| is_first(call, pod))
}

/// Returns whether a restart is that of an init container that is done by now.
pub(super) fn is_of_done_init(restart: &Episode, pod: &[&Episode]) -> bool {
    let name = restart
        .container
        .as_deref()
        .map(|container| &*container.name);
    let mut exits = restart.exits.iter();
    restart.kind == Kind::Restart
        && exits.any(|exit| Some(&*exit.container) == name && is_init(exit, pod))
}

/// Returns whether the call is the first start of its container in its sandbox.
fn is_first(start: &EpisodeCall, pod: &[&Episode]) -> bool {
    let name = start.container_name();
    let mut earlier = history::calls(pod).filter(|call| call.began < start.began);
    !earlier.any(|call| {
        call.has_started() && call.container_name() == name && call.sandbox_id == start.sandbox_id
    })
}

/// The cause of a start that waits for a container that was started: it runs, or is run again.
pub(super) fn awaits<'a>(
    awaited: AwaitedContainers<'a>,
    pod: &[&'a Episode],
    now: UnixMicros,
) -> Cause<'a> {
    let starts = history::calls(pod).filter(|call| call.has_started_container(awaited.last));
    let newest = starts.max_by_key(|call| call.began);
    let exit = newest.and_then(|call| exit_of(call, pod));
    let failed =
        history::exits(pod).filter(|exit| *exit.container == *awaited.last && exit.code != 0);
    let since = match exit {
        Some(exit) => exit.at,
        None => newest.map_or(awaited.since, |call| call.ended_at()),
    };
    Cause::AwaitsContainer {
        awaited,
        since: now.since(since),
        ended: exit.map(|exit| (exit, failed.count())),
    }
}

/// The containers that a start had yet to start when its pod was stopped.
pub(super) fn never_started(episode: &Episode) -> Option<Cause<'_>> {
    let awaited = episode.never_started()?;
    Some(Cause::NeverStarted {
        missing: awaited.missing,
        last: awaited.last,
    })
}
