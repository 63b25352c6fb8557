//! Rules on the kubelet's own work and waits. `words::kubelet` makes the sentences.

use std::time::Duration;

use super::history;
use super::kill_reason::{KillReason, kill_reason};
use super::kills::{self, KillLoop};
use super::node::FactAt;
use super::slow;
use super::stopped::{HurriedStop, hurried_stop};
use super::syncs::{self, FailingSync, WorkBeforeCalls};
use crate::episode_call::EpisodeCall;
use crate::episode_store::{Episode, POST_START_FOLLOWS_WITHIN};
use crate::kubelet::execs::ExecResult;
use crate::kubelet::probes::FailedProbe;
use crate::kubelet::pulls::PullQueue;
use crate::timeline::EpisodePhase;
use crate::usual::UsualDurations;
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

/// A stop may seem shorter than its grace period by this much, because of clocks.
const GRACE_PERIOD_TOLERANCE: Duration = Duration::from_millis(50);

/// A cause that lies with the kubelet, or with the work that it was asked to do.
#[derive(Clone, Debug)]
pub(crate) enum KubeletCause<'a> {
    /// Most of a start passed before the first call.
    BeforeFirstCall {
        /// From the moment at which the kubelet saw the pod to its first call.
        waited: Duration,
        /// The last part of the wait, if the calls before were not observed.
        watched: Option<Duration>,
        /// From the first call to the end of the last call.
        then: Duration,
        /// True if a container was started.
        up: bool,
        /// The kubelet's work in this time, if its spans show it.
        work: WorkBeforeCalls<'a>,
    },
    /// Most of a stop passed before its first call.
    BeforeStop {
        /// Since the begin of the stop, if a span of the kubelet shows it.
        waited: Option<Duration>,
        /// The downtime of criscope that explains the wait, at the end of the wait.
        fact: Option<FactAt<'a>>,
        then: Duration,
    },
    /// The kubelet cannot sync the pod, for a reason that no call shows.
    FailingSync(FailingSync<'a>),
    /// Most of a start passed while other images were pulled.
    PullQueue {
        queue: &'a PullQueue,
        total: Duration,
    },
    /// A hook runs. `failed_probe`: the exec probe for which the kubelet kills the container.
    HookInFlight {
        hook: ContainerHook<'a>,
        failed_probe: Option<FailedProbe>,
    },
    /// A postStart hook took most of a start.
    PostStart {
        hook: ContainerHook<'a>,
        total: Duration,
    },
    /// A container was stopped, with all that is known about it.
    ContainerStopped {
        stop: ContainerStop<'a>,
        total: Duration,
    },
    /// A container was killed and started again.
    ContainerKilled {
        reason: KillReason,
        /// Since the end of the stop.
        ago: Duration,
        stop: ContainerStop<'a>,
        hurried: Option<HurriedStop<'a>>,
        total: Duration,
    },
    /// A container is killed again and again.
    KillLoop(KillLoop<'a>),
}

/// A hook of a container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContainerHook<'a> {
    pub(super) container: &'a str,
    pub(super) kind: HookKind,
    pub(super) took: Duration,
    /// `None` while it runs.
    pub(super) result: Option<ExecResult>,
}

/// The kind of a hook. The CRI does not say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookKind {
    /// The hook began when its container had just started.
    PostStart,
    /// A stop of the container followed, or nothing was started before.
    PreStop,
    /// Either kind is possible.
    Unknown,
}

/// The stop of a container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContainerStop<'a> {
    pub(super) container: &'a str,
    pub(super) pre_stop: Option<ContainerHook<'a>>,
    /// Duration of StopContainer.
    pub(super) took: Duration,
    /// The grace period after which the container was killed; `None` if it ended before.
    pub(super) killed_after: Option<Duration>,
}

