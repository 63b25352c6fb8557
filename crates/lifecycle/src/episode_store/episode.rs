//! One episode: its calls, its unresolved failures and its state.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::SpanId;

use super::checkpoints::CheckpointRecord;
use super::exits::ExitRecord;
use super::init::ExpectedContainers;
use super::interventions::Intervention;
use super::oom::ContainerOomKills;
use super::sandbox::SandboxEnd;
use super::verdict::UnresolvedFailure;
use crate::diagnosis;
use crate::episode_call::EpisodeCall;
use crate::kubelet::syncs::PodSync;
use crate::node::{NodeFact, PressureSpan};
use crate::timeline::PhaseShares;
use crate::view::EpisodeState;
use criscope_cri::Method;
use criscope_cri::call::CallState;
use criscope_cri::call::episode::{Ids, Kind};
use criscope_cri::subject::{ContainerIdentity, PodIdentity};
use criscope_cri::units::times::UnixMicros;

/// Most calls kept of an episode: the first ones, and the newest.
pub(super) const MAX_CALLS: usize = 128;
const KEPT_FIRST_CALLS: usize = 32;
/// Most container exits per episode.
const MAX_EXITS: usize = 16;
/// Most names of started containers per episode.
const MAX_STARTED_CONTAINERS: usize = 64;

/// An episode.
#[derive(Clone, Debug)]
pub(crate) struct Episode {
    /// Counts episodes as they are opened.
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    /// The pod, with the attempt of the sandbox.
    pub(crate) pod: Arc<PodIdentity>,
    /// The container of a restart; not known while only its image is pulled.
    pub(crate) container: Option<Arc<ContainerIdentity>>,
    pub(crate) sandbox_id: Option<Arc<str>>,
    pub(crate) handler: Option<Arc<str>>,
    pub(crate) state: EpisodeState,
    pub(crate) began: UnixMicros,
    pub(crate) ended: UnixMicros,
    pub(crate) calls: VecDeque<EpisodeCall>,
    pub(crate) calls_forgotten: u32,
    pub(super) forgotten: PhaseShares,
    pub(crate) retries: u32,
    pub(crate) failures: u32,
    /// True if an image was pulled, successfully.
    pub(crate) pulled: bool,
    /// Successful StartContainer calls.
    pub(crate) started: u32,
    /// The names of the containers that were started, in the order of their first start.
    pub(super) started_containers: Vec<Box<str>>,
    /// Failures that no later call has made good.
    pub(super) unresolved: Vec<UnresolvedFailure>,
    /// When the oldest of them became known.
    pub(super) failing_since: Option<UnixMicros>,
    pub(crate) exits: Vec<ExitRecord>,
    /// OOM kills in its containers.
    pub(crate) oom_kills: Vec<ContainerOomKills>,
    /// The checkpoints of its pod and containers, the oldest first.
    pub(crate) checkpoints: Vec<CheckpointRecord>,
    /// What others did to its containers.
    pub(crate) interventions: Vec<Intervention>,
    /// For a start: the end of its sandbox, if the runtime reported it by an event.
    pub(crate) sandbox_end: Option<SandboxEnd>,
    /// Facts about the node at that time.
    pub(crate) node: Vec<NodeFact>,
    pub(crate) pressure: Option<PressureSpan>,
    /// How often the episode was closed; more than once if it was continued.
    pub(crate) closings: u32,
    /// How often the episode was reported as failing.
    pub(super) failure_reports: u32,
    /// The root span if it was exported before the end of the episode, and the time up to which other spans were exported.
    pub(super) exported: Option<(SpanId, UnixMicros)>,
    /// Begin of the time after which the episode is given up: its own begin, or the begin of the call that continued it.
    pub(super) give_up_from: UnixMicros,
    /// The end of the last call that stopped or removed what an attempt without a sandbox had left behind.
    pub(super) last_cleanup_end: Option<UnixMicros>,
    /// The time at which its pod was found to be deleted without a sandbox.
    pub(crate) deleted: Option<UnixMicros>,
    /// For a stop: when the pod was found to exist still although it is stopped.
    pub(crate) found_after_stop: Option<UnixMicros>,
    /// True if a call of another episode ended it; then it cannot be continued.
    pub(super) ended_by_other: bool,
    /// True if more containers are expected.
    pub(super) expected: ExpectedContainers,
    /// For a stop: whether the sandbox is stopped or removed.
    pub(super) sandbox_stopped: bool,
    /// For a stop: whether it only cleans up after an earlier stop of the same sandbox.
    pub(crate) only_cleans: bool,
    /// The kubelet's spans of its time, the oldest first.
    pub(crate) syncs: Vec<Arc<PodSync>>,
}

