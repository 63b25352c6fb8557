//! Init containers. The CRI does not mark them: what tells one is that it exited successfully and the kubelet then created a
//! container which had not run in this sandbox.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::{Episode, EpisodeStore};
use crate::call::episode::Kind;
use crate::cri::Method;
use crate::cri::subject::PodIdentity;
use crate::lifecycle::episode_call::EpisodeCall;
use crate::lifecycle::view::EpisodeState;

/// Longest time from the exit of an init container to the kubelet's next call for its pod, in microseconds. It notices an
/// exit within a second or two.
const NEXT_CALL_AFTER_INIT_WITHIN: u64 = 60_000_000;
/// How long a container that was an init container in other pods is taken for one, in microseconds.
const EXPECTED_AFTER_INIT_FOR: u64 = 300_000_000;
/// Containers that are remembered as init containers.
const MAX_KNOWN_INIT_CONTAINERS: usize = 256;

/// The containers that a start still expects.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpectedContainers {
    /// The names of the pod's containers without its ordinary init containers, if the kubelet has written them down.
    pub(super) containers: Option<Arc<[Box<str>]>>,
    /// Whether they were asked for.
    asked: bool,
    /// Until when another container is expected because the last one is taken for an init container, in microseconds since
    /// 1970.
    until: Option<u64>,
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
        containers.is_some_and(|names| names.iter().any(|it| **it == *name))
    }

    fn last_start(&self) -> Option<&EpisodeCall> {
        let mut calls = self.calls.iter().rev();
        calls.find(|c| c.method == Method::StartContainer && c.is_good())
    }

    /// Returns whether the container of this start was started here and has exited successfully without being asked to.
    fn has_done(&self, start: &EpisodeCall, by: u64) -> Option<u64> {
        let attempt = start.container.as_ref().map(|c| c.attempt);
        let mut exits = self.exits.iter().rev();
        let is_it = |exit: &super::ExitRecord| exit.is_of(start) && Some(exit.attempt) == attempt;
        let exit = exits
            .find(|exit| is_it(exit) && exit.is_good() && !exit.stop_requested && exit.at <= by)?;
        Some(exit.at)
    }

    /// The container of this start that runs, or ran last, and the containers that have yet to be started after it; `None` if
    /// none is known to be missing at `now`.
    pub(crate) fn awaited(&self, now: u64) -> Option<AwaitedContainers<'_>> {
        let last = self.last_start().filter(|_| self.kind == Kind::Start)?;
        let name = last.container_name()?;
        let Some(containers) = &self.expected.containers else {
            let until = self.expected.until.filter(|until| now < *until);
            return until.map(|_| AwaitedContainers {
                last: name,
                since: last.end_us(),
                is_init: false,
                missing: Vec::new(),
            });
        };
        let missing: Vec<_> = containers.iter().filter(|it| !self.has_run(it)).collect();
        // In a replaced sandbox the kubelet may leave out containers that are done.
        let is_init = !containers.iter().any(|it| **it == *name);
        let waits = is_init || self.pod.attempt == 0;
        (waits && !missing.is_empty()).then(|| AwaitedContainers {
            last: name,
            since: last.end_us(),
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
    /// When it was started, in microseconds since 1970.
    pub(crate) since: u64,
    /// Whether it is known to be an init container.
    pub(crate) is_init: bool,
    /// The containers that were not started yet, as far as they are known.
    pub(crate) missing: Vec<&'a str>,
}

impl EpisodeStore {
    /// The number of the complete start that this call continues: the first call after an init container that ran for longer
    /// than the quiet period. An ephemeral container in a running pod has no such exit before it.
    pub(super) fn start_before_init(&self, pod: &PodIdentity, call: &EpisodeCall) -> Option<u64> {
        let of_sandbox = || {
            let sandbox = call.sandbox_id.as_deref();
            self.episodes_of(pod)
                .filter(move |t| t.kind != Kind::Stop && t.is_of_sandbox(pod, sandbox))
        };
        let start = of_sandbox().find(|t| t.kind == Kind::Start)?;
        if start.state != EpisodeState::Ok || start.ended_by_other || !self.is_new_here(pod, call) {
            return None;
        }
        // A pull may have come before it, which names no container.
        let pulls = |t: &&Episode| t.is_open() && t.kind == Kind::Restart && t.container.is_none();
        let pull = of_sandbox().find(pulls).map(|t| t.began);
        let began = pull.unwrap_or(call.began_us()).min(call.began_us());
        let last = of_sandbox().filter_map(Episode::last_start);
        let last = last.max_by_key(|c| c.began)?;
        let done = start.has_done(last, began)?;
        (began - done <= NEXT_CALL_AFTER_INIT_WITHIN).then_some(start.number)
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

    /// The pods whose containers are worth knowing: those with the first container started, once for each start.
    pub(crate) fn take_unasked(&mut self) -> Vec<Arc<PodIdentity>> {
        let mut pods = Vec::new();
        for number in &self.open {
            let start = self.episodes.get_mut(number);
            let wanted = |t: &Episode| {
                t.kind == Kind::Start && t.started > 0 && !t.expected.asked && !t.pod.uid.is_empty()
            };
            if let Some(start) = start.filter(|start| wanted(start)) {
                start.expected.asked = true;
                pods.push(Arc::clone(&start.pod));
            }
        }
        pods
    }

    /// Notes the containers of a pod that starts, without ordinary init containers.
    pub(crate) fn expect(&mut self, pod: &PodIdentity, containers: Arc<[Box<str>]>) {
        let is_it = |t: &&Episode| t.kind == Kind::Start && t.pod.attempt == pod.attempt;
        let number = self.episodes_of(pod).find(is_it).map(|t| t.number);
        if let Some(start) = number.and_then(|n| self.episodes.get_mut(&n)) {
            start.expected.asked = true;
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
                match start.has_done(last, call.began_us()) {
                    Some(_) => self.init_containers.learn(pod, before),
                    None => self.init_containers.unlearn(pod, before),
                }
                start.expected.until = None;
            }
            Method::StartContainer if self.init_containers.has(pod, name) => {
                start.expected.until = Some(call.end_us().saturating_add(EXPECTED_AFTER_INIT_FOR));
            }
            Method::StartContainer => start.expected.until = None,
            _ => {}
        }
    }
}