/// The kubelet's part in an episode, if it is the largest. `usual`: says from which duration on work is slow.
pub(super) fn kubelet_cause<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    usual: &UsualDurations,
    now: UnixMicros,
) -> Option<KubeletCause<'a>> {
    let cause = killed(episode, pod, now)
        .or_else(|| before_first_call(episode, usual))
        .or_else(|| before_stop(episode, usual));
    if cause.is_some() {
        return cause;
    }
    let total = Some(episode.duration()).filter(|total| usual.is_slow(*total))?;
    let (longest, took) = history::longest_phase(episode)?;
    match (longest, episode.kind) {
        (EpisodePhase::OutsideCri, _) => {
            let queues = episode.calls.iter().filter_map(|c| c.queue.as_deref());
            let queue = queues.max_by_key(|queue| queue.waited)?;
            let is_most = queue.waited >= took / 2;
            is_most.then_some(KubeletCause::PullQueue { queue, total })
        }
        (EpisodePhase::Hook | EpisodePhase::ContainerStop, Kind::Stop) => {
            // What holds the stop up says more than its length.
            if slow::is_held_up(episode, Method::StopContainer, took) {
                return None;
            }
            let stop = slowest_stop(episode)?;
            let is_more = stop.pre_stop.is_some() || stop.killed_after.is_some();
            is_more.then_some(KubeletCause::ContainerStopped { stop, total })
        }
        (EpisodePhase::Hook, _) => {
            let hooks = episode.calls.iter().filter(|c| is_hook(c));
            let hook = container_hook(episode, hooks.max_by_key(|c| c.elapsed())?);
            Some(KubeletCause::PostStart { hook, total })
        }
        _ => None,
    }
}

/// A hook in flight.
pub(super) fn hook_in_flight<'a>(
    episode: &'a Episode,
    call: &'a EpisodeCall,
) -> Option<KubeletCause<'a>> {
    is_hook(call).then(|| KubeletCause::HookInFlight {
        hook: container_hook(episode, call),
        failed_probe: call.probe,
    })
}

pub(super) fn is_hook(call: &EpisodeCall) -> bool {
    call.method == Method::ExecSync
}

pub(super) fn is_same_container(one: &EpisodeCall, other: &EpisodeCall) -> bool {
    one.container_id.is_some() && one.container_id == other.container_id
}

fn container_hook<'a>(episode: &Episode, call: &'a EpisodeCall) -> ContainerHook<'a> {
    ContainerHook {
        container: call.container_name().unwrap_or("a container"),
        kind: hook_kind(episode, call),
        took: call.took(),
        result: (!call.is_in_flight()).then(|| ExecResult::from_record(call)),
    }
}

/// A hook that follows the start of its container in this episode is a postStart hook, unless a stop of the container follows.
fn hook_kind(episode: &Episode, call: &EpisodeCall) -> HookKind {
    let calls = episode.calls.iter();
    let mut same = calls.filter(|other| is_same_container(other, call));
    let start = same.clone().rfind(|other| {
        other.method == Method::StartContainer && other.ended_at() <= call.began_at()
    });
    let Some(start) = start.filter(|_| call.probe.is_none()) else {
        return HookKind::PreStop;
    };
    let id = call.container_id.as_deref();
    if id.is_some_and(|id| episode.has_no_pre_stop_command(id)) {
        return HookKind::PostStart;
    }
    let is_soon = call.began_at().since(start.ended_at()) <= POST_START_FOLLOWS_WITHIN;
    if same.any(|other| other.method == Method::StopContainer && other.end() <= call.end()) {
        HookKind::PreStop
    } else if is_soon || !call.is_in_flight() {
        HookKind::PostStart
    } else {
        HookKind::Unknown
    }
}

