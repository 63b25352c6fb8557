//! Rules on the time of an episode without failures.

use std::time::Duration;

use super::cause::{Cause, EpisodeOutcome, NotSlow, SlowCalls, SlowDetail, SlowPhase};
use super::node::FactAt;
use super::remarks::Diagnosis;
use super::{before, history, node, syncs, work};
use crate::episode_call::{EpisodeCall, ObservedWork};
use crate::episode_store::{Episode, ExitRecord};
use crate::process_scanner::WorkKind;
use crate::timeline::EpisodePhase;
use crate::usual::{ComparedDuration, NodeContext};
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

/// A single container that runs for longer than this without a further call may be an init container: an init container that ends
/// at once, and the next call after a container that nothing waits for, take less.
const NEXT_CONTAINER_WITHIN: Duration = Duration::from_secs(2);

/// How far the times of exits may be off.
const EXIT_CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// The largest part of an episode's duration.
pub(super) fn largest_part<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    node: &NodeContext<'_>,
    now: UnixMicros,
) -> Diagnosis<'a> {
    let is_slow = node.usual.is_slow(episode.duration());
    let Some((phase, took)) = history::longest_phase(episode).filter(|_| is_slow) else {
        let quick = Diagnosis::from(Cause::NotSlow(not_slow(episode, pod, now)));
        return match unusual(episode, node) {
            Some((call, usual)) => quick.led_by(Cause::UnusualCall { call, usual }),
            None => quick,
        };
    };
    if phase == EpisodePhase::OutsideCri
        && let Some((gap, call)) = widest_gap(episode)
        && let Some(fact) = node::in_gap(episode, call.began_at() - gap, call.began_at())
    {
        let cause = Cause::NodeInGap {
            fact: FactAt { fact, now },
            took,
            total: episode.duration(),
        };
        return cause.into();
    }
    let slow = Cause::SlowPhase(SlowPhase {
        took,
        total: episode.duration(),
        phase,
        detail: slow_detail(episode, pod, phase, took),
        usual: compared(episode, phase, node),
    });
    slow.into()
}

/// The longest of the calls that took unusually long.
fn unusual<'a>(
    episode: &'a Episode,
    node: &NodeContext<'_>,
) -> Option<(&'a EpisodeCall, ComparedDuration)> {
    let calls = episode.calls.iter();
    let calls = calls.filter(|call| call.is_good() && call.fault.is_none());
    let compared = calls.filter_map(|call| Some((call, node.compare(episode, call)?)));
    let unusual = compared.filter(|(_, usual)| usual.is_unusual);
    unusual.max_by_key(|(call, _)| call.elapsed())
}

/// The longest call of a phase, compared with the usual duration.
fn compared<'a>(
    episode: &'a Episode,
    phase: EpisodePhase,
    node: &NodeContext<'_>,
) -> Option<(&'a EpisodeCall, ComparedDuration)> {
    let calls = episode.calls.iter().filter(|call| match phase {
        EpisodePhase::Network => call.work.iter().any(ObservedWork::is_network),
        EpisodePhase::OutsideCri => false,
        phase => EpisodePhase::from_method(call.method) == phase,
    });
    let longest = longest_call(calls)?;
    Some((longest, node.compare(episode, longest)?))
}

fn slow_detail<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    phase: EpisodePhase,
    took: Duration,
) -> SlowDetail<'a> {
    let method = match phase {
        EpisodePhase::Network => {
            return SlowDetail::Network(work::longest(WorkKind::Cni, &episode.calls.iter()));
        }
        EpisodePhase::ImagePull => {
            return held_up(episode, Method::PullImage, took)
                .unwrap_or_else(|| pull(episode, took));
        }
        EpisodePhase::OutsideCri => return outside(episode),
        EpisodePhase::InitContainer => return init(episode),
        EpisodePhase::ContainerStop => {
            return held_up(episode, Method::StopContainer, took)
                .unwrap_or_else(|| stop(episode, pod));
        }
        EpisodePhase::Sandbox => Method::RunPodSandbox,
        EpisodePhase::ContainerCreate => Method::CreateContainer,
        EpisodePhase::ContainerStart => Method::StartContainer,
        EpisodePhase::Hook => Method::ExecSync,
        EpisodePhase::SandboxStop => Method::StopPodSandbox,
        EpisodePhase::ContainerRemove => Method::RemoveContainer,
        EpisodePhase::SandboxRemove => Method::RemovePodSandbox,
    };
    calls_of_method(episode, method, took)
}

