//! Pods as the runtimes list them. They describe a pod that runs since before criscope came, or whose calls took another
//! way: its containers, their states and ages. A pod that has an episode is told from its calls and is not kept here.

pub(super) mod sentence;
pub(super) mod stories;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::episode_call::EpisodeCall;
use crate::episode_store::{EpisodeStore, ExitRecord, SandboxEnd};
use criscope_cri::Method;
use criscope_cri::call::CallRecord;
use criscope_cri::lists::{ListedContainer, ListedSandbox, ListedState, RuntimeLists};
use criscope_cri::subject::{
    ContainerExit, ContainerIdentity, ContainerState, ExitReason, PodIdentity,
};
use criscope_cri::units::times::UnixMicros;

/// Most pods of a runtime that are kept. The kubelet runs at most some hundred.
const MAX_LISTED_PODS: usize = 2048;
/// Most containers of a pod that are kept.
const MAX_LISTED_CONTAINERS: usize = 64;
/// Most containers whose status is requested in a round.
const MAX_STATUS_REQUESTS: usize = 256;

/// The pods that runtimes list and that have no episode, by the name of the backend.
#[derive(Clone, Debug, Default)]
pub(super) struct ListedPods(BTreeMap<Arc<str>, Vec<ListedPod>>);

/// A pod, with its newest sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ListedPod {
    pub(super) pod: Arc<PodIdentity>,
    pub(super) sandbox_id: Arc<str>,
    /// True while the sandbox is up.
    pub(super) is_ready: bool,
    /// The time at which the sandbox was made.
    pub(super) created: UnixMicros,
    /// The end of its sandbox, if the runtime reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ended: Option<UnixMicros>,
    /// The newest run of each container, by name.
    pub(super) containers: Vec<ListedRun>,
}

/// The newest run of a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ListedRun {
    id: Arc<str>,
    pub(super) container: Arc<ContainerIdentity>,
    pub(super) state: ListedState,
    /// The time at which the container was made.
    pub(super) created: UnixMicros,
    /// How it ended, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exit: Option<ListedExit>,
}

/// The end of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ListedExit {
    pub(super) code: i32,
    pub(super) reason: ExitReason,
    pub(super) at: UnixMicros,
}

impl From<&ContainerExit> for ListedExit {
    fn from(exit: &ContainerExit) -> Self {
        Self {
            code: exit.code,
            reason: exit.reason,
            at: UnixMicros::from_nanos(exit.at),
        }
    }
}

impl From<&ExitRecord> for ListedExit {
    fn from(exit: &ExitRecord) -> Self {
        Self {
            code: exit.code,
            reason: exit.reason,
            at: exit.at,
        }
    }
}

impl ListedRun {
    fn new(container: ListedContainer) -> Self {
        Self {
            id: container.id,
            container: container.container,
            state: container.state,
            created: container.created,
            exit: None,
        }
    }

    fn is_newer_than(&self, other: &Self) -> bool {
        (self.container.attempt, self.created) > (other.container.attempt, other.created)
    }

    fn end(&mut self, exit: ListedExit) {
        self.state = ListedState::Exited;
        self.exit = Some(exit);
    }

    /// Returns whether it is known to have ended with a code other than 0.
    pub(super) fn has_failed(&self) -> bool {
        let failed = self.exit.as_ref().is_some_and(|exit| exit.code != 0);
        self.state == ListedState::Unknown || self.state == ListedState::Exited && failed
    }
}

impl ListedPod {
    fn new(sandbox: ListedSandbox) -> Self {
        Self {
            pod: sandbox.pod,
            sandbox_id: sandbox.id,
            is_ready: sandbox.is_ready,
            created: sandbox.created,
            ended: None,
            containers: Vec::new(),
        }
    }

    fn is_newer_than(&self, other: &Self) -> bool {
        (self.created, self.pod.attempt) > (other.created, other.pod.attempt)
    }

    /// Adds a run, unless a newer one of the same container is known.
    fn add(&mut self, run: ListedRun) {
        let has_room = self.containers.len() < MAX_LISTED_CONTAINERS;
        let mut runs = self.containers.iter_mut();
        match runs.find(|other| other.container.name == run.container.name) {
            Some(other) if run.is_newer_than(other) => *other = run,
            Some(_) => {}
            None if has_room => self.containers.push(run),
            None => {}
        }
    }
}

