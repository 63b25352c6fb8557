//! Pods that were stopped while containers ran. The CRI carries no reason for a stop; its calls show who asked for it, with which
//! grace period, and how the containers ended. `words::stopped` makes the sentence.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cause::Cause;
use super::crash::CrashLoop;
use super::kill_reason::{KillReason, known_kill_reason};
use super::kubelet::{self, ContainerStop};
use super::reasons::{ClosedList, ShorterGrace};
use super::remarks::{Diagnosis, Remark};
use super::{history, interventions, syncs};
use crate::episode_call::EpisodeCall;
use crate::episode_store::{Episode, ExitRecord};
use criscope_cri::Method;
use criscope_cri::call::Peer;
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::ContainerIdentity;
use criscope_cri::units::times::UnixMicros;

/// When the kubelet ends a pod, StopPodSandbox follows the last StopContainer within this time. After a probe has ended a single
/// container it takes longer.
const SANDBOX_STOP_FOLLOWS_WITHIN: Duration = Duration::from_secs(1);
/// The kubelet begins the next sync of a pod within this time: it notices the start of a container within a second
/// (`genericPlegRelistPeriod` in `pkg/kubelet/kubelet.go`).
const NEXT_SYNC_WITHIN: Duration = Duration::from_secs(2);
/// The longest grace period of a hard eviction: the kubelet sets 1 s, and newer versions raise it to their minimum of 2 s. A soft eviction
/// may set any.
const HARD_EVICTION_GRACE_PERIOD: Duration = Duration::from_secs(2);
/// The kubelet leaves a container at least this long after its preStop hook.
const MIN_GRACE_AFTER_HOOK: Duration = Duration::from_secs(2);

/// The stop of a pod.
#[derive(Debug)]
pub(crate) struct PodStop<'a> {
    /// The callers that stopped containers or the sandbox, as sentences name them, in this order.
    pub(super) by: Vec<&'a str>,
    pub(super) ago: Duration,
    /// From the first call of the stop to the last.
    pub(super) took: Duration,
    /// Why the kubelet stopped a container, if an event just before shows it.
    pub(super) reason: Option<KillReason>,
    /// The caller that made a pod which the kubelet stopped and had not touched before: it stops pods that it does not know
    /// (`HandlePodCleanups` in `pkg/kubelet/kubelet_pods.go`).
    pub(super) unknown_pod_of: Option<&'a Peer>,
    pub(super) shortened: Option<ShortenedGracePeriod>,
    /// The containers that the stop ended, the slowest first; empty if the running containers are not known.
    pub(super) ends: Vec<StoppedContainer<'a>>,
    /// The exit of the last container that ended by itself while the stopped ones ran, and the time from it to the stop. A job with
    /// sidecars ends so; a pod may also be deleted just then, and no call shows which.
    pub(super) before: Option<(&'a ExitRecord, Duration)>,
    /// From the end of the pod's start to its stop, if the kubelet stopped it in its next sync.
    pub(super) after_start: Option<Duration>,
    /// True if the pod still existed some seconds after the kubelet had stopped it.
    pub(super) is_kept: bool,
}

/// A grace period that is shorter than the pod's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShortenedGracePeriod {
    pub(super) given: Duration,
    pub(super) own: Duration,
    /// Why the kubelet may have asked for it; empty if another caller did.
    pub(super) reasons: Vec<ShorterGrace>,
}

/// A container that was stopped.
#[derive(Debug)]
pub(crate) struct StoppedContainer<'a> {
    pub(super) container: &'a ContainerIdentity,
    /// The call that ended the container.
    by: &'a EpisodeCall,
    /// `None` if it ended with the sandbox.
    pub(super) stop: Option<ContainerStop<'a>>,
    pub(super) exit: Option<&'a ExitRecord>,
    pub(super) hurried: Option<HurriedStop<'a>>,
}

/// A later StopContainer of another caller, which shortened the grace period of the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HurriedStop<'a> {
    pub(super) call: &'a EpisodeCall,
    /// The time from the first StopContainer to this one.
    pub(super) after: Duration,
}