impl Episode {
    /// Opens an episode with its first call.
    pub(super) fn open(
        number: u64,
        kind: Kind,
        pod: Arc<PodIdentity>,
        first: &EpisodeCall,
    ) -> Self {
        let container = first.container.clone().filter(|_| kind == Kind::Restart);
        Self {
            number,
            kind,
            pod,
            container,
            sandbox_id: None,
            handler: None,
            state: EpisodeState::Open,
            began: first.began_at(),
            ended: first.began_at(),
            calls: VecDeque::new(),
            calls_forgotten: 0,
            forgotten: PhaseShares::default(),
            retries: 0,
            failures: 0,
            pulled: false,
            started: 0,
            started_containers: Vec::new(),
            unresolved: Vec::new(),
            failing_since: None,
            exits: Vec::new(),
            oom_kills: Vec::new(),
            checkpoints: Vec::new(),
            interventions: Vec::new(),
            sandbox_end: None,
            node: Vec::new(),
            pressure: None,
            closings: 0,
            failure_reports: 0,
            exported: None,
            give_up_from: first.began_at(),
            last_cleanup_end: None,
            deleted: None,
            found_after_stop: None,
            ended_by_other: false,
            expected: ExpectedContainers::default(),
            sandbox_stopped: false,
            only_cleans: false,
            syncs: Vec::new(),
        }
    }

    /// From the begin of the first call to the end of the last.
    pub(crate) fn duration(&self) -> Duration {
        self.ended.since(self.began)
    }

    /// Returns whether calls may still follow.
    pub(crate) fn is_open(&self) -> bool {
        self.state == EpisodeState::Open
    }

    /// The ids of its trace. The first start of a container in a running pod has a root span of its own in the trace of the pod's
    /// start.
    pub(crate) fn ids(&self) -> Ids {
        let attempt = self.pod.attempt;
        // A pod created with crictl may have no uid; then its name identifies it.
        let uid = match &*self.pod.uid {
            "" => &format!("{}/{}", self.pod.namespace, self.pod.name),
            uid => uid,
        };
        match (self.kind, self.container.as_deref()) {
            (Kind::Start, _) => Ids::start(uid, attempt),
            (Kind::Restart, None) => Ids {
                root: Ids::restart(uid, "", attempt).root,
                ..Ids::start(uid, attempt)
            },
            (Kind::Restart, Some(container)) => {
                let own = Ids::restart(uid, &container.name, container.attempt);
                match container.attempt {
                    0 => Ids {
                        root: own.root,
                        ..Ids::start(uid, attempt)
                    },
                    _ => own,
                }
            }
            (Kind::Stop, _) => Ids::stop(uid, self.sandbox_id.as_deref().unwrap_or_default()),
        }
    }

    /// Sandbox attempt; for a restart the container's restart count.
    pub(crate) fn attempt(&self) -> u32 {
        match (&self.kind, &self.container) {
            (Kind::Restart, Some(container)) => container.attempt,
            _ => self.pod.attempt,
        }
    }

    /// Returns whether the episode is about this sandbox. If one of the ids is not known, the attempt decides.
    pub(super) fn is_of_sandbox(&self, pod: &PodIdentity, sandbox_id: Option<&str>) -> bool {
        match (&self.sandbox_id, sandbox_id) {
            (Some(own), Some(other)) => **own == *other,
            _ => self.pod.attempt == pod.attempt,
        }
    }

    /// Returns whether a call of this episode named the container with this id.
    pub(super) fn call_of_container(&self, id: &str) -> Option<&EpisodeCall> {
        let mut calls = self.calls.iter().rev();
        calls.find(|call| call.container_id.as_deref() == Some(id))
    }

    /// Returns whether the episode has the call already: the call may have ended between two reads of the calls in flight.
    pub(super) fn has(&self, call: &EpisodeCall) -> bool {
        let mut calls = self.calls.iter().rev();
        calls.any(|c| c.seq == call.seq && c.began == call.began)
    }

    /// Returns whether the stop only stopped containers, and perhaps removed them then, which may be to restart them.
    pub(crate) fn is_tentative(&self) -> bool {
        let mut methods = self.calls.iter().map(|call| call.method);
        self.kind == Kind::Stop
            && !self.only_cleans
            && methods.all(|method| {
                use Method::{ExecSync, RemoveContainer, StopContainer};
                matches!(method, StopContainer | RemoveContainer | ExecSync)
            })
    }