/// A wait before the first call that took longer than every phase after it. If criscope was not running from the begin of the
/// wait, only the part that it watched counts.
fn before_first_call<'a>(episode: &'a Episode, usual: &UsualDurations) -> Option<KubeletCause<'a>> {
    let seen = episode.seen_before()?;
    let watched = seen.before.saturating_sub(seen.unwatched);
    let (_, longest) = history::longest_phase(episode)?;
    (usual.is_slow(watched) && watched >= longest).then(|| KubeletCause::BeforeFirstCall {
        waited: seen.before,
        watched: (!seen.unwatched.is_zero()).then_some(watched),
        then: episode.duration(),
        up: episode.started > 0,
        work: syncs::work_before_calls(episode, seen.before),
    })
}

/// A wait before the first call of a stop that took longer than every phase after it: since the begin of the stop, if a span of
/// the kubelet shows it, else the time in which criscope did not run and accepted no call.
fn before_stop<'a>(episode: &'a Episode, usual: &UsualDurations) -> Option<KubeletCause<'a>> {
    if episode.kind != Kind::Stop {
        return None;
    }
    let (began, then) = (episode.began, episode.duration());
    let (_, longest) = history::longest_phase(episode)?;
    let shortest = longest.max(usual.slow());
    if let Some(waited) = syncs::before_stop(episode).filter(|waited| *waited >= shortest) {
        // Other facts do not delay a preStop hook other than exec, which needs no runtime.
        let mut own = episode.node.iter().filter(|fact| fact.is_of_criscope());
        let fact = own.find(|fact| 2 * fact.within(began - waited, began) >= waited);
        return Some(KubeletCause::BeforeStop {
            waited: Some(waited),
            fact: fact.map(|fact| FactAt { fact, now: began }),
            then,
        });
    }
    let mut facts = episode.node.iter();
    let fact = facts.find(|fact| fact.held_up(began) && began.since(fact.from) >= shortest)?;
    Some(KubeletCause::BeforeStop {
        waited: None,
        fact: Some(FactAt { fact, now: began }),
        then,
    })
}

/// The stop of a container by this call.
pub(super) fn container_stop<'a>(episode: &'a Episode, call: &'a EpisodeCall) -> ContainerStop<'a> {
    let mut newest_first = episode.calls.iter().rev();
    let hook = newest_first.find(|other| {
        is_hook(other) && is_same_container(other, call) && other.began <= call.began
    });
    let took = call.took();
    ContainerStop {
        container: call.container_name().unwrap_or("a container"),
        // A hook that takes longer than the grace period goes on while the container is stopped.
        pre_stop: hook.map(|hook| ContainerHook {
            container: hook.container_name().unwrap_or("a container"),
            kind: HookKind::PreStop,
            took: call.began_at().min(hook.ended_at()).since(hook.began_at()),
            result: (hook.ended_at() <= call.began_at()).then(|| ExecResult::from_record(hook)),
        }),
        took,
        killed_after: call
            .facts
            .grace_period()
            .filter(|grace| call.is_good() && took + GRACE_PERIOD_TOLERANCE >= *grace),
    }
}

/// The stop that took longest, its hook included.
fn slowest_stop(episode: &Episode) -> Option<ContainerStop<'_>> {
    let calls = episode.calls.iter();
    let stops = calls.filter(|c| c.method == Method::StopContainer && !c.is_in_flight());
    let stops = stops.map(|call| container_stop(episode, call));
    stops.max_by_key(|stop| stop.took + stop.pre_stop.map_or(Duration::ZERO, |hook| hook.took))
}

/// The kill in a restart.
fn killed<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    now: UnixMicros,
) -> Option<KubeletCause<'a>> {
    let restarted = episode
        .container
        .as_deref()
        .filter(|_| episode.kind == Kind::Restart)?;
    let mut calls = episode.calls.iter().rev();
    let call = calls
        .find(|call| kills::is_kill(call) && call.container_name() == Some(&*restarted.name))?;
    Some(KubeletCause::ContainerKilled {
        reason: kill_reason(pod, call),
        ago: now.since(call.ended_at()),
        stop: container_stop(episode, call),
        hurried: hurried_stop(pod, call),
        total: episode.duration(),
    })
}
