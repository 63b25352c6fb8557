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

/// Longest time from the exit of an init container to the kubelet's next call for its pod, if other containers of the pod run: the
/// container that ended may be a job, and the next one an ephemeral container. The kubelet notices an exit within a second or two.
const NEXT_CALL_AFTER_INIT_WITHIN: Duration = Duration::from_secs(60);
/// A container that was an init container in other pods is taken for one for this long.
const EXPECTED_AFTER_INIT_FOR: Duration = Duration::from_secs(300);
/// Containers that are remembered as init containers.
const MAX_KNOWN_INIT_CONTAINERS: usize = 256;

/// The containers that a start still expects.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpectedContainers {
    /// The names of the pod's containers, in some kubelets without its ordinary init containers, if the kubelet has written them down.
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
        self.last_start_of(|_| true)
    }

    /// The last successful StartContainer of a container with a `wanted` name.
    fn last_start_of(&self, wanted: impl Fn(&str) -> bool) -> Option<&EpisodeCall> {
        let mut calls = self.calls.iter().rev();
        calls.find(|call| call.has_started() && call.container_name().is_some_and(&wanted))
    }

    /// Returns whether the run that this call started has ended.
    fn is_ended(&self, start: &EpisodeCall) -> bool {
        self.exits.iter().any(|exit| exit.is_of_start(start))
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

    /// The names of the containers that were started in it, in the order of their first start.
    pub(crate) fn started_containers(&self) -> impl Iterator<Item = &str> {
        self.started_containers.iter().map(|name| &**name)
    }

    /// Returns whether this start has started every container that the kubelet has written down for the pod.
    pub(crate) fn has_started_all(&self) -> bool {
        let containers = self.expected.containers.as_deref();
        self.kind == Kind::Start
            && containers.is_some_and(|names| names.iter().all(|name| self.has_run(name)))
    }

    /// Returns whether the kubelet has written down which containers the pod has.
    pub(crate) fn knows_containers(&self) -> bool {
        self.expected.containers.is_some()
    }

    /// The container of this start that runs, or ran last, and the containers that have yet to be started after it; `None` if
    /// none is known to be missing at `now`, or the pod was stopped.
    pub(crate) fn awaited(&self, now: UnixMicros) -> Option<AwaitedContainers<'_>> {
        self.missing(now).filter(|_| !self.ended_by_other)
    }

    /// The same once the pod was stopped: then they were never started.
    pub(crate) fn never_started(&self) -> Option<AwaitedContainers<'_>> {
        self.missing(self.ended).filter(|_| self.ended_by_other)
    }

    /// The containers that had yet to be started at `now`.
    fn missing(&self, now: UnixMicros) -> Option<AwaitedContainers<'_>> {
        let last = self
            .last_start()
            .filter(|_| self.kind == Kind::Start && self.is_watched())?;
        let Some(containers) = &self.expected.containers else {
            let until = self.expected.until.filter(|until| now < *until);
            return until.and_then(|_| AwaitedContainers::after(last, false, Vec::new()));
        };
        let missing: Vec<_> = containers
            .iter()
            .filter(|name| !self.has_run(name))
            .map(|name| &**name)
            .collect();
        // Ordinary init containers are missing in the checkpoints of some kubelets. After a container of the checkpoint one that is
        // not in it may be an ephemeral one.
        let first = self.started_containers.first()?;
        let is_init = !self.expects_container(first);
        let last = if is_init {
            last
        } else {
            self.last_start_of(|name| self.expects_container(name))?
        };
        let is_init = is_init && !self.expects_container(last.container_name()?);
        // In a replaced sandbox the kubelet may leave out containers that are done.
        let waits = is_init || self.pod.attempt == 0;
        let awaited = AwaitedContainers::after(last, is_init, missing)?;
        (waits && !awaited.missing.is_empty()).then_some(awaited)
    }

    /// Returns whether all calls since the sandbox was made are known: containers may have been started before criscope, or while it was
    /// down.
    fn is_watched(&self) -> bool {
        let makes_sandbox = self.calls.iter().any(EpisodeCall::is_new_sandbox);
        let mut facts = self.node.iter().filter(|fact| fact.is_downtime());
        makes_sandbox && !facts.any(|fact| fact.to.is_none_or(|to| to > self.began))
    }

    /// Returns whether a container that has not run yet was added to the pod, as `kubectl debug` does: the kubelet's checkpoint does not
    /// name it, and all containers of the checkpoint were started, or an init container runs on.
    pub(super) fn is_added(&self, name: &str) -> bool {
        let Some(containers) = &self.expected.containers else {
            return false;
        };
        let mut all = containers.iter();
        let is_unlisted = !self.expects_container(name);
        is_unlisted && (all.all(|name| self.has_run(name)) || self.runs_unlisted())
    }

    /// A container of this start that was added to the running pod, and when the last container of the kubelet's checkpoint was
    /// started.
    pub(super) fn added_container(&self) -> Option<(Box<str>, UnixMicros)> {
        let containers = self.expected.containers.as_deref()?;
        let mut all_started = UnixMicros::EPOCH;
        for name in containers {
            let first = self
                .calls
                .iter()
                .find(|call| call.has_started_container(name));
            all_started = all_started.max(first?.began_at());
        }
        let mut creates = self
            .calls
            .iter()
            .filter(|call| call.method == Method::CreateContainer && call.began_at() > all_started);
        let name = creates.find_map(|call| {
            call.container_name()
                .filter(|name| !self.expects_container(name))
        });
        Some((name?.into(), all_started))
    }

    /// Returns whether the container that was started last is not in the kubelet's checkpoint, and has not ended.
    fn runs_unlisted(&self) -> bool {
        self.last_start().is_some_and(|last| {
            let name = last.container_name().unwrap_or_default();
            !self.expects_container(name) && !self.is_ended(last)
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

impl<'a> AwaitedContainers<'a> {
    fn after(last: &'a EpisodeCall, is_init: bool, missing: Vec<&'a str>) -> Option<Self> {
        Some(Self {
            last: last.container_name()?,
            since: last.ended_at(),
            is_init,
            missing,
        })
    }
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
        if let Some(name) = call.container_name() {
            if start.expects_container(name) {
                return Some(start.number);
            }
            if start.is_added(name) {
                return None;
            }
        }
        // A pull may have come before it, which names no container.
        let pull = own
            .clone()
            .find(|t| t.is_open() && t.kind == Kind::Restart && t.container.is_none())
            .map(|pull| pull.began);
        let began = pull.unwrap_or(call.began_at()).min(call.began_at());
        let last = own.clone().filter_map(Episode::last_start);
        let last = last.max_by_key(|c| c.began)?;
        let done = own.clone().find_map(|t| t.done_at(last, began))?;
        let runs_on = own.clone().flat_map(|t| &t.calls).any(|call| {
            let is_other = call.container_name() != last.container_name();
            call.has_started() && is_other && !own.clone().any(|t| t.is_ended(call))
        });
        (!runs_on || began.since(done) <= NEXT_CALL_AFTER_INIT_WITHIN).then_some(start.number)
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

    /// The containers of these pods could not be read, and are read again.
    pub(crate) fn read_again(&mut self, pods: &[Arc<PodIdentity>]) {
        for number in &self.open {
            let start = self.episodes.get_mut(number);
            if let Some(start) = start.filter(|start| pods.contains(&start.pod)) {
                start.expected.is_read = false;
            }
        }
    }

    /// The start of this sandbox.
    pub(super) fn start_mut(&mut self, pod: &PodIdentity) -> Option<&mut Episode> {
        let number = self
            .episodes_of(pod)
            .find(|t| t.kind == Kind::Start && t.pod.attempt == pod.attempt)
            .map(|start| start.number)?;
        self.get_mut(number)
    }

    /// Notes the containers of a pod that starts, in some kubelets without ordinary init containers.
    pub(crate) fn expect(&mut self, pod: &PodIdentity, containers: Arc<[Box<str>]>) {
        let Some(start) = self.start_mut(pod) else {
            return;
        };
        start.expected.is_read = true;
        start.expected.containers = Some(containers);
        if start.has_started_all() {
            start.resolve_pulls();
        }
        let number = start.number;
        self.move_added(number);
    }

    /// The container that was started last in the sandbox of this call, and whether it had done its work when the call began.
    fn container_before(&self, pod: &PodIdentity, call: &EpisodeCall) -> Option<(Box<str>, bool)> {
        let sandbox = call.sandbox_id.as_deref();
        let own = self
            .episodes_of(pod)
            .filter(|episode| episode.kind != Kind::Stop && episode.is_of_sandbox(pod, sandbox));
        let last = own.clone().filter_map(Episode::last_start);
        let last = last.max_by_key(|call| call.began)?;
        let mut own = own;
        let is_done = own.any(|episode| episode.done_at(last, call.began_at()).is_some());
        Some((last.container_name()?.into(), is_done))
    }

    /// Learns from a call in a start which containers are init containers.
    pub(super) fn learn_init(&mut self, number: u64, pod: &PodIdentity, call: &EpisodeCall) {
        let before = self.container_before(pod, call);
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
                let Some((before, is_done)) = before else {
                    return;
                };
                if is_done {
                    self.init_containers.learn(pod, &before);
                } else {
                    self.init_containers.unlearn(pod, &before);
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
