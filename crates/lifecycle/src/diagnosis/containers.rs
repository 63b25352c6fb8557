//! The containers of a pod's newest sandbox: which of them have ended, and which of these a call stopped.

use std::collections::BTreeMap;
use std::time::Duration;

use super::kill_reason::{KillReason, known_kill_reason};
use super::stopped::{HurriedStop, hurried_stop};
use super::{ephemeral, history};
use crate::episode_call::EpisodeCall;
use crate::episode_store::{Episode, ExitRecord};
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::ContainerIdentity;
use criscope_cri::units::times::UnixMicros;

/// The last run of a container.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastRun<'a> {
    container: &'a ContainerIdentity,
    /// The begin of its StartContainer; zero if that was not seen.
    began: UnixMicros,
    end: Option<RunEnd<'a>>,
}

/// The end of a run.
#[derive(Clone, Copy, Debug)]
pub(super) enum RunEnd<'a> {
    /// The container ended by itself.
    Exited(&'a ExitRecord),
    /// This call stopped the container, removed it, or stopped its sandbox.
    Stopped {
        by: &'a EpisodeCall,
        /// `None` if the runtime did not report it.
        exit: Option<&'a ExitRecord>,
    },
}

impl RunEnd<'_> {
    fn at(self) -> UnixMicros {
        match self {
            Self::Exited(exit)
            | Self::Stopped {
                exit: Some(exit), ..
            } => exit.at,
            Self::Stopped { by, exit: None } => by.ended_at(),
        }
    }
}

/// Containers that were stopped and not started again, in a sandbox that was not stopped.
#[derive(Debug)]
pub(crate) struct StoppedContainers<'a> {
    pub(super) names: Vec<&'a str>,
    /// The callers, as sentences name them.
    pub(super) by: Vec<&'a str>,
    /// True if the kubelet stopped the last one.
    pub(super) by_kubelet: bool,
    /// Since the last of them ended.
    pub(super) ago: Duration,
    /// True if they were removed without a StopContainer.
    pub(super) removed: bool,
    /// Why the kubelet stopped the last one, if the calls show it.
    pub(super) reason: Option<KillReason>,
    /// The exit of the last one.
    pub(super) exit: Option<&'a ExitRecord>,
    /// The call that shortened the grace period of the last one.
    pub(super) hurried: Option<HurriedStop<'a>>,
}

/// Returns whether a call stops or removes a container. The kubelet removes only containers that have ended.
pub(super) fn ends_container(call: &EpisodeCall) -> bool {
    match call.method {
        Method::StopContainer => call.is_good(),
        Method::RemoveContainer => call.is_good() && !call.peer.is_kubelet(),
        _ => false,
    }
}

/// The last runs of the containers in the newest sandbox, without ephemeral containers.
pub(super) fn last_runs<'a>(pod: &[&'a Episode]) -> Vec<LastRun<'a>> {
    let newest = pod.iter().map(|episode| episode.pod.attempt).max();
    let own: Vec<_> = pod
        .iter()
        .copied()
        .filter(|episode| Some(episode.pod.attempt) == newest)
        .collect();
    // An episode without a container has only pulls.
    let manifest = own.iter().filter(|e| {
        let is_of_pod = e.kind == Kind::Restart && e.container.is_none();
        is_of_pod || !ephemeral::is_ephemeral(e, pod)
    });
    let mut runs = BTreeMap::<&str, LastRun<'_>>::new();
    for call in manifest.flat_map(|episode| &episode.calls) {
        let Some(container) = call.container.as_deref() else {
            continue;
        };
        let run = LastRun {
            container,
            began: if call.has_started() {
                call.began_at()
            } else {
                UnixMicros::EPOCH
            },
            end: None,
        };
        if !call.has_started() && !ends_container(call) {
            continue;
        }
        let known = runs.entry(&container.name).or_insert(run);
        if (known.container.attempt, known.began) < (container.attempt, run.began) {
            *known = run;
        }
    }
    let runs = runs.into_values().map(|run| LastRun {
        end: end(&run, &own),
        ..run
    });
    runs.collect()
}

