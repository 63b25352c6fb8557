//! The predecessor of a start or restart: the end of the container that runs again, or the sandbox that was replaced.

use std::time::Duration;

use super::kill_reason::{self, KillReason};
use super::sandbox::{self, SandboxDeath};
use super::{containers, history, outcome};
use crate::episode_call::EpisodeCall;
use crate::episode_store::{Episode, ExitRecord};
use crate::node::{DOWNTIME_NOTICED_WITHIN, NodeFact, NodeFactKind};
use criscope_cri::Method;
use criscope_cri::call::Peer;
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::ExitReason;
use criscope_cri::units::times::UnixMicros;

/// A shorter wait for the next run is the kubelet's own work.
const MIN_RESTART_DELAY: Duration = Duration::from_secs(5);
/// Sandboxes of a pod that were made within this time of each other are one series.
const MAX_GAP_BETWEEN_SANDBOXES: Duration = Duration::from_secs(10 * 60);
/// A sandbox that is replaced within this time of the return of its runtime was lost with it.
pub(crate) const REPLACED_AFTER_DOWNTIME_WITHIN: Duration = Duration::from_secs(2 * 60);

/// Why there is another run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Predecessor<'a> {
    /// The container had ended.
    ContainerRun(PreviousRun<'a>),
    /// The sandbox was replaced.
    Sandbox(SandboxReplacement<'a>),
}

impl Predecessor<'_> {
    /// Returns whether no call asked for the end, and it was no success.
    pub(super) fn is_unexplained(&self) -> bool {
        match self {
            Self::ContainerRun(run) => run
                .exit
                .is_some_and(|exit| exit.code != 0 && !exit.stop_requested),
            Self::Sandbox(replaced) => replaced.death.is_some(),
        }
    }

    /// The end of the run before, if it was seen.
    pub(super) fn ended_at(&self) -> Option<UnixMicros> {
        match self {
            Self::ContainerRun(run) => Some(run.exit?.at),
            Self::Sandbox(_) => None,
        }
    }

    /// Returns whether the kubelet killed the earlier container.
    pub(super) fn is_kill(&self) -> bool {
        matches!(self, Self::ContainerRun(run) if run.kill_reason.is_some())
    }

    /// Returns whether the earlier sandbox died without a request. Such a death matters even before anything runs again.
    pub(super) fn is_death(&self) -> bool {
        matches!(self, Self::Sandbox(replaced) if replaced.death.is_some())
    }
}

/// The end of a container that was started again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreviousRun<'a> {
    pub(super) container: &'a str,
    /// `None` if only the call that stopped the run is known.
    pub(super) exit: Option<&'a ExitRecord>,
    /// From the end of the run to the end of the next StartContainer.
    pub(super) again_after: Duration,
    /// How long ago the run ended.
    pub(super) ago: Duration,
    /// True if the next run goes on.
    pub(super) is_up: bool,
    /// The call that stopped or removed the container.
    pub(super) stopped_by: Option<&'a EpisodeCall>,
    /// Why the kubelet did.
    pub(super) kill_reason: Option<KillReason>,
    /// The downtime that took most of the time until the next run.
    pub(super) delayed_by: Option<&'a NodeFact>,
}

/// A sandbox that replaces an earlier one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SandboxReplacement<'a> {
    pub(super) attempt: u32,
    /// Number of replacements in the series, up to this one.
    pub(super) times: usize,
    /// From the first replacement of the series to this one.
    pub(super) window: Duration,
    /// True if the new sandbox has lasted, so that the series is over.
    pub(super) is_over: bool,
    /// The caller that stopped the earlier sandbox, if it was not the kubelet.
    pub(super) stopped_by: Option<&'a Peer>,
    /// The end of the earlier sandbox, if there was no request to stop it.
    pub(super) death: Option<SandboxDeath<'a>>,
    /// The downtime of the runtime or of criscope just before.
    pub(super) downtime: Option<&'a NodeFact>,
    /// The last container that had ended in the earlier sandbox and was not started again there, and the time from its end to the end
    /// of that sandbox.
    pub(super) exit_before: Option<(&'a ExitRecord, Duration)>,
    /// True if the runtime did not see that container end, although neither it nor criscope was down: its shim had died.
    pub(super) has_lost_shim: bool,
}

/// The predecessor of an episode, among the episodes of its pod.
pub(super) fn predecessor<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    now: UnixMicros,
) -> Option<Predecessor<'a>> {
    match episode.kind {
        Kind::Start => sandbox_replacement(episode, pod, now).map(Predecessor::Sandbox),
        Kind::Restart => run_before(episode, pod, now).map(Predecessor::ContainerRun),
        Kind::Stop => None,
    }
}