/// The stop of a pod; `None` unless it ended containers.
pub(super) fn pod_stop<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    now: UnixMicros,
) -> Option<PodStop<'a>> {
    let mut calls = episode.calls.iter();
    let sandbox = calls.find(|call| call.is_good() && history::ends_sandbox(call))?;
    let alone = stopped_alone(episode, pod);
    let with_sandbox = ended_with(sandbox, episode, pod, &alone);
    let mut stopped: Vec<_> = alone.into_iter().chain(with_sandbox).collect();
    if stopped.is_empty() && !may_have_ended(sandbox, episode, pod) {
        return None;
    }
    let before = ended_before(&stopped, episode, pod);
    let unknown_pod_of = interventions::unknown_pod_of(episode, pod);
    let shortened = shortened_grace_period(&stopped, sandbox, episode, pod)
        .filter(|_| unknown_pod_of.is_none());
    let mut by = Vec::new();
    let stops = stopped
        .iter()
        .flat_map(|stopped| {
            [
                Some(stopped.by),
                stopped.hurried.map(|hurried| hurried.call),
            ]
        })
        .flatten();
    for call in stops.chain([sandbox]) {
        let name = call.peer.in_words();
        if !by.contains(&name) {
            by.push(name);
        }
    }
    let mut reasons = stopped
        .iter()
        .filter_map(|stopped| known_kill_reason(pod, stopped.by));
    // After a kill by a probe the kubelet ends the pod only if its containers are never started again.
    let is_never_restarted = shortened.is_none() && !restarts_containers(episode, pod);
    let reason =
        reasons.find(|reason| is_never_restarted || !matches!(reason, KillReason::Probe(_)));
    stopped.sort_by_key(|end| std::cmp::Reverse(end.stop.map(|stop| stop.took)));
    Some(PodStop {
        by,
        ago: now.since(sandbox.ended_at()),
        took: episode.duration(),
        reason,
        unknown_pod_of,
        shortened,
        ends: stopped,
        after_start: after_start(episode, pod),
        is_kept: episode.found_after_stop.is_some()
            && before.is_none()
            && sandbox.peer.is_kubelet(),
        before: before.map(|exit| (exit, episode.began.since(exit.at))),
    })
}

/// The time from the last StartContainer of a start to the stop, if the kubelet made both and no other call in between. The kubelet begins
/// the next sync of a pod when the one that started its containers has ended (`podWorkerLoop` in `pkg/kubelet/pod_workers.go`).
fn after_start(stop: &Episode, pod: &[&Episode]) -> Option<Duration> {
    let own = pod
        .iter()
        .filter(|other| other.pod.attempt == stop.pod.attempt);
    let start = own.clone().find(|other| other.kind == Kind::Start)?;
    let last = start.calls.iter().filter(|call| call.has_started());
    let last = last.max_by_key(|call| call.ended_at())?;
    let first = stop.calls.iter().min_by_key(|call| call.began)?;
    let after = first.began_at().since(last.ended_at());
    let are_of_kubelet = last.peer.is_kubelet() && first.peer.is_kubelet();
    let mut calls = own.flat_map(|other| &other.calls);
    let is_next =
        !calls.any(|call| call.began_at() > last.began_at() && call.began_at() < first.began_at());
    let is_soon = after <= NEXT_SYNC_WITHIN && first.began_at() >= last.ended_at();
    (are_of_kubelet && is_next && is_soon).then_some(after)
}

/// The diagnosis of a stopped pod, with what was the matter before that the stop does not explain. `loops`: the loops of its containers.
pub(super) fn with_past<'a>(
    then: Diagnosis<'a>,
    mut stop: PodStop<'a>,
    before: Diagnosis<'a>,
    loops: &BTreeMap<&'a str, CrashLoop<'a>>,
) -> Diagnosis<'a> {
    stop.after_start = stop.after_start.filter(|_| before.is_about_slow_start());
    let follows_start = stop.after_start.is_some();
    let mut stopped = then.led_by(Cause::PodStopped(stop));
    if follows_start && loops.is_empty() {
        stopped.remarks.push(Remark::Also(before.cause));
        return stopped;
    }
    let recovered = loops.values().filter(|crashes| crashes.has_recovered());
    let recovered = recovered.map(|crashes| Remark::Also(Cause::CrashLoop(crashes.clone())));
    stopped.remarks.extend(recovered);
    if loops.is_empty()
        && let Some(before) = before.cause.into_unexplained_end()
    {
        stopped.remarks = vec![Remark::Also(before)];
    }
    stopped
}