/// An episode that was not slow.
fn not_slow<'a>(episode: &'a Episode, pod: &[&'a Episode], now: UnixMicros) -> NotSlow<'a> {
    let container = episode.container.as_deref().map(|c| &*c.name);
    let started = history::has_started(episode);
    let end = match episode.kind {
        Kind::Start if started => outcome_of_start(episode, pod, now),
        Kind::Restart if started => outcome_of_restart(episode, pod, container),
        Kind::Restart if container.is_none() => EpisodeOutcome::ImagePulled,
        Kind::Stop => match only_stopped(episode) {
            Some(name) => EpisodeOutcome::ContainerStopped(name),
            None => EpisodeOutcome::PodStopped,
        },
        _ => EpisodeOutcome::Incomplete,
    };
    let took = episode.duration();
    NotSlow { took, end }
}

/// Outcome of a restart: the container that it started has done its work, or is up.
fn outcome_of_restart<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    container: Option<&'a str>,
) -> EpisodeOutcome<'a> {
    let exits = episode.exits.iter().rev();
    let mut done = exits.filter(|exit| Some(&*exit.container) == container && exit.code == 0);
    let done = done.find(|exit| {
        !exit.stop_requested && before::run_before_restart(exit, pod, exit.at).is_none()
    });
    match done {
        Some(exit) => EpisodeOutcome::ContainerDone(exit),
        None => EpisodeOutcome::ContainerUp(container),
    }
}

/// The container that was stopped, if the pod was not.
fn only_stopped(episode: &Episode) -> Option<&str> {
    let all_stops = episode
        .calls
        .iter()
        .all(|c| c.method == Method::StopContainer);
    let last = episode.calls.back().filter(|_| all_stops)?;
    last.container_name()
}

/// The exit of the run that a call of this episode started.
fn exit_of<'a>(call: &EpisodeCall, episode: &'a Episode) -> Option<&'a ExitRecord> {
    let mut newest_first = episode.exits.iter().rev();
    newest_first.find(|exit| exit.is_of_start(call))
}

/// Outcome of a start: the containers that are up, or the last one if all have done their work.
fn outcome_of_start<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    now: UnixMicros,
) -> EpisodeOutcome<'a> {
    let mut starts = episode.calls.iter().filter(|call| call.has_started());
    let up = starts
        .clone()
        .filter(|call| exit_of(call, episode).is_none());
    let mut up: Vec<_> = up.filter_map(|call| call.container_name()).collect();
    up.dedup();
    let last = starts.next_back();
    let last_exit = last.and_then(|call| exit_of(call, episode));
    let done = last_exit.filter(|exit| {
        let mut calls = history::calls(pod);
        let is_followed = calls.any(|call| call.has_started() && call.ended_at() > exit.at);
        exit.code == 0 && !exit.stop_requested && up.is_empty() && !is_followed
    });
    if let Some(exit) = done {
        return EpisodeOutcome::ContainerDone(exit);
    }
    let since = now.since(episode.ended);
    match &up[..] {
        [name] if episode.is_open() && since >= NEXT_CONTAINER_WITHIN => {
            EpisodeOutcome::OneContainerUp {
                container: name,
                since,
            }
        }
        _ => EpisodeOutcome::ContainersUp(up),
    }
}