    /// Adds a call.
    pub(super) fn add(&mut self, mut call: EpisodeCall) {
        self.share_texts(&mut call);
        self.began = self.began.min(call.began_at());
        self.ended = self.ended.max(call.ended_at());
        call.retry = self
            .calls
            .iter()
            .any(|c| c.is_bad() && c.method == call.method && c.target() == call.target());
        self.retries += u32::from(call.retry);
        if call.is_good() {
            self.note_success(&call);
        } else if call.is_bad() {
            self.failures += 1;
            self.note_failure(&call);
        }
        let later = self.calls.iter().rev().take_while(|c| c.began > call.began);
        let at = self.calls.len() - later.count();
        self.calls.insert(at, call);
        self.forget();
    }

    /// Removes and returns the `wanted` calls, which turned out to belong to another episode.
    pub(super) fn take_calls(&mut self, wanted: impl Fn(&EpisodeCall) -> bool) -> Vec<EpisodeCall> {
        // The counters could not be recomputed without the dropped calls.
        if self.calls_forgotten > 0 {
            return Vec::new();
        }
        let (given, kept): (Vec<_>, Vec<_>) = self.calls.drain(..).partition(|c| wanted(c));
        (self.retries, self.failures, self.started) = (0, 0, 0);
        self.started_containers.clear();
        self.unresolved.clear();
        self.failing_since = None;
        self.pulled = false;
        if let Some(first) = kept.first() {
            (self.began, self.ended) = (first.began_at(), first.began_at());
        }
        for call in kept {
            self.add(call);
        }
        given
    }

    /// Shares equal texts: after a replay, and for repeated error messages. Texts that are shared already stay as they are, since a
    /// change copies the record.
    fn share_texts(&mut self, call: &mut EpisodeCall) {
        if call.sandbox_id.is_some() && (self.sandbox_id.is_none() || call.is_new_sandbox()) {
            self.sandbox_id.clone_from(&call.sandbox_id);
        }
        if self.handler.is_none() {
            self.handler.clone_from(&call.handler);
        }
        if is_copy(call.pod.as_ref(), Some(&self.pod)) {
            call.record_mut().pod = Some(Arc::clone(&self.pod));
        }
        if self.kind == Kind::Restart && self.container.is_none() {
            self.container.clone_from(&call.container);
        }
        if is_copy(call.sandbox_id.as_ref(), self.sandbox_id.as_ref()) {
            call.record_mut().sandbox_id.clone_from(&self.sandbox_id);
        }
        let Some(last) = self.calls.back() else {
            return;
        };
        let backend = call.route.as_ref().map(|route| &route.backend);
        let last_backend = last.route.as_ref().map(|route| &route.backend);
        if call.route == last.route && is_copy(backend, last_backend) {
            call.record_mut().route.clone_from(&last.route);
        }
        if is_copy(Some(&call.peer), Some(&last.peer)) {
            call.record_mut().peer = Arc::clone(&last.peer);
        }
        if is_copy(call.error(), last.error())
            && let CallState::Ended(outcome) = &mut call.record_mut().state
        {
            outcome.message = last.error().cloned();
        }
    }

    fn note_success(&mut self, call: &EpisodeCall) {
        match call.method {
            Method::PullImage => self.pulled = true,
            Method::StartContainer => {
                self.started += 1;
                let name = call.container_name().unwrap_or_default();
                if self.started_containers.len() < MAX_STARTED_CONTAINERS && !self.has_run(name) {
                    self.started_containers.push(name.into());
                }
            }
            Method::StopPodSandbox | Method::RemovePodSandbox => self.sandbox_stopped = true,
            _ => {}
        }
        self.resolve(call);
        if self.has_started_all() {
            self.resolve_pulls();
        }
    }

    fn forget(&mut self) {
        while self.calls.len() > MAX_CALLS {
            if let Some(call) = self.calls.remove(KEPT_FIRST_CALLS) {
                self.calls_forgotten += 1;
                self.forgotten[diagnosis::phase(&call) as usize] += call.took();
            }
        }
    }

    /// Adds the exit of a container; the first and the newest are kept.
    pub(super) fn note_exit(&mut self, exit: ExitRecord) {
        if self.exits.len() >= MAX_EXITS {
            self.exits.remove(1);
        }
        self.exits.push(exit);
    }

    /// Returns whether a container of this name was started in it.
    pub(crate) fn has_run(&self, name: &str) -> bool {
        self.started_containers
            .iter()
            .any(|started| **started == *name)
    }

    /// Returns whether a container of this name and attempt was started in it.
    pub(super) fn has_started(&self, name: &str, attempt: u32) -> bool {
        self.calls.iter().any(|c| {
            let container = c.container.as_deref();
            c.method == Method::StartContainer
                && container.is_some_and(|c| *c.name == *name && c.attempt == attempt)
        })
    }
}

/// Returns whether both are equal, but not shared.
fn is_copy<T: ?Sized + PartialEq>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other && !Arc::ptr_eq(one, other),
        _ => false,
    }
}
