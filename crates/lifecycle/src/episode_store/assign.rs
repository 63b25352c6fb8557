//! Assigns calls to episodes. Only reads the store, so that it can be used for calls in flight too.

use std::time::Duration;

use super::{Episode, EpisodeStore};
use crate::episode_call::EpisodeCall;
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::{ContainerIdentity, PodIdentity};

/// A stop or removal shorter than this opens no episode: the kubelet's garbage collector repeats the stop of stopped sandboxes, and
/// removes them a minute later.
const TRIVIAL_STOP: Duration = Duration::from_secs(1);

/// The episode of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assignment {
    /// The episode with this number. If it is closed, the call continues it.
    In(u64),
    /// A new episode of this kind.
    New(Kind),
    /// No episode.
    Nowhere,
}

impl Assignment {
    fn in_or_new(found: Option<&Episode>, kind: Kind) -> Self {
        found.map_or(Self::New(kind), |episode| Self::In(episode.number))
    }
}

impl Episode {
    /// Returns whether it may go on and its pull of this image had failed.
    fn lacks_image(&self, image: &str) -> bool {
        self.may_continue() && self.is_unresolved(image)
    }
}

impl EpisodeStore {
    /// The episode that this call belongs to.
    pub(super) fn assign(&self, call: &EpisodeCall) -> Assignment {
        let Some(pod) = call.pod.as_deref() else {
            return Assignment::Nowhere;
        };
        match call.method {
            Method::RunPodSandbox | Method::RestorePod => {
                let start = self.episodes_of(pod).find(|t| t.kind == Kind::Start);
                Assignment::in_or_new(start.filter(|t| is_tried_again(t, pod)), Kind::Start)
            }
            Method::PullImage => self.assign_pull(pod, call),
            Method::CreateContainer | Method::StartContainer => self.assign_container(pod, call),
            Method::StopContainer
            | Method::StopPodSandbox
            | Method::RemoveContainer
            | Method::RemovePodSandbox => self.assign_end(pod, call),
            Method::ExecSync => self.assign_hook(pod, call),
            _ => Assignment::Nowhere,
        }
    }

    /// Returns whether a start or restart of this sandbox is known, or its containers ran before its first call.
    fn was_up(&self, pod: &PodIdentity, call: &EpisodeCall) -> bool {
        let mut episodes = self.episodes_of(pod);
        call.was_listed_up
            || episodes
                .any(|t| t.kind != Kind::Stop && t.is_of_sandbox(pod, call.sandbox_id.as_deref()))
    }

    /// A pull names no container. It belongs to the pod's open start or restart, or to the one that lacks this image.
    fn assign_pull(&self, pod: &PodIdentity, call: &EpisodeCall) -> Assignment {
        let own: Vec<_> = self
            .episodes_of(pod)
            .filter(|episode| episode.pod.attempt == pod.attempt)
            .collect();
        let starts = own.iter().filter(|episode| episode.kind == Kind::Start);
        let restarts = own.iter().filter(|episode| episode.kind == Kind::Restart);
        let image = call.target();
        let found = starts
            .clone()
            .find(|start| start.is_open() && !self.is_pull_for_added(start, pod, call))
            .or_else(|| starts.clone().find(|start| start.lacks_image(image)))
            .or_else(|| {
                let open = restarts.clone().find(|restart| restart.is_open());
                // A container that was started needs no image: the pull is for another one.
                open.filter(|restart| restart.started == 0)
            })
            .or_else(|| restarts.clone().find(|restart| restart.lacks_image(image)));
        match found
            .map(|t| t.number)
            .or_else(|| self.start_before_init(pod, call))
        {
            Some(number) => Assignment::In(number),
            None if self.was_up(pod, call) => Assignment::New(Kind::Restart),
            None => Assignment::New(Kind::Start),
        }
    }