/// The exit after which the container of a restart was started, if it still runs.
fn run_before<'a>(
    episode: &'a Episode,
    pod: &[&'a Episode],
    now: UnixMicros,
) -> Option<PreviousRun<'a>> {
    let name = &*episode.container.as_deref()?.name;
    let mut newest_first = episode.calls.iter().rev();
    let start = newest_first.find(|call| call.has_started_container(name))?;
    let attempt = start.container.as_deref()?.attempt;
    let mut exits = history::exits(pod).filter(|exit| *exit.container == *name);
    // A container that was removed may come back with the same attempt.
    if exits
        .clone()
        .any(|exit| exit.attempt >= attempt && exit.at > start.began_at())
    {
        return None;
    }
    let exit = exits.by_ref().max_by_key(|exit| (exit.attempt, exit.at));
    let Some(exit) = exit else {
        return run_without_exit(name, start, pod, now);
    };
    if exit.at > start.ended_at() {
        return None;
    }
    // A run in between would have an exit of its own, which is not known.
    let mut others = history::calls(pod).filter(|call| call.began < start.began);
    let is_newest =
        !others.any(|call| call.has_started_container(name) && call.began_at() > exit.at);
    let is_shown_as_kill = exit.stop_requested && episode.calls.iter().any(is_kill);
    (is_newest && !is_shown_as_kill).then(|| previous_run(exit, start, pod, now))
}

/// The run before this start that a call stopped or removed, and whose exit is not known.
fn run_without_exit<'a>(
    name: &'a str,
    start: &EpisodeCall,
    pod: &[&'a Episode],
    now: UnixMicros,
) -> Option<PreviousRun<'a>> {
    let earlier = history::calls(pod).filter(|call| {
        let is_of_container = call.container_name() == Some(name);
        is_of_container && call.began < start.began
    });
    let last_start = earlier.clone().filter(|call| call.has_started());
    let last_start = last_start.map(|call| call.began).max();
    let stops = earlier.filter(|call| containers::ends_container(call));
    let stops = stops.filter(|call| last_start.is_none_or(|start| call.began > start));
    let stop = stops.min_by_key(|call| call.began)?;
    Some(PreviousRun {
        container: name,
        exit: None,
        again_after: start.ended_at().since(stop.ended_at()),
        ago: now.since(stop.ended_at()),
        is_up: true,
        stopped_by: Some(stop),
        kill_reason: kill_reason(stop, pod),
        delayed_by: delayed_by(stop.ended_at(), start.began_at(), pod),
    })
}

fn previous_run<'a>(
    exit: &'a ExitRecord,
    start: &EpisodeCall,
    pod: &[&'a Episode],
    now: UnixMicros,
) -> PreviousRun<'a> {
    let stop = stopped_by(exit, pod);
    PreviousRun {
        container: &exit.container,
        stopped_by: stop,
        kill_reason: stop.and_then(|stop| kill_reason(stop, pod)),
        is_up: !history::exits(pod)
            .any(|later| later.container == exit.container && later.at > exit.at),
        exit: Some(exit),
        again_after: start.ended_at().since(exit.at),
        ago: now.since(exit.at),
        delayed_by: delayed_by(exit.at, start.began_at(), pod),
    }
}

/// The downtime of the kubelet, the runtime or criscope that took most of the time from the end of a run to the begin of the next.
pub(super) fn delayed_by<'a>(
    ended: UnixMicros,
    began: UnixMicros,
    pod: &[&'a Episode],
) -> Option<&'a NodeFact> {
    let facts = pod.iter().flat_map(|episode| &episode.node);
    let mut delays = facts.filter(|fact| {
        let is_kubelet = matches!(
            fact.kind,
            NodeFactKind::NoKubelet | NodeFactKind::KubeletSilent
        );
        let is_over = fact.to.is_some_and(|to| to <= began);
        (is_kubelet || is_down(fact))
            && is_over
            && 2 * fact.within(ended, began) >= began.since(ended)
    });
    delays
        .next()
        .filter(|_| began.since(ended) >= MIN_RESTART_DELAY)
}

fn kill_reason(stop: &EpisodeCall, pod: &[&Episode]) -> Option<KillReason> {
    is_kill(stop).then(|| kill_reason::kill_reason(pod, stop))
}

/// The call that ended this run of a container.
pub(super) fn stopped_by<'a>(exit: &ExitRecord, pod: &[&'a Episode]) -> Option<&'a EpisodeCall> {
    let mut stops = history::calls(pod).filter(|call| {
        let container = call.container.as_deref();
        exit.stop_requested
            && containers::ends_container(call)
            && call.began_at() <= exit.at
            && call.began_at() >= exit.at - exit.ran
            && container.is_some_and(|container| exit.is_of_run(container))
    });
    stops.next()
}

