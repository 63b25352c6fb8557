//! Crash loops.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::settled::{BACK_OFF_FORGOTTEN_AFTER, has_settled};
use super::{before, history};
use crate::episode_store::{Episode, ExitRecord};
use crate::node::NodeFact;
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::ExitReason;
use criscope_cri::units::times::UnixMicros;

/// A crash loop of a container.
#[derive(Clone, Debug)]
pub(crate) struct CrashLoop<'a> {
    pub(super) container: &'a str,
    /// The last exit of the container.
    pub(super) last: &'a ExitRecord,
    /// The newest failed end of another kind than the last one, and the number of ends of that kind.
    pub(super) other_exit: Option<SameExits<'a>>,
    /// Number of observed ends.
    pub(super) exits: usize,
    /// Number of observed ends of the same kind as the last one.
    pub(super) alike: usize,
    /// Successful starts that were seen.
    pub(super) starts: usize,
    /// Since the last end.
    pub(super) ago: Duration,
    /// From the first start to the last event.
    pub(super) window: Duration,
    /// True if the pod was stopped since, or the container runs for long now.
    pub(super) is_over: bool,
    /// How long the container has run now, if it runs and the pod was not stopped.
    pub(super) up_for: Option<Duration>,
    /// The same, if that is long.
    pub(super) settled_for: Option<Duration>,
    /// The downtime that took most of the time until the run that goes on.
    pub(super) delayed_by: Option<&'a NodeFact>,
    /// True if the container runs, or ran when the pod was stopped.
    pub(super) is_up: bool,
}

impl CrashLoop<'_> {
    /// Returns whether the container ran again when the pod was stopped, or runs for long now.
    pub(super) fn has_recovered(&self) -> bool {
        self.is_over && self.is_up
    }

    /// The last end of the container.
    pub(super) fn at(&self) -> UnixMicros {
        self.last.at
    }
}

/// An exit and the id of its sandbox; empty if unknown.
type SandboxExit<'a> = (&'a ExitRecord, &'a str);

/// An exit, and the number of exits of its kind.
type SameExits<'a> = (&'a ExitRecord, usize);

/// Returns whether two runs ended in the same way.
fn is_same_kind(one: &ExitRecord, other: &ExitRecord) -> bool {
    one.code == other.code && one.is_out_of_memory() == other.is_out_of_memory()
}

/// The runs of a container in a pod.
#[derive(Debug, Default)]
struct ContainerRuns<'a> {
    /// The last end of any kind.
    last_end: UnixMicros,
    /// Exits without a stop request, in order.
    exits: Vec<SandboxExit<'a>>,
    /// Successful starts, begin and end, in order. A start may end after the exit of its own run.
    starts: Vec<(UnixMicros, UnixMicros)>,
}

/// Stop requests: by container name, and by sandbox id.
#[derive(Debug, Default)]
struct StopRequests<'a> {
    containers: BTreeSet<(&'a str, UnixMicros)>,
    sandboxes: BTreeSet<(&'a str, UnixMicros)>,
}

impl<'a> StopRequests<'a> {
    fn new(pod: &[&'a Episode]) -> Self {
        let mut requests = Self::default();
        let calls = pod
            .iter()
            .flat_map(|e| e.calls.iter().map(move |c| (*e, c)));
        for (episode, call) in calls {
            let at = call.began_at();
            match (call.method, call.container_name(), &episode.sandbox_id) {
                (Method::StopContainer, Some(name), _) => requests.containers.insert((name, at)),
                (Method::StopPodSandbox, _, Some(id)) => requests.sandboxes.insert((id, at)),
                _ => false,
            };
        }
        requests
    }

    /// Returns whether a stop was requested while the container ran. Then its exit code does not matter.
    fn include(&self, &(exit, sandbox): &SandboxExit<'_>) -> bool {
        let (began, ended) = (exit.at - exit.ran, exit.at);
        let name = &*exit.container;
        let mut of_container = self.containers.range((name, began)..=(name, ended));
        let mut of_sandbox = self.sandboxes.range((sandbox, began)..=(sandbox, ended));
        of_container.next().is_some() || of_sandbox.next().is_some()
    }
}

/// The runs of the containers that exited, by name.
fn runs<'a>(episodes: &[&'a Episode]) -> BTreeMap<&'a str, ContainerRuns<'a>> {
    let mut runs = BTreeMap::<&str, ContainerRuns<'_>>::new();
    for episode in episodes {
        let sandbox = episode.sandbox_id.as_deref().unwrap_or_default();
        for exit in &episode.exits {
            let run = runs.entry(&exit.container).or_default();
            run.exits.push((exit, sandbox));
            run.last_end = run.last_end.max(exit.at);
        }
    }
    for call in history::calls(episodes).filter(|call| call.has_started()) {
        if let Some(run) = call.container_name().and_then(|name| runs.get_mut(name)) {
            run.starts.push((call.began_at(), call.ended_at()));
        }
    }
    let stop_requests = StopRequests::new(episodes);
    for run in runs.values_mut() {
        run.exits.retain(|end| {
            let is_fault = has_run(end.0, episodes) && !end.0.stop_requested;
            is_fault && !stop_requests.include(end) && !before::is_exit_lost(end.0, episodes)
        });
        run.exits.sort_by_key(|(exit, _)| exit.at);
        run.starts.sort_unstable();
        run.forget_before_long_run();
    }
    runs
}

impl<'a> ContainerRuns<'a> {
    /// Drops the runs before the last long one, with which a series begins.
    fn forget_before_long_run(&mut self) {
        let Some(first) = self
            .exits
            .iter()
            .rposition(|(exit, _)| exit.ran >= BACK_OFF_FORGOTTEN_AFTER)
        else {
            return;
        };
        self.exits.drain(..first);
        if let Some((exit, _)) = self.exits.first() {
            let began = exit.at - exit.ran;
            self.starts.retain(|(_, to)| *to >= began);
        }
    }