    fn assign_container(&self, pod: &PodIdentity, call: &EpisodeCall) -> Assignment {
        let sandbox = call.sandbox_id.as_deref();
        let ups = self.episodes_of(pod).filter(|t| t.kind != Kind::Stop);
        let mut candidates =
            ups.filter(|t| (t.is_open() || t.may_continue()) && t.is_of_sandbox(pod, sandbox));
        // A container is started in the episode that created it.
        let id = call.container_id.as_deref();
        if let Some(episode) = candidates
            .clone()
            .find(|t| id.is_some_and(|id| t.call_of_container(id).is_some()))
        {
            return Assignment::In(episode.number);
        }
        let unnamed = ContainerIdentity::default();
        let container = call.container.as_deref().unwrap_or(&unnamed);
        // The attempt does not matter: it counts runs in earlier sandboxes and starts that failed, too.
        let start = candidates.clone().find(|t| t.kind == Kind::Start);
        let start = start
            .filter(|start| !start.has_run(&container.name) && !start.is_added(&container.name));
        let start = start.map(|t| t.number);
        if let Some(number) = start.or_else(|| self.start_before_init(pod, call)) {
            return Assignment::In(number);
        }
        let restart = candidates.find(|t| {
            let is_for = continues(t, container) || self.pulls_for(t, pod, container);
            t.kind == Kind::Restart && is_for
        });
        match restart {
            Some(episode) => Assignment::In(episode.number),
            None if container.attempt > 0 || self.was_up(pod, call) => {
                Assignment::New(Kind::Restart)
            }
            None => Assignment::New(Kind::Start),
        }
    }

    /// Returns whether a caller other than the kubelet removes a container, or a sandbox, that may run. The kubelet removes only what
    /// has ended; a runtime ends what is removed.
    fn removes_running(&self, call: &EpisodeCall) -> bool {
        let has_ended = match (call.method, call.container.as_deref(), call.pod.as_deref()) {
            (Method::RemovePodSandbox, ..) => false,
            (Method::RemoveContainer, Some(container), Some(pod)) => {
                let mut exits = self.episodes_of(pod).flat_map(|episode| &episode.exits);
                exits.any(|exit| exit.is_of_run(container) && exit.at < call.began_at())
            }
            _ => return false,
        };
        !call.peer.is_kubelet() && !has_ended
    }

    /// Returns whether a stop that has only ended a container is older than a start in the same sandbox.
    fn is_outlived(&self, stop: &Episode, pod: &PodIdentity) -> bool {
        let mut others = self.episodes_of(pod);
        stop.is_tentative()
            && others.any(|other| {
                other.kind != Kind::Stop
                    && other.pod.attempt == stop.pod.attempt
                    && other.began > stop.began
            })
    }

    fn assign_end(&self, pod: &PodIdentity, call: &EpisodeCall) -> Assignment {
        let sandbox = call.sandbox_id.as_deref();
        let mut stops = self
            .episodes_of(pod)
            .filter(|t| t.kind == Kind::Stop && t.is_of_sandbox(pod, sandbox));
        let newest = stops.next();
        if let Some(stop) = newest.filter(|t| t.is_open() && !self.is_outlived(t, pod)) {
            // Exited containers are removed while others run.
            return match call.method {
                Method::RemoveContainer
                    if stop.is_tentative()
                        && !self.removes_running(call)
                        && !resets(stop, call) =>
                {
                    Assignment::Nowhere
                }
                _ => Assignment::In(stop.number),
            };
        }
        let stopped = self.is_stopped(pod, call);
        let trivial = call.took() < TRIVIAL_STOP && !call.is_bad();
        match call.method {
            _ if !stopped && self.removes_running(call) => Assignment::New(Kind::Stop),
            Method::RemoveContainer if !stopped || trivial => Assignment::Nowhere,
            Method::RemovePodSandbox if trivial => Assignment::Nowhere,
            _ if stopped && trivial => Assignment::Nowhere,
            _ => Assignment::New(Kind::Stop),
        }
    }
}

/// Returns whether a new sandbox of this pod is another try of that start. A sandbox that a failed try left behind may have
/// counted, so the attempt may be higher.
fn is_tried_again(start: &Episode, pod: &PodIdentity) -> bool {
    let same = start.pod.attempt == pod.attempt;
    (start.is_open() && same)
        || (start.lacks_sandbox() && (start.is_open() || start.may_continue()))
}

/// Returns whether the kubelet removes a container that this stop has just ended, before it creates another one: it restarts all
/// containers of the pod by a restart rule.
fn resets(stop: &Episode, call: &EpisodeCall) -> bool {
    let mut calls = stop.calls.iter();
    call.peer.is_kubelet()
        && calls.any(|stop| {
            stop.method == Method::StopContainer
                && stop.peer.is_kubelet()
                && stop.container_id.is_some()
                && stop.container_id == call.container_id
        })
}

/// Returns whether a start of this container belongs to that restart.
fn continues(restart: &Episode, container: &ContainerIdentity) -> bool {
    match &restart.container {
        // So far the restart has only a pull.
        None => restart.is_resolved() && restart.is_open(),
        Some(ours) if ours.name != container.name => false,
        Some(ours) => ours.attempt == container.attempt || restart.is_unresolved(&container.name),
    }
}
