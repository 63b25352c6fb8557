//! Crash loops.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{before, history};
use crate::episode_store::{Episode, ExitRecord};
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::ExitReason;
use criscope_cri::units::times::UnixMicros;

/// How long after its last exit a running container counts as crash looping: twice the kubelet's longest back-off, and the run
/// after which the kubelet begins its back-off anew.
const CRASH_LOOP_LASTS: Duration = Duration::from_secs(10 * 60);

/// A container that ran for this long, and runs again has done its work.
const DONE_AFTER: Duration = Duration::from_secs(60);

/// A crash loop of a container.
#[derive(Clone, Debug)]
pub(crate) struct CrashLoop<'a> {
    pub(super) container: &'a str,
    /// The last exit of the container.
    pub(super) last: &'a ExitRecord,
    /// Successful starts that were seen.
    pub(super) starts: usize,
    /// From the first start to the last event.
    pub(super) window: Duration,
    /// True if the pod was stopped since.
    pub(super) is_over: bool,
}

impl CrashLoop<'_> {
    /// The last end of the container.
    pub(super) fn at(&self) -> UnixMicros {
        self.last.at
    }
}

/// An exit and the id of its sandbox; empty if unknown.
type SandboxExit<'a> = (&'a ExitRecord, &'a str);

/// The runs of a container in a pod.
#[derive(Debug, Default)]
struct ContainerRuns<'a> {
    /// Exits without a stop request, in order.
    exits: Vec<SandboxExit<'a>>,
    /// Successful starts, begin and end, in order. A start may end after the exit of its own run.
    starts: Vec<(UnixMicros, UnixMicros)>,
    /// True if the sandbox of the last exit was stopped after it.
    is_sandbox_stopped: bool,
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

    /// Returns whether the sandbox was stopped after this exit.
    fn follow(&self, &(exit, sandbox): &SandboxExit<'_>) -> bool {
        let later = (sandbox, exit.at)..=(sandbox, UnixMicros::MAX);
        self.sandboxes.range(later).next().is_some()
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
        let last = run.exits.last();
        run.is_sandbox_stopped = last.is_some_and(|end| stop_requests.follow(end));
    }
    runs
}

impl<'a> ContainerRuns<'a> {
    /// Drops the runs before the last long one, with which a series begins.
    fn forget_before_long_run(&mut self) {
        let Some(first) = self
            .exits
            .iter()
            .rposition(|(exit, _)| exit.ran >= CRASH_LOOP_LASTS)
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

    /// The crash loop that these runs are, if any.
    fn crash_loop(&self, container: &'a str, now: UnixMicros) -> Option<CrashLoop<'a>> {
        let (last, _) = *self.exits.last()?;
        let is_down = self.starts.last().is_none_or(|(from, _)| *from <= last.at);
        let is_recent = now.since(last.at) < CRASH_LOOP_LASTS;
        if !self.keeps_ending(is_down) || !(is_down || is_recent) {
            return None;
        }
        let began = self.starts.first().map_or(last.at, |(_, to)| *to);
        let ended = self.starts.last().map_or(began, |(_, to)| *to);
        Some(CrashLoop {
            container,
            last,
            starts: self.starts.len(),
            window: ended.max(last.at).since(began),
            is_over: is_down && self.is_sandbox_stopped,
        })
    }
}

/// The crash loops of a pod, by container name.
pub(super) fn loops<'a>(
    episodes: &[&'a Episode],
    now: UnixMicros,
) -> BTreeMap<&'a str, CrashLoop<'a>> {
    let runs = runs(episodes).into_iter();
    runs.filter_map(|(name, run)| Some((name, run.crash_loop(name, now)?)))
        .collect()
}

/// Returns whether the container has run. A runtime also reports an exit, with a code of its own, for a container that could not
/// be started.
fn has_run(exit: &ExitRecord, pod: &[&Episode]) -> bool {
    !exit.ran.is_zero() || history::calls(pod).any(|call| exit.is_of_start(call))
}

/// The last exit in an episode that is a fault: the container ran, was not asked to end, and had run only briefly or is still
/// down.
pub(super) fn faulty_exit<'a>(episode: &'a Episode, pod: &[&'a Episode]) -> Option<&'a ExitRecord> {
    let mut failed = episode.exits.iter().rev().filter(|exit| exit.code != 0);
    // A stop kills its containers.
    let failed = failed.next().filter(|_| episode.kind != Kind::Stop)?;
    let sandbox = episode.sandbox_id.as_deref().unwrap_or_default();
    let is_requested = failed.stop_requested || StopRequests::new(pod).include(&(failed, sandbox));
    let is_own = has_run(failed, pod) && !is_requested;
    // A container that ran for long and runs again has done its work; running out of memory counts at any age.
    let soon = failed.ran < DONE_AFTER || failed.reason == ExitReason::OomKilled;
    let again = history::calls(pod)
        .any(|call| call.has_started_container(&failed.container) && call.began_at() > failed.at);
    (is_own && (soon || !again)).then_some(failed)
}