    /// Returns whether the last exit is part of a crash loop. `is_down`: whether the container has not started again.
    fn keeps_ending(&self, is_down: bool) -> bool {
        let Some(&(last, sandbox)) = self.exits.last() else {
            return false;
        };
        let exits = self.exits.iter().map(|(exit, _)| exit);
        // A failed run and a run whose end was not observed, for example because its shim was killed, are no series.
        let unseen = exits
            .clone()
            .filter(|exit| exit.reason == ExitReason::Unknown);
        let unseen = unseen.count();
        let good = exits.filter(|exit| exit.code == 0).count();
        let failed = unseen.max(self.exits.len() - good - unseen);
        // An init container runs once in every sandbox.
        let here = self.exits.iter().filter(|(_, other)| *other == sandbox);
        let good_here = here.clone().filter(|(exit, _)| exit.code == 0).count();
        // A job that failed and then succeeded is done.
        let is_done = is_down && last.code == 0 && good_here == 1;
        (failed >= 2 || here.count() >= 3) && !is_done
    }

    /// The newest failed end of another kind than the last one, and how often it ended so.
    fn other_exit(&self, last: &ExitRecord) -> Option<SameExits<'a>> {
        let failed = self.exits.iter().map(|(exit, _)| *exit);
        let mut failed = failed.filter(|exit| exit.code != 0 && exit.reason != ExitReason::Unknown);
        let other = failed.clone().rfind(|exit| !is_same_kind(exit, last))?;
        let same = failed.by_ref().filter(|exit| is_same_kind(exit, other));
        Some((other, same.count()))
    }

    /// How long the run after the last exit has lasted.
    fn up_for(&self, now: UnixMicros) -> Option<Duration> {
        let (from, to) = self.starts.last()?;
        (*from > self.last_end).then(|| now.since(*to))
    }

    /// Returns whether a run of this length ends the loop.
    fn is_settled_by(&self, run: Duration) -> bool {
        let longest = self.exits.iter().map(|(exit, _)| exit.ran).max();
        longest.is_some_and(|longest| has_settled(run, longest))
    }

    /// The crash loop that these runs are, if any. `stopped`: when the newest sandbox of the pod was stopped.
    fn crash_loop(
        &self,
        container: &'a str,
        stopped: Option<UnixMicros>,
        pod: &[&'a Episode],
        now: UnixMicros,
    ) -> Option<CrashLoop<'a>> {
        let (last, _) = *self.exits.last()?;
        let is_down = self.starts.last().is_none_or(|(from, _)| *from <= last.at);
        let is_recent = now.since(last.at) < BACK_OFF_FORGOTTEN_AFTER;
        if !self.keeps_ending(is_down) || !(is_down || is_recent) {
            return None;
        }
        let began = self.starts.first().map_or(last.at, |(_, to)| *to);
        let ended = self.starts.last().map_or(began, |(_, to)| *to);
        let exits = self.exits.iter();
        let is_stopped = stopped.is_some_and(|stopped| {
            let is_started = self.starts.last().is_some_and(|(from, _)| *from > stopped);
            stopped >= last.at && !is_started
        });
        let up_for = self.up_for(now).filter(|_| !is_down && !is_stopped);
        let settled_for = up_for.filter(|run| self.is_settled_by(*run));
        Some(CrashLoop {
            container,
            last,
            exits: exits.len(),
            alike: exits.filter(|(exit, _)| is_same_kind(exit, last)).count(),
            other_exit: self.other_exit(last),
            starts: self.starts.len(),
            ago: now.since(last.at),
            window: ended.max(last.at).since(began),
            is_over: is_stopped || settled_for.is_some(),
            up_for,
            delayed_by: up_for.and_then(|_| {
                let (from, _) = self.starts.last()?;
                before::delayed_by(last.at, *from, pod)
            }),
            settled_for,
            is_up: !is_down,
        })
    }
}

/// The crash loops of a pod, by container name.
pub(super) fn loops<'a>(
    episodes: &[&'a Episode],
    now: UnixMicros,
) -> BTreeMap<&'a str, CrashLoop<'a>> {
    let newest = episodes.iter().map(|episode| episode.pod.attempt).max();
    let own = episodes.iter().filter(|e| Some(e.pod.attempt) == newest);
    let stops = own
        .flat_map(|episode| &episode.calls)
        .filter(|call| history::ends_sandbox(call));
    let stopped = stops.map(|call| call.began_at()).max();
    let runs = runs(episodes).into_iter();
    runs.filter_map(|(name, run)| Some((name, run.crash_loop(name, stopped, episodes, now)?)))
        .collect()
}

/// Returns whether the container has run. A runtime also reports an exit, with a code of its own, for a container that could not
/// be started.
fn has_run(exit: &ExitRecord, pod: &[&Episode]) -> bool {
    !exit.ran.is_zero() || history::calls(pod).any(|call| exit.is_of_start(call))
}

/// The last exit in an episode that is a fault: the container ran, and was not asked to end.
pub(super) fn faulty_exit<'a>(episode: &'a Episode, pod: &[&'a Episode]) -> Option<&'a ExitRecord> {
    let mut failed = episode.exits.iter().rev().filter(|exit| exit.code != 0);
    // A stop kills its containers.
    let failed = failed.next().filter(|_| episode.kind != Kind::Stop)?;
    let sandbox = episode.sandbox_id.as_deref().unwrap_or_default();
    let is_requested = failed.stop_requested || StopRequests::new(pod).include(&(failed, sandbox));
    let is_own = has_run(failed, pod) && !is_requested;
    is_own.then_some(failed)
}
