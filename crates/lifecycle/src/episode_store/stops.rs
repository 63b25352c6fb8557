//! Requests to stop or remove containers and sandboxes: the exits that they caused are no faults.

use std::collections::VecDeque;
use std::sync::Arc;

use super::EpisodeStore;
use super::exits::ExitRecord;
use super::sandbox::SandboxEnd;
use crate::episode_call::EpisodeCall;
use criscope_cri::Method;
use criscope_cri::subject::{ContainerIdentity, PodIdentity};
use criscope_cri::units::times::UnixMicros;

/// Requests that are remembered. The kubelet reads the exit a second or two after the request was answered.
const MAX_STOP_REQUESTS: usize = 1024;

/// A request to stop or remove a container, or the sandbox with all its containers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StopRequest {
    pod: Arc<PodIdentity>,
    container: Option<Arc<ContainerIdentity>>,
    /// The time at which it was received.
    at: UnixMicros,
}

impl StopRequest {
    /// Returns whether the request was received during this run of a container of that pod.
    fn has_ended(&self, pod: &PodIdentity, exit: &ExitRecord) -> bool {
        let run = (exit.at - exit.ran)..=exit.at;
        let is_of_run = self.container.as_deref().map_or_else(
            || self.pod.attempt == pod.attempt,
            |container| exit.is_of_run(container),
        );
        is_of_run && run.contains(&self.at) && is_same(&self.pod, pod)
    }
}

impl StopRequest {
    /// Returns whether the request was received between the start and the end of that sandbox. A static pod that comes back has the
    /// uid and the attempt of its life before.
    fn has_ended_sandbox(&self, pod: &PodIdentity, began: UnixMicros, end: &SandboxEnd) -> bool {
        let is_of_sandbox = self.container.is_none() && self.pod.attempt == pod.attempt;
        is_of_sandbox && (began..=end.at).contains(&self.at) && is_same(&self.pod, pod)
    }
}

fn is_same(one: &PodIdentity, other: &PodIdentity) -> bool {
    one.uid == other.uid && one.name == other.name && one.namespace == other.namespace
}

/// The newest requests.
#[derive(Clone, Debug, Default)]
pub(super) struct StopRequestLog(VecDeque<StopRequest>);

impl StopRequestLog {
    fn add(&mut self, stop_request: StopRequest) {
        if self.0.contains(&stop_request) {
            return;
        }
        if self.0.len() >= MAX_STOP_REQUESTS {
            self.0.pop_front();
        }
        self.0.push_back(stop_request);
    }

    /// Returns whether a request ended this sandbox.
    pub(super) fn have_ended_sandbox(
        &self,
        pod: &PodIdentity,
        began: UnixMicros,
        end: &SandboxEnd,
    ) -> bool {
        let mut newest = self.0.iter().rev();
        newest.any(|stop_request| stop_request.has_ended_sandbox(pod, began, end))
    }

    /// Returns whether a request ended this run.
    pub(super) fn have_ended(&self, pod: &PodIdentity, exit: &ExitRecord) -> bool {
        let mut newest = self.0.iter().rev();
        newest.any(|stop_request| stop_request.has_ended(pod, exit))
    }
}

impl EpisodeStore {
    /// Remembers the requests in flight: an exit may be known before the stop that caused it is answered.
    pub(crate) fn note_stops_in_flight(&mut self, in_flight: Vec<EpisodeCall>) {
        for mut call in in_flight
            .into_iter()
            .filter(|call| call.method.takes_away())
        {
            self.identify(&mut call);
            if let Some(pod) = call.pod.clone() {
                self.note_stop_request(&pod, &call);
            }
        }
    }

    /// Remembers a request to stop or remove, and marks an exit that it caused, in case the kubelet read the exit before the request was
    /// answered.
    pub(super) fn note_stop_request(&mut self, pod: &Arc<PodIdentity>, call: &EpisodeCall) {
        // A removal by container id alone would otherwise count for the whole sandbox.
        let is_of_container =
            matches!(call.method, Method::StopContainer | Method::RemoveContainer);
        if !call.method.takes_away() || is_of_container != call.container.is_some() {
            return;
        }
        let stop_request = StopRequest {
            pod: Arc::clone(pod),
            container: call.container.clone(),
            at: call.began_at(),
        };
        for number in self.pods.get(&pod.uid).into_iter().flatten() {
            let Some(episode) = self.episodes.get_mut(number) else {
                continue;
            };
            let (pod, began) = (Arc::clone(&episode.pod), episode.began);
            for exit in episode.exits.iter_mut().filter(|exit| !exit.stop_requested) {
                exit.stop_requested = stop_request.has_ended(&pod, exit);
            }
            if let Some(end) = &mut episode.sandbox_end {
                end.stop_requested |= stop_request.has_ended_sandbox(&pod, began, end);
            }
        }
        self.stop_requests.add(stop_request);
    }
}