/// An exit after which the container was started again. The StartContainer of a run may end after its exit.
pub(super) fn run_before_restart<'a>(
    exit: &'a ExitRecord,
    pod: &[&'a Episode],
    now: UnixMicros,
) -> Option<PreviousRun<'a>> {
    let starts = history::calls(pod).filter(|call| call.has_started_container(&exit.container));
    let later = starts.filter(|call| call.began_at() > exit.at);
    let next = later.min_by_key(|call| call.began)?;
    Some(previous_run(exit, next, pod, now))
}

/// Returns whether the kubelet stopped a container. Such a stop has sentences of its own.
fn is_kill(call: &EpisodeCall) -> bool {
    call.method == Method::StopContainer && call.peer.is_kubelet()
}

/// Returns whether an episode shows that there was a sandbox.
fn has_sandbox(episode: &Episode) -> bool {
    episode.calls.iter().any(|call| match call.method {
        Method::RunPodSandbox | Method::RestorePod | Method::StartContainer => call.is_good(),
        Method::CreateContainer | Method::StopContainer | Method::StopPodSandbox => true,
        _ => false,
    })
}

/// The replacement that this start made. The attempt counts sandboxes; the kubelet makes another one when it finds the
/// last one not ready, or otherwise unusable.
fn sandbox_replacement<'a>(
    start: &Episode,
    pod: &[&'a Episode],
    now: UnixMicros,
) -> Option<SandboxReplacement<'a>> {
    let attempt = start.pod.attempt;
    if let Some(hand) = removed_by_hand(start, pod).filter(|_| attempt == 0) {
        return Some(SandboxReplacement {
            attempt,
            times: 1,
            window: Duration::ZERO,
            is_over: now.since(start.began) > MAX_GAP_BETWEEN_SANDBOXES,
            stopped_by: Some(&hand.peer),
            death: None,
            downtime: None,
            exit_before: exit_before(start, pod, None),
            has_lost_shim: false,
        });
    }
    let before = pod.iter().filter(|other| other.pod.attempt < attempt);
    let last = before.clone().map(|other| other.pod.attempt).max();
    // A try that failed left nothing that could be replaced. Before the first known episode there was a sandbox.
    let was_one = match last {
        Some(_) => before.clone().any(|other| has_sandbox(other)),
        None => attempt > 0 && start.failures == 0,
    };
    if !was_one || start.comes_back() {
        return None;
    }
    let made = pod
        .iter()
        .filter(|other| other.kind == Kind::Start && other.began <= start.began)
        .filter(|other| has_sandbox(other));
    let mut made: Vec<_> = made.copied().collect();
    made.sort_by_key(|other| (other.began, other.pod.attempt));
    made.dedup_by_key(|other| other.pod.attempt);
    // A sandbox that was lost with its runtime begins a new series.
    let last_break = made.windows(2).rposition(|pair| {
        pair[1].began.since(pair[0].began) > MAX_GAP_BETWEEN_SANDBOXES
            || downtime_before(pair[1], Some(pair[0])).is_some()
    });
    let series = made[last_break.map_or(0, |at| at + 1)..].iter();
    // The first sandbox of a series may replace another one, too.
    let replacements = series.filter(|other| other.pod.attempt > 0);
    let times = replacements.clone().count();
    let first = replacements.map(|first| first.began).next();
    let stopped_by = before
        .filter(|other| Some(other.pod.attempt) == last)
        .find_map(|other| {
            let mut calls = other.calls.iter();
            let first = calls.find(|call| history::ends_sandbox(call))?;
            Some(&*first.peer).filter(|peer| !peer.is_kubelet())
        });
    let death = last.and_then(|last| sandbox::death(pod, last));
    let exit_before = exit_before(start, pod, death);
    Some(SandboxReplacement {
        attempt,
        times: times.max(1),
        window: start.began.since(first.unwrap_or(start.began)),
        is_over: now.since(start.began) > MAX_GAP_BETWEEN_SANDBOXES,
        stopped_by,
        death,
        exit_before,
        has_lost_shim: times < 2
            && stopped_by.is_none()
            && death.is_none()
            && exit_before.is_some_and(|(exit, _)| shows_lost_shim(exit, pod)),
        downtime: made.split_last().and_then(|(newest, older)| {
            let before = older.last().copied();
            downtime_before(newest, before)
        }),
    })
}

/// Returns whether the runtime lost a container while it, criscope and the node were up.
fn shows_lost_shim(exit: &ExitRecord, pod: &[&Episode]) -> bool {
    exit.reason == ExitReason::Unknown && !exit.is_oom_uncounted && !is_exit_lost(exit, pod)
}