/// The pods in both lists, with their newest sandboxes.
fn pods(lists: RuntimeLists, is_wanted: impl Fn(&PodIdentity) -> bool) -> Vec<ListedPod> {
    let mut newest = HashMap::<_, ListedPod>::new();
    for sandbox in lists.sandboxes {
        if !is_wanted(&sandbox.pod) {
            continue;
        }
        let pod = ListedPod::new(sandbox);
        let PodIdentity {
            namespace,
            name,
            uid,
            ..
        } = &*pod.pod;
        let key = [uid, namespace, name].map(|text| text.to_string());
        let has_room = newest.len() < MAX_LISTED_PODS;
        match newest.get_mut(&key) {
            Some(other) if pod.is_newer_than(other) => *other = pod,
            Some(_) => {}
            None if has_room => _ = newest.insert(key, pod),
            None => {}
        }
    }
    let pods = newest.into_values();
    let mut by_sandbox: HashMap<_, _> = pods.map(|pod| (pod.sandbox_id.clone(), pod)).collect();
    for container in lists.containers {
        if let Some(pod) = by_sandbox.get_mut(&container.sandbox_id) {
            pod.add(ListedRun::new(container));
        }
    }
    let mut pods: Vec<_> = by_sandbox.into_values().collect();
    for pod in &mut pods {
        pod.containers
            .sort_by(|a, b| a.created.cmp(&b.created).then(a.id.cmp(&b.id)));
    }
    pods.sort_by_key(|pod| Reverse(pod.created));
    pods
}

impl ListedPods {
    /// Restores the pods of a capture.
    pub(super) fn restore(pods: Vec<ListedPod>) -> Self {
        Self(BTreeMap::from([("".into(), pods)]))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ListedPod> {
        self.0.values().flatten()
    }

    fn runs_mut(&mut self) -> impl Iterator<Item = &mut ListedRun> {
        let pods = self.0.values_mut().flatten();
        pods.flat_map(|pod| &mut pod.containers)
    }

    fn run_mut(&mut self, id: &str) -> Option<&mut ListedRun> {
        self.runs_mut().find(|run| *run.id == *id)
    }

    /// Replaces the pods of a backend. Returns the containers that have ended in a way that is not known.
    fn set(&mut self, backend: &Arc<str>, mut pods: Vec<ListedPod>) -> Vec<Arc<str>> {
        let before: HashMap<_, _> = { self.iter() }
            .flat_map(|pod| &pod.containers)
            .filter_map(|run| Some((run.id.clone(), run.exit.clone()?)))
            .collect();
        let runs = pods.iter_mut().flat_map(|pod| &mut pod.containers);
        let mut unknown = Vec::new();
        for run in runs.filter(|run| run.state == ListedState::Exited) {
            run.exit = before.get(&run.id).cloned();
            if run.exit.is_none() && unknown.len() < MAX_STATUS_REQUESTS {
                unknown.push(run.id.clone());
            }
        }
        self.0.insert(Arc::clone(backend), pods);
        unknown
    }

    /// Forgets the pods and containers that a call replaces or removes. The next list shows the rest.
    pub(super) fn note_call(&mut self, call: &CallRecord) {
        if self.0.is_empty() || !call.is_good() {
            return;
        }
        match call.method {
            Method::StopPodSandbox | Method::RemovePodSandbox => {
                let Some(id) = &call.sandbox_id else { return };
                for pods in self.0.values_mut() {
                    pods.retain(|pod| pod.sandbox_id != *id);
                }
            }
            Method::RemoveContainer => {
                let Some(id) = &call.container_id else { return };
                for pod in self.0.values_mut().flatten() {
                    pod.containers.retain(|run| run.id != *id);
                }
            }
            _ => {}
        }
    }

    /// Notes the end of a container.
    pub(super) fn note_exit(&mut self, id: &str, exit: impl Into<ListedExit>) {
        if let Some(run) = self.run_mut(id) {
            run.end(exit.into());
        }
    }

    /// Notes the end of a sandbox.
    pub(super) fn note_sandbox_end(&mut self, pod: &PodIdentity, end: &SandboxEnd) {
        let mut pods = self.0.values_mut().flatten();
        if let Some(listed) = pods.find(|listed| *listed.pod == *pod) {
            listed.is_ready = false;
            listed.ended = Some(end.at);
        }
    }
}

impl EpisodeStore {
    /// Replaces the listed pods of a backend. Returns the containers whose status is wanted.
    pub(super) fn set_listed(&mut self, backend: &Arc<str>, lists: RuntimeLists) -> Vec<Arc<str>> {
        let pods = pods(lists, |pod| self.episodes_of(pod).next().is_none());
        self.listed.set(backend, pods)
    }

    pub(super) fn note_listed_status(&mut self, id: &str, state: ContainerState) {
        if let Some(exit) = &state.exit {
            self.listed.note_exit(id, exit);
        }
    }

    /// Returns whether the runtime lists the pod of a call, whose first call this is, with all containers running.
    pub(super) fn is_listed_up(&self, call: &EpisodeCall) -> bool {
        let Some(pod) = call.pod.as_deref() else {
            return false;
        };
        let mut listed = self.listed_pods().filter(|listed| *listed.pod == *pod);
        listed.any(|listed| {
            let mut runs = listed.containers.iter();
            listed.is_ready
                && !listed.containers.is_empty()
                && runs.all(|run| run.state == ListedState::Running)
        })
    }

    /// The listed pods without an episode.
    pub(super) fn listed_pods(&self) -> impl Iterator<Item = &ListedPod> {
        let pods = self.listed.iter();
        pods.filter(|listed| self.episodes_of(&listed.pod).next().is_none())
    }
}