fn pull(episode: &Episode, took: Duration) -> SlowDetail<'_> {
    let pulls = work::calls_of(episode, Method::PullImage);
    let mut images: Vec<_> = pulls.clone().filter_map(|c| c.image.as_deref()).collect();
    images.sort_unstable();
    images.dedup();
    let own = work::longest(WorkKind::Runtime, &pulls).filter(|worker| worker.own);
    let layer = work::longest(WorkKind::Layers, &pulls).or(own);
    SlowDetail::Pull {
        images: images.len(),
        longest: longest_call(pulls),
        layer: layer.filter(|worker| 2 * worker.took >= took),
    }
}

fn longest_call<'a>(calls: impl Iterator<Item = &'a EpisodeCall>) -> Option<&'a EpisodeCall> {
    calls.max_by_key(|call| call.elapsed())
}

/// Time in calls of one method, with the worker that accounts for most of it.
fn calls_of_method(episode: &Episode, method: Method, took: Duration) -> SlowDetail<'_> {
    let calls = work::calls_of(episode, method);
    let kinds = [
        WorkKind::Injected,
        WorkKind::Blocked,
        WorkKind::Oci,
        WorkKind::Helper,
        WorkKind::Runtime,
    ];
    let kinds = kinds.into_iter();
    let workers = kinds.filter_map(|kind| work::longest(kind, &calls));
    let mut workers = workers.filter(|worker| 2 * worker.took >= took);
    SlowDetail::Calls(SlowCalls {
        name: method.name(),
        longest: longest_call(calls.clone()),
        count: calls.clone().count(),
        worker: workers.next(),
        seen: calls.clone().any(|c| !c.work.is_empty()),
    })
}

/// Calls of one method that were held up for most of the time by an injected fault or a process that could not go on.
fn held_up(episode: &Episode, method: Method, took: Duration) -> Option<SlowDetail<'_>> {
    let calls = work::calls_of(episode, method);
    let kinds = [WorkKind::Injected, WorkKind::Blocked].into_iter();
    let mut held = kinds.filter_map(|kind| work::longest(kind, &calls));
    held.any(|held| 2 * held.took >= took)
        .then(|| calls_of_method(episode, method, took))
}

fn stop<'a>(episode: &'a Episode, pod: &[&'a Episode]) -> SlowDetail<'a> {
    let longest = longest_call(work::calls_of(episode, Method::StopContainer));
    SlowDetail::Stop {
        container: longest.and_then(|c| c.container_name()),
        exit: longest.and_then(|call| exit_within(call, pod)),
        again: episode.kind == Kind::Restart,
    }
}

/// The exit that a StopContainer waited for. Runtimes report the time of an exit by another clock.
fn exit_within<'a>(call: &EpisodeCall, pod: &[&'a Episode]) -> Option<&'a ExitRecord> {
    let container = call.container.as_deref()?;
    let window = call.began_at()..=call.ended_at() + EXIT_CLOCK_TOLERANCE;
    history::exits(pod).find(|exit| exit.is_of_run(container) && window.contains(&exit.at))
}

/// Time in init containers.
fn init(episode: &Episode) -> SlowDetail<'_> {
    let waits = episode.waits();
    let longest = waits.iter().max_by_key(|wait| wait.took);
    SlowDetail::Init {
        waits: waits.len(),
        longest: longest.map(|wait| (wait.container, wait.took)),
    }
}

/// Time without a call.
fn outside(episode: &Episode) -> SlowDetail<'_> {
    let widest = widest_gap(episode);
    let work = widest.and_then(|(gap, call)| {
        let to = call.began_at();
        syncs::work_in_gap(episode, to - gap, to)
    });
    SlowDetail::Outside {
        longest: widest,
        work,
    }
}

/// The longest time without a call, and the call after it.
fn widest_gap(episode: &Episode) -> Option<(Duration, &EpisodeCall)> {
    let (mut end, mut widest) = (episode.began, None::<(Duration, &EpisodeCall)>);
    for call in &episode.calls {
        let gap = call.began_at().since(end);
        if gap > widest.map_or(Duration::ZERO, |(most, _)| most) {
            widest = Some((gap, call));
        }
        end = end.max(call.ended_at());
    }
    widest
}
