//! Rules on the time of an episode without failures.

use std::time::Duration;

use super::cause::{Cause, SlowCalls, SlowDetail, SlowPhase, StepsInGap};
use super::init_runs::InitRuns;
use super::node::FactAt;
use super::remarks::Diagnosis;
use super::syncs::WorkInGap;
use super::{LONG_SILENCE, history, node, outcome, syncs, waits, work};
use crate::episode_call::{EpisodeCall, ObservedWork};
use crate::episode_store::{Episode, ExitRecord};
use crate::kubelet::syncs::SyncKind;
use crate::process_scanner::WorkKind;
use crate::timeline::EpisodePhase;
use crate::usual::{ComparedDuration, NodeContext};
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

/// The largest part of an episode's duration.
pub(super) fn largest_part<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    node: &NodeContext<'_>,
    now: UnixMicros,
) -> Diagnosis<'a> {
    let is_slow = node.usual.is_slow(episode.duration());
    let runs = InitRuns::from_start(episode, pod);
    let Some((phase, took)) = runs.longest_phase(episode).filter(|_| is_slow) else {
        let quick = Diagnosis::from(Cause::NotSlow(outcome::not_slow(episode, pod, now)));
        return match unusual(episode, node) {
            Some((call, usual)) => quick.led_by(Cause::UnusualCall { call, usual }),
            None => quick,
        };
    };
    if phase == EpisodePhase::OutsideCri
        && let Some((gap, call)) = widest_gap(episode, &runs)
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
        detail: slow_detail(episode, pod, &runs, phase, took),
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
    runs: &InitRuns<'a>,
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
        EpisodePhase::OutsideCri => return outside(episode, runs),
        EpisodePhase::InitContainer => return init(runs),
        EpisodePhase::Checkpoint => return SlowDetail::Checkpoint,
        EpisodePhase::ContainerStop => {
            return held_up(episode, Method::StopContainer, took)
                .unwrap_or_else(|| stop(episode, pod));
        }
        EpisodePhase::Sandbox => Method::RunPodSandbox,
        EpisodePhase::Restore => Method::RestorePod,
        EpisodePhase::ContainerCreate => Method::CreateContainer,
        EpisodePhase::ContainerStart => Method::StartContainer,
        EpisodePhase::Hook => Method::ExecSync,
        EpisodePhase::SandboxStop => Method::StopPodSandbox,
        EpisodePhase::ContainerRemove => Method::RemoveContainer,
        EpisodePhase::SandboxRemove => Method::RemovePodSandbox,
    };
    calls_of_method(episode, method, took)
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
    is_held_up(episode, method, took).then(|| calls_of_method(episode, method, took))
}

/// Returns whether calls of one method were held up for most of this time by an injected fault or a process that could not go on.
pub(super) fn is_held_up(episode: &Episode, method: Method, took: Duration) -> bool {
    let calls = work::calls_of(episode, method);
    let kinds = [WorkKind::Injected, WorkKind::Blocked].into_iter();
    let mut held = kinds.filter_map(|kind| work::longest(kind, &calls));
    held.any(|held| 2 * held.took >= took)
}

fn stop<'a>(episode: &'a Episode, pod: &[&'a Episode]) -> SlowDetail<'a> {
    let longest = longest_call(work::calls_of(episode, Method::StopContainer));
    SlowDetail::Stop {
        container: longest.and_then(|c| c.container_name()),
        exit: longest.and_then(|call| exit_after(call, pod)),
    }
}

/// The exit that a StopContainer waited for.
fn exit_after<'a>(call: &EpisodeCall, pod: &[&'a Episode]) -> Option<&'a ExitRecord> {
    let container = call.container.as_deref()?;
    history::exits(pod).find(|exit| exit.is_of_run(container) && exit.at >= call.began_at())
}

/// Time in init containers.
fn init<'a>(runs: &InitRuns<'a>) -> SlowDetail<'a> {
    let (containers, longest) = runs.longest_container();
    SlowDetail::Init {
        containers,
        longest,
    }
}

/// Time without a call.
fn outside<'a>(episode: &'a Episode, runs: &InitRuns<'_>) -> SlowDetail<'a> {
    let widest = widest_gap(episode, runs);
    let work = widest.and_then(|(gap, call)| {
        let to = call.began_at();
        syncs::work_in_gap(episode, to - gap, to)
    });
    SlowDetail::Outside {
        longest: widest,
        steps: widest.and_then(|(gap, call)| steps_in_gap(episode, gap, call, work.as_ref())),
        after: widest.and_then(|(gap, call)| started_before(episode, gap, call)),
        work,
    }
}

/// What the kubelet does in the gap before this call.
fn steps_in_gap<'a>(
    episode: &'a Episode,
    gap: Duration,
    next: &EpisodeCall,
    work: Option<&WorkInGap<'_>>,
) -> Option<StepsInGap<'a>> {
    let earlier = episode
        .calls
        .iter()
        .filter(|call| call.began < next.began && call.ended_at() <= next.began_at());
    let is_in_sync = matches!(work, Some(WorkInGap::Inside(SyncKind::Sync)));
    let last = earlier.clone().max_by_key(|call| call.ended_at())?;
    if last.has_started() {
        return last
            .container_name()
            .filter(|_| is_in_sync)
            .map(StepsInGap::PostStart);
    }
    if next.method == Method::CreateContainer {
        let is_long = gap >= LONG_SILENCE && next.peer.is_kubelet() && work.is_none();
        let steps = waits::steps_before_create(last).filter(|_| is_long);
        return steps.map(StepsInGap::BeforeCreate);
    }
    let is_first = !earlier
        .clone()
        .any(|call| call.method == Method::PullImage && call.is_bad());
    let is_between_syncs = matches!(work, Some(WorkInGap::Between(_)));
    (next.method == Method::PullImage && is_first && !is_between_syncs)
        .then_some(StepsInGap::BeforePull)
}

/// The container after whose start a time without a call began, if the kubelet began with another container then. A container that ended in that
/// time held nothing up later.
fn started_before<'a>(episode: &'a Episode, gap: Duration, next: &EpisodeCall) -> Option<&'a str> {
    let (from, to) = (next.began_at() - gap, next.began_at());
    let mut before = episode.calls.iter().filter(|call| call.ended_at() == from);
    let start = before.find(|call| call.has_started())?;
    let has_ended = episode
        .exits
        .iter()
        .any(|exit| exit.is_of_start(start) && exit.at <= to);
    let name = start.container_name()?;
    let is_other = match next.method {
        Method::CreateContainer => next.container_name() != Some(name),
        method => method == Method::PullImage,
    };
    (episode.kind == Kind::Start && is_other && !has_ended).then_some(name)
}

/// The longest time in which neither a call nor an init container ran, and the call after it.
fn widest_gap<'a>(
    episode: &'a Episode,
    runs: &InitRuns<'_>,
) -> Option<(Duration, &'a EpisodeCall)> {
    let (mut end, mut widest) = (episode.began, None::<(Duration, &EpisodeCall)>);
    for call in &episode.calls {
        let began = call.began_at();
        let gap = began.since(runs.idle_since(end, began));
        if gap > widest.map_or(Duration::ZERO, |(most, _)| most) {
            widest = Some((gap, call));
        }
        end = end.max(call.ended_at());
    }
    widest
}