/// The end of a run. A removed container may have a successor of the same attempt, so what was before its start does not count.
fn end<'a>(run: &LastRun<'a>, own: &[&'a Episode]) -> Option<RunEnd<'a>> {
    let mut exits = history::exits(own);
    let exit = exits.find(|exit| exit.is_of_run(run.container) && exit.at >= run.began);
    let stops = history::calls(own).filter(|call| {
        let is_own = call.container.as_deref() == Some(run.container) && ends_container(call);
        let is_of_sandbox = exit.is_some() && history::ends_sandbox(call);
        (is_own || is_of_sandbox) && call.began_at() >= run.began
    });
    let stop = stops.min_by_key(|call| call.began);
    match (exit, stop) {
        (Some(exit), Some(by)) if exit.stop_requested && by.began_at() <= exit.at => {
            let exit = Some(exit);
            Some(RunEnd::Stopped { by, exit })
        }
        (Some(exit), _) => Some(RunEnd::Exited(exit)),
        (None, by) => by.map(|by| RunEnd::Stopped { by, exit: None }),
    }
}

/// Returns whether a container of the pod runs, going by its calls and exits.
pub(super) fn some_run(pod: &[&Episode]) -> bool {
    last_runs(pod).iter().any(|run| run.end.is_none())
}

/// Returns whether a container had failed or was stopped before this time and was not started again since. A pull is then for it.
pub(super) fn is_one_down(pod: &[&Episode], time: UnixMicros) -> bool {
    last_runs(pod).iter().any(|run| match run.end {
        Some(RunEnd::Exited(exit)) => exit.code != 0 && exit.at <= time,
        Some(RunEnd::Stopped { by, .. }) => by.began_at() <= time,
        None => false,
    })
}

/// Returns whether all containers that the kubelet has written down were started, and run at this time. A pull is then for another one.
pub(super) fn are_all_up(pod: &[&Episode], time: UnixMicros) -> bool {
    let newest = pod.iter().map(|episode| episode.pod.attempt).max();
    let mut starts = pod.iter().filter(|episode| episode.kind == Kind::Start);
    let start = starts.find(|start| Some(start.pod.attempt) == newest);
    let is_whole = start.is_some_and(|start| start.knows_containers() && start.has_started_all());
    is_whole && {
        let mut calls = history::calls(pod).filter(|call| call.began_at() <= time);
        let mut exits = history::exits(pod).filter(|exit| exit.at <= time);
        !calls.any(|call| call.method.takes_away())
            && exits.all(|exit| exit.code == 0 || is_started_after(exit, pod, time))
    }
}

/// Returns whether the container of an exit was started again before this time.
fn is_started_after(exit: &ExitRecord, pod: &[&Episode], time: UnixMicros) -> bool {
    let mut starts = history::calls(pod).filter(|call| call.has_started_container(&exit.container));
    starts.any(|start| start.began_at() > exit.at && start.began_at() <= time)
}

/// The only container that the kubelet stopped and has not started again, with the stop.
pub(super) fn stopped_by_kubelet<'a>(
    pod: &[&'a Episode],
) -> Option<(&'a ContainerIdentity, &'a EpisodeCall)> {
    let runs = last_runs(pod).into_iter();
    let mut stopped = runs.filter_map(|run| match run.end {
        Some(RunEnd::Stopped { by, .. }) if by.peer.is_kubelet() => Some((run.container, by)),
        _ => None,
    });
    stopped.next().filter(|_| stopped.next().is_none())
}

/// Returns whether all containers of the pod have ended with exit code 0 and without a request.
pub(super) fn are_done(pod: &[&Episode]) -> bool {
    let runs = last_runs(pod);
    !runs.is_empty()
        && runs
            .iter()
            .all(|run| matches!(run.end, Some(RunEnd::Exited(exit)) if exit.code == 0))
}

/// The containers that were stopped and not started again, if the sandbox was not stopped, and no container failed later.
pub(super) fn stopped<'a>(pod: &[&'a Episode], now: UnixMicros) -> Option<StoppedContainers<'a>> {
    let mut runs = last_runs(pod);
    runs.sort_by_key(|run| run.end.map(RunEnd::at));
    let ends = runs.iter().filter_map(|run| run.end);
    let mut ends = ends.filter(|end| !matches!(end, RunEnd::Exited(exit) if exit.code == 0));
    let last = ends.next_back()?;
    let RunEnd::Stopped { by, exit } = last else {
        return None;
    };
    let newest = pod.iter().map(|episode| episode.pod.attempt).max();
    let is_sandbox_stopped = pod.iter().any(|episode| {
        let mut calls = episode.calls.iter();
        Some(episode.pod.attempt) == newest && calls.any(history::ends_sandbox)
    });
    if is_sandbox_stopped {
        return None;
    }
    let (mut names, mut peers) = (Vec::new(), Vec::new());
    for run in &runs {
        if let Some(RunEnd::Stopped { by, .. }) = run.end {
            names.push(&*run.container.name);
            if !peers.contains(&by.peer.in_words()) {
                peers.push(by.peer.in_words());
            }
        }
    }
    Some(StoppedContainers {
        names,
        by: peers,
        by_kubelet: by.peer.is_kubelet(),
        ago: now.since(last.at()),
        removed: by.method == Method::RemoveContainer,
        reason: known_kill_reason(pod, by),
        exit,
        hurried: hurried_stop(pod, by),
    })
}
