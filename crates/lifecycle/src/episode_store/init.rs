//! Init containers. The CRI does not mark them. A container counts as one if it exited successfully and the kubelet then created
//! a container that had not run in this sandbox.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::{Episode, EpisodeStore};
use crate::episode_call::EpisodeCall;
use crate::view::EpisodeState;
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::UnixMicros;

/// Longest time from the exit of an init container to the kubelet's next call for its pod. It notices an exit within a second or
/// two.
const NEXT_CALL_AFTER_INIT_WITHIN: Duration = Duration::from_secs(60);
/// A container that was an init container in other pods is taken for one for this long.
const EXPECTED_AFTER_INIT_FOR: Duration = Duration::from_secs(300);
/// Containers that are remembered as init containers.
const MAX_KNOWN_INIT_CONTAINERS: usize = 256;

/// The containers that a start still expects.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpectedContainers {
    /// The names of the pod's containers without its ordinary init containers, if the kubelet has written them down.
    pub(super) containers: Option<Arc<[Box<str>]>>,
    /// True once the kubelet's file was read for them.
    is_read: bool,
    /// Another container is expected until this time, because the last one is taken for an init container.
    until: Option<UnixMicros>,
}

/// Init containers of other pods, by a hash of namespace and name.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownInitContainers(VecDeque<u64>);

impl KnownInitContainers {
    fn hash(pod: &PodIdentity, name: &str) -> u64 {
        let mut hash = DefaultHasher::new();
        (&pod.namespace, name).hash(&mut hash);
        hash.finish()
    }

    fn has(&self, pod: &PodIdentity, name: &str) -> bool {
        self.0.contains(&Self::hash(pod, name))
    }

    pub(super) fn learn(&mut self, pod: &PodIdentity, name: &str) {
        self.unlearn(pod, name);
        if self.0.len() >= MAX_KNOWN_INIT_CONTAINERS {
            self.0.pop_front();
        }
        self.0.push_back(Self::hash(pod, name));
    }

    fn unlearn(&mut self, pod: &PodIdentity, name: &str) {
        let hash = Self::hash(pod, name);
        self.0.retain(|known| *known != hash);
    }
}

impl Episode {
    /// Returns whether the kubelet has written down that this container is one of the pod's.
    pub(crate) fn expects_container(&self, name: &str) -> bool {
        let containers = self.expected.containers.as_deref();
        containers.is_some_and(|names| names.iter().any(|known| **known == *name))
    }

    fn last_start(&self) -> Option<&EpisodeCall> {
        let mut calls = self.calls.iter().rev();
        calls.find(|c| c.method == Method::StartContainer && c.is_good())
    }

    /// The time at which the container of this StartContainer exited successfully and without a stop request, if it was not after
    /// `by`.
    fn done_at(&self, start: &EpisodeCall, by: UnixMicros) -> Option<UnixMicros> {
        let attempt = start.container.as_ref().map(|c| c.attempt);
        let mut exits = self.exits.iter().rev();
        let exit = exits.find(|exit| {
            let is_of_run = exit.is_of(start) && Some(exit.attempt) == attempt;
            is_of_run && exit.is_good() && !exit.stop_requested && exit.at <= by
        })?;
        Some(exit.at)
    }

    /// The container of this start that runs, or ran last, and the containers that have yet to be started after it; `None` if
    /// none is known to be missing at `now`.
    pub(crate) fn awaited(&self, now: UnixMicros) -> Option<AwaitedContainers<'_>> {
        let last = self.last_start().filter(|_| self.kind == Kind::Start)?;
        let name = last.container_name()?;
        let Some(containers) = &self.expected.containers else {
            let until = self.expected.until.filter(|until| now < *until);
            return until.map(|_| AwaitedContainers {
                last: name,
                since: last.ended_at(),
                is_init: false,
                missing: Vec::new(),
            });
        };
        let missing: Vec<_> = containers
            .iter()
            .filter(|name| !self.has_run(name))
            .collect();
        // In a replaced sandbox the kubelet may leave out containers that are done.
        let is_init = !containers.iter().any(|known| **known == *name);
        let waits = is_init || self.pod.attempt == 0;
        (waits && !missing.is_empty()).then(|| AwaitedContainers {
            last: name,
            since: last.ended_at(),
            is_init,
            missing: missing.into_iter().map(|name| &**name).collect(),
        })
    }
}