/// Who stopped the pod of a failure, and when.
pub(super) fn sandbox_stop<'a>(episode: &'a Episode, now: UnixMicros) -> Option<Remark<'a>> {
    let mut calls = episode.calls.iter();
    let sandbox = calls.find(|call| call.is_good() && history::ends_sandbox(call))?;
    Some(Remark::PodStopped {
        by: &sandbox.peer,
        ago: now.since(sandbox.ended_at()),
    })
}

/// Returns whether the kubelet has started a container of this pod again.
fn restarts_containers(episode: &Episode, pod: &[&Episode]) -> bool {
    let mut runs = last_runs(episode, pod);
    runs.any(|(container, _)| container.attempt > 0)
}

fn exit_of<'a>(container: &ContainerIdentity, pod: &[&'a Episode]) -> Option<&'a ExitRecord> {
    history::exits(pod).find(|exit| exit.is_of_run(container))
}

/// The containers that StopContainer ended. Containers that had ended before do not count.
fn stopped_alone<'a>(episode: &'a Episode, pod: &[&'a Episode]) -> Vec<StoppedContainer<'a>> {
    let mut stopped = Vec::<StoppedContainer<'_>>::new();
    let mut in_order: Vec<_> = episode.calls.iter().collect();
    in_order.sort_by_key(|call| call.began);
    for call in in_order {
        let is_stop = call.method == Method::StopContainer && call.is_good();
        let Some(container) = call.container.as_deref().filter(|_| is_stop) else {
            continue;
        };
        let exit = exit_of(container, pod);
        let is_late = exit.is_some_and(|exit| !exit.stop_requested && exit.at <= call.began_at());
        if !is_late && !stopped.iter().any(|other| other.container == container) {
            stopped.push(StoppedContainer {
                container,
                by: call,
                stop: Some(kubelet::container_stop(episode, call)),
                exit,
                hurried: hurried_stop(&[episode], call),
            });
        }
    }
    stopped
}

/// The first StopContainer of another caller that came while this one waited, with less time.
pub(super) fn hurried_stop<'a>(
    pod: &[&'a Episode],
    first: &EpisodeCall,
) -> Option<HurriedStop<'a>> {
    let exit = first.container.as_deref();
    let exit = exit.and_then(|container| exit_of(container, pod));
    let ended = exit.map_or(first.ended_at(), |exit| exit.at);
    let deadline = first.began_at() + first.facts.grace_period()?;
    let later = history::calls(pod).filter(|call| {
        let is_shorter = call
            .facts
            .grace_period()
            .is_some_and(|grace| call.began_at() + grace < deadline);
        call.method == Method::StopContainer
            && call.container == first.container
            && call.peer.in_words() != first.peer.in_words()
            && (first.began_at()..ended).contains(&call.began_at())
            && is_shorter
    });
    let call = later.min_by_key(|call| call.began)?;
    Some(HurriedStop {
        call,
        after: call.began_at().since(first.began_at()),
    })
}

/// The last run of each container that was started in the sandbox of this stop, with its StartContainer.
fn last_runs<'a>(
    episode: &Episode,
    pod: &[&'a Episode],
) -> impl Iterator<Item = (&'a ContainerIdentity, &'a EpisodeCall)> {
    let attempt = episode.pod.attempt;
    let own = pod.iter().filter(move |other| other.pod.attempt == attempt);
    let starts = own.flat_map(|other| &other.calls);
    let starts = starts.filter(|call| call.has_started());
    let starts: Vec<_> = starts
        .filter_map(|call| Some((call.container.as_deref()?, call)))
        .collect();
    let mut last = starts.clone();
    last.retain(|(container, _)| {
        let mut others = starts.iter().map(|(other, _)| other);
        !others.any(|other| other.name == container.name && other.attempt > container.attempt)
    });
    last.into_iter()
}

/// The containers that ended with the sandbox, as their exits show.
fn ended_with<'a>(
    sandbox: &'a EpisodeCall,
    episode: &Episode,
    pod: &[&'a Episode],
    alone: &[StoppedContainer<'_>],
) -> Vec<StoppedContainer<'a>> {
    let others = last_runs(episode, pod)
        .filter(|(container, _)| !alone.iter().any(|other| other.container == *container));
    let ended = others.filter_map(|(container, _)| {
        let exit = exit_of(container, pod)?;
        let is_with_sandbox = exit.stop_requested && exit.at >= sandbox.began_at();
        is_with_sandbox.then_some(StoppedContainer {
            container,
            by: sandbox,
            stop: None,
            exit: Some(exit),
            hurried: None,
        })
    });
    ended.collect()
}