/// The last container that had ended by itself in the sandbox before this start.
fn exit_before<'a>(
    start: &Episode,
    pod: &[&'a Episode],
    death: Option<SandboxDeath<'_>>,
) -> Option<(&'a ExitRecord, Duration)> {
    let earlier = pod.iter().copied().filter(|other| {
        let is_other = other.number != start.number && other.pod.attempt <= start.pod.attempt;
        is_other && other.began < start.began
    });
    let earlier: Vec<_> = earlier.collect();
    let newest = earlier.iter().max_by_key(|e| (e.pod.attempt, e.began))?;
    let own: Vec<_> = earlier
        .iter()
        .copied()
        .filter(|other| other.pod.attempt == newest.pod.attempt)
        .collect();
    let mut stops = history::calls(&own).filter(|call| history::ends_sandbox(call));
    let stopped = stops.next().map_or(start.began, |call| call.began_at());
    let ended = death.map_or(stopped, |death| death.end.at);
    let exits = history::exits(&own).filter(|exit| {
        let is_own = !exit.stop_requested && !is_exit_lost(exit, pod) && exit.at <= ended;
        let is_with_death = death.is_some_and(|death| death.is_end_of(exit));
        is_own && !is_with_death && !outcome::is_init(exit, &own)
    });
    let exits = exits.filter(|exit| {
        let mut starts =
            history::calls(&own).filter(|call| call.has_started_container(&exit.container));
        !starts.any(|call| call.began_at() > exit.at)
    });
    let last = exits.max_by_key(|exit| (exit.code != 0, exit.at))?;
    Some((last, ended.since(last.at)))
}

/// Returns whether an episode may have started something that ran before. Without another attempt, it is something that was removed.
pub(super) fn may_follow_run(episode: &Episode, pod: &[&Episode]) -> bool {
    match episode.kind {
        Kind::Start => episode.attempt() > 0 || removed_by_hand(episode, pod).is_some(),
        Kind::Restart => true,
        Kind::Stop => false,
    }
}

/// The call of another program than the kubelet that ended the last sandbox before this start. The kubelet counts the attempts of
/// the sandboxes that it finds: it begins with 0 again after one that was removed.
fn removed_by_hand<'a>(start: &Episode, pod: &[&'a Episode]) -> Option<&'a EpisodeCall> {
    let earlier = history::calls(pod).filter(|call| call.began_at() < start.began);
    let ends = earlier.filter(|call| history::ends_sandbox(call) && call.is_good());
    let last = ends.max_by_key(|call| call.began)?;
    (!last.peer.is_kubelet()).then_some(last)
}

/// Returns whether the runtime did not see an exit because it, or the whole node, was down, or the node ended it.
pub(super) fn is_exit_lost(exit: &ExitRecord, pod: &[&Episode]) -> bool {
    if exit.node_restarted.is_some() {
        return true;
    }
    let mut facts = pod.iter().flat_map(|episode| &episode.node);
    exit.reason == ExitReason::Unknown && facts.any(|fact| is_exit_in_downtime(exit, fact))
}

fn is_exit_in_downtime(exit: &ExitRecord, fact: &NodeFact) -> bool {
    let from = fact.from - DOWNTIME_NOTICED_WITHIN;
    let to = fact
        .to
        .map_or(UnixMicros::MAX, |to| to + REPLACED_AFTER_DOWNTIME_WITHIN);
    let ran_before = exit.at - exit.ran <= fact.from;
    is_down(fact) && ran_before && (from..=to).contains(&exit.at)
}

fn is_down(fact: &NodeFact) -> bool {
    matches!(fact.kind, NodeFactKind::BackendDown { .. }) || fact.is_downtime()
}

/// The last downtime of the runtime, or of criscope, if it was just before this start and after the start `before`.
fn downtime_before<'a>(start: &'a Episode, before: Option<&Episode>) -> Option<&'a NodeFact> {
    let facts = start.node.iter().filter(|fact| {
        let is_after_earlier_start = before.is_none_or(|before| before.began < fact.from);
        // A restart of the node ends every sandbox, however late it is replaced. Without a journal a run from before the boot
        // shows that there was one.
        let is_shown_by_run = fact.booted() == Some(fact.from);
        let ends_sandboxes = fact.booted().is_some() && (before.is_some() || is_shown_by_run);
        let is_before_start = fact.to.is_some_and(|to| {
            to <= start.began
                && (ends_sandboxes || start.began.since(to) <= REPLACED_AFTER_DOWNTIME_WITHIN)
        });
        is_down(fact) && is_after_earlier_start && is_before_start
    });
    facts.max_by_key(|fact| (fact.booted().is_some(), fact.to))
}