/// The containers that a start waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AwaitedContainers<'a> {
    /// The container that was started last.
    pub(crate) last: &'a str,
    /// The end of its StartContainer.
    pub(crate) since: UnixMicros,
    /// True if that container is known to be an init container.
    pub(crate) is_init: bool,
    /// The known containers that were not started yet.
    pub(crate) missing: Vec<&'a str>,
}

impl EpisodeStore {
    /// The number of the complete start that this call continues: the first call after an init container that ran for longer
    /// than the quiet period. An ephemeral container in a running pod has no such exit before it.
    pub(super) fn start_before_init(&self, pod: &PodIdentity, call: &EpisodeCall) -> Option<u64> {
        let sandbox = call.sandbox_id.as_deref();
        let own = self
            .episodes_of(pod)
            .filter(move |t| t.kind != Kind::Stop && t.is_of_sandbox(pod, sandbox));
        let start = own.clone().find(|t| t.kind == Kind::Start)?;
        if start.state != EpisodeState::Ok || start.ended_by_other || !self.is_new_here(pod, call) {
            return None;
        }
        // A pull may have come before it, which names no container.
        let pull = own
            .clone()
            .find(|t| t.is_open() && t.kind == Kind::Restart && t.container.is_none())
            .map(|pull| pull.began);
        let began = pull.unwrap_or(call.began_at()).min(call.began_at());
        let last = own.clone().filter_map(Episode::last_start);
        let last = last.max_by_key(|c| c.began)?;
        let done = start.done_at(last, began)?;
        (began.since(done) <= NEXT_CALL_AFTER_INIT_WITHIN).then_some(start.number)
    }

    /// Returns whether the container, or the image, of this call was not seen in its sandbox before.
    fn is_new_here(&self, pod: &PodIdentity, call: &EpisodeCall) -> bool {
        let sandbox = call.sandbox_id.as_deref();
        let mut others = self
            .episodes_of(pod)
            .filter(|t| t.kind != Kind::Stop && t.is_of_sandbox(pod, sandbox));
        match call.container_name() {
            Some(name) => !others.any(|t| t.has_run(name)),
            None => !others.any(|t| {
                let mut calls = t.calls.iter();
                calls.any(|c| c.method == Method::PullImage && c.image == call.image)
            }),
        }
    }

    /// The pods whose containers are to be read from the kubelet's file: each start once, when its first container was started.
    pub(crate) fn take_pods_to_read(&mut self) -> Vec<Arc<PodIdentity>> {
        let mut pods = Vec::new();
        for number in &self.open {
            let start = self.episodes.get_mut(number);
            if let Some(start) = start.filter(|start| {
                start.kind == Kind::Start
                    && start.started > 0
                    && !start.expected.is_read
                    && !start.pod.uid.is_empty()
            }) {
                start.expected.is_read = true;
                pods.push(Arc::clone(&start.pod));
            }
        }
        pods
    }

    /// The start of this sandbox.
    pub(super) fn start_mut(&mut self, pod: &PodIdentity) -> Option<&mut Episode> {
        let number = self
            .episodes_of(pod)
            .find(|t| t.kind == Kind::Start && t.pod.attempt == pod.attempt)
            .map(|start| start.number)?;
        self.get_mut(number)
    }

    /// Notes the containers of a pod that starts, without ordinary init containers.
    pub(crate) fn expect(&mut self, pod: &PodIdentity, containers: Arc<[Box<str>]>) {
        if let Some(start) = self.start_mut(pod) {
            start.expected.is_read = true;
            start.expected.containers = Some(containers);
        }
    }

    /// Learns from a call in a start which containers are init containers.
    pub(super) fn learn_init(&mut self, number: u64, pod: &PodIdentity, call: &EpisodeCall) {
        let Some(start) = self.episodes.get_mut(&number) else {
            return;
        };
        let Some(name) = call
            .container_name()
            .filter(|_| start.kind == Kind::Start && call.is_good())
        else {
            return;
        };
        match call.method {
            Method::CreateContainer if !start.has_run(name) => {
                let Some(last) = start.last_start() else {
                    return;
                };
                let before = last.container_name().unwrap_or_default();
                match start.done_at(last, call.began_at()) {
                    Some(_) => self.init_containers.learn(pod, before),
                    None => self.init_containers.unlearn(pod, before),
                }
                start.expected.until = None;
            }
            Method::StartContainer if self.init_containers.has(pod, name) => {
                start.expected.until = Some(call.ended_at() + EXPECTED_AFTER_INIT_FOR);
            }
            Method::StartContainer => start.expected.until = None,
            _ => {}
        }
    }
}