/// Returns whether the sandbox may have ended a container whose exit is not known: a client other than the kubelet stopped it. The
/// kubelet stops the containers before the sandbox.
fn may_have_ended(sandbox: &EpisodeCall, episode: &Episode, pod: &[&Episode]) -> bool {
    let mut runs = last_runs(episode, pod);
    !sandbox.peer.is_kubelet() && runs.any(|(container, _)| exit_of(container, pod).is_none())
}

/// The exit of the last container that ended by itself before the stop. Init containers do not count: they ended before the
/// stopped ones were started.
fn ended_before<'a>(
    stopped: &[StoppedContainer<'_>],
    episode: &Episode,
    pod: &[&'a Episode],
) -> Option<&'a ExitRecord> {
    let runs = last_runs(episode, pod);
    let stopped_runs = runs.filter(|(container, _)| {
        let mut others = stopped.iter();
        others.any(|other| other.container == *container)
    });
    let since = stopped_runs.map(|(_, start)| start.ended_at()).max()?;
    let exits = last_runs(episode, pod).filter_map(|(container, _)| exit_of(container, pod));
    let own =
        exits.filter(|exit| !exit.stop_requested && (since..=episode.ended).contains(&exit.at));
    own.max_by_key(|exit| exit.at)
}

/// The longest grace period that a container had, if it is shorter than the pod's own and no call or span explains the difference: the
/// kubelet subtracts the time of preStop hooks and of the wait for other containers.
fn shortened_grace_period(
    stopped: &[StoppedContainer<'_>],
    sandbox: &EpisodeCall,
    episode: &Episode,
    pod: &[&Episode],
) -> Option<ShortenedGracePeriod> {
    let own = own_grace_period(pod)?;
    let before = syncs::before_stop(episode);
    let began = episode.began - before.unwrap_or_default();
    let stops = stopped.iter().filter(|stopped| stopped.stop.is_some());
    let stops = stops.map(|stopped| stopped.by);
    let given = stops.clone().filter_map(|call| call.facts.grace_period());
    let given = given.max()?;
    let has_whole = stops.clone().any(|call| {
        let (grace, used) = (call.facts.grace_period(), call.began_at().since(began));
        grace.is_none_or(|grace| grace + used >= own)
    });
    let last = stops.clone().map(|call| call.ended_at()).max()?;
    let is_of_pod = sandbox.began_at().since(last) <= SANDBOX_STOP_FOLLOWS_WITHIN;
    let is_of_kubelet = stops.clone().all(|call| call.peer.is_kubelet());
    let reasons = ShorterGrace::ALL.iter().copied().filter(|reason| {
        is_of_kubelet
            && match reason {
                ShorterGrace::Eviction | ShorterGrace::Orphan => {
                    given <= HARD_EVICTION_GRACE_PERIOD
                }
                ShorterGrace::SoftEviction => given > HARD_EVICTION_GRACE_PERIOD,
                ShorterGrace::Hook => {
                    before.is_none()
                        && given >= MIN_GRACE_AFTER_HOOK
                        && may_have_unseen_hook(stopped, pod)
                }
                ShorterGrace::Deletion | ShorterGrace::NodeShutdown => true,
            }
    });
    (is_of_pod && !has_whole).then(|| ShortenedGracePeriod {
        given,
        own,
        reasons: reasons.collect(),
    })
}

/// Returns whether a preStop hook that makes no call may have run in one of these containers.
fn may_have_unseen_hook(stopped: &[StoppedContainer<'_>], pod: &[&Episode]) -> bool {
    stopped.iter().any(|stopped| {
        let mut calls = history::calls(pod);
        let request = calls.find_map(|call| {
            let is_own = call.container.as_deref() == Some(stopped.container);
            call.facts.container_request().filter(|_| is_own)
        });
        request.is_none_or(|request| request.may_have_unseen_pre_stop())
    })
}

/// The pod's own grace period.
fn own_grace_period(pod: &[&Episode]) -> Option<Duration> {
    let mut newest_first = history::calls(pod).rev();
    newest_first.find_map(|call| {
        let grace = call.facts.container_request()?.pod_grace?;
        Some(Duration::from_secs(grace.into()))
    })
}
