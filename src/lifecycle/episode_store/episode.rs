//! One episode: its calls, its unresolved failures and its state.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Limits;
use super::exits::Exit;
use crate::call::CallState;
use crate::call::episode::{Ids, Kind};
use crate::cri::Method;
use crate::cri::subject::{ContainerIdentity, PodIdentity};
use crate::lifecycle::episode_call::{EpisodeCall, millis};
use crate::lifecycle::node::{NodeFact, PressureSpan};
use crate::lifecycle::timeline::{self, EpisodePhase, Interval, Shares};
use crate::lifecycle::view::State;

/// Most calls kept of an episode: the first ones, and the newest.
pub(super) const MOST_CALLS: usize = 128;
const FIRST_CALLS: usize = 32;
/// Most unresolved failures.
const MOST_UNRESOLVED: usize = 16;
/// Most container exits per episode.
const MOST_EXITS: usize = 16;

/// An episode.
#[derive(Clone, Debug)]
pub(in crate::lifecycle) struct Episode {
    /// Counts episodes as they are opened.
    pub(in crate::lifecycle) number: u64,
    pub(in crate::lifecycle) kind: Kind,
    /// The pod, with the attempt of the sandbox.
    pub(in crate::lifecycle) pod: Arc<PodIdentity>,
    /// The container of a restart; not known while only its image is pulled.
    pub(in crate::lifecycle) container: Option<Arc<ContainerIdentity>>,
    pub(in crate::lifecycle) sandbox_id: Option<Arc<str>>,
    pub(in crate::lifecycle) handler: Option<Arc<str>>,
    pub(in crate::lifecycle) state: State,
    pub(in crate::lifecycle) began: u64,
    pub(in crate::lifecycle) ended: u64,
    pub(in crate::lifecycle) calls: VecDeque<EpisodeCall>,
    pub(in crate::lifecycle) calls_forgotten: u32,
    forgotten: Shares,
    pub(in crate::lifecycle) retries: u32,
    pub(in crate::lifecycle) failures: u32,
    pub(in crate::lifecycle) pulled: bool,
    /// Successful StartContainer calls.
    pub(in crate::lifecycle) started: u32,
    /// Failures that no later call has made good.
    unresolved: Vec<(EpisodePhase, Box<str>)>,
    pub(in crate::lifecycle) exits: Vec<Exit>,
    /// What the node was like meanwhile.
    pub(in crate::lifecycle) node: Vec<NodeFact>,
    pub(in crate::lifecycle) pressure: Option<PressureSpan>,
}

impl Episode {
    /// An episode of which this is the first call.
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
            state: State::Open,
            began: first.began_us(),
            ended: first.began_us(),
            calls: VecDeque::new(),
            calls_forgotten: 0,
            forgotten: Shares::default(),
            retries: 0,
            failures: 0,
            pulled: false,
            started: 0,
            unresolved: Vec::new(),
            exits: Vec::new(),
            node: Vec::new(),
            pressure: None,
        }
    }

    /// From the begin of its first call to the end of its last, in microseconds.
    pub(in crate::lifecycle) fn duration(&self) -> u64 {
        self.ended.saturating_sub(self.began)
    }

    /// The same in milliseconds.
    pub(in crate::lifecycle) fn duration_ms(&self) -> f64 {
        millis(self.duration())
    }

    /// Returns whether calls may still follow.
    pub(in crate::lifecycle) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Its trace. The first start of a container in a running pod is part of the trace of the pod's start, as are its calls,
    /// with a root span of its own.
    pub(in crate::lifecycle) fn ids(&self) -> Ids {
        let attempt = self.pod.attempt;
        // A pod created with crictl may have no uid; then its name identifies it.
        let name = || format!("{}/{}", self.pod.namespace, self.pod.name);
        let uid = match &*self.pod.uid {
            "" => &name(),
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
    pub(in crate::lifecycle) fn attempt(&self) -> u32 {
        match (&self.kind, &self.container) {
            (Kind::Restart, Some(container)) => container.attempt,
            _ => self.pod.attempt,
        }
    }

    /// Returns whether it is about this sandbox, as far as both are known.
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

    /// Returns whether it has the call already: one that ended between two reads of the calls in flight.
    pub(super) fn has(&self, call: &EpisodeCall) -> bool {
        let mut calls = self.calls.iter().rev();
        calls.any(|c| c.seq == call.seq && c.began == call.began)
    }

    /// Returns whether a failure of this container or image is unresolved.
    pub(in crate::lifecycle) fn is_unresolved(&self, target: &str) -> bool {
        self.unresolved.iter().any(|(_, m)| **m == *target)
    }

    /// Returns whether no failure is unresolved.
    pub(in crate::lifecycle) fn is_resolved(&self) -> bool {
        self.unresolved.is_empty()
    }

    /// Returns whether it only stopped containers, perhaps to restart them.
    pub(in crate::lifecycle) fn is_tentative(&self) -> bool {
        let stops =
            |call: &EpisodeCall| matches!(call.method, Method::StopContainer | Method::ExecSync);
        self.kind == Kind::Stop && self.calls.iter().all(stops)
    }

    /// Adds a call.
    pub(super) fn add(&mut self, mut call: EpisodeCall) {
        self.share_texts(&mut call);
        self.began = self.began.min(call.began_us());
        self.ended = self.ended.max(call.end_us());
        call.retry = self
            .calls
            .iter()
            .any(|c| c.is_bad() && c.method == call.method && c.target() == call.target());
        self.retries += u32::from(call.retry);
        self.pulled |= call.method == Method::PullImage;
        if call.is_good() {
            self.started += u32::from(call.method == Method::StartContainer);
            self.resolve(&call);
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
        self.unresolved.clear();
        self.pulled = false;
        if let Some(first) = kept.first() {
            (self.began, self.ended) = (first.began_us(), first.began_us());
        }
        for call in kept {
            self.add(call);
        }
        given
    }

    /// Shares equal strings: after a replay, and for repeated error messages.
    fn share_texts(&mut self, call: &mut EpisodeCall) {
        if call.sandbox_id.is_some() && (self.sandbox_id.is_none() || call.is_new_sandbox()) {
            self.sandbox_id.clone_from(&call.sandbox_id);
        }
        if self.handler.is_none() {
            self.handler.clone_from(&call.handler);
        }
        if call.pod.as_deref() == Some(&*self.pod) {
            call.pod = Some(Arc::clone(&self.pod));
        }
        if self.kind == Kind::Restart && self.container.is_none() {
            self.container.clone_from(&call.container);
        }
        if call.sandbox_id == self.sandbox_id {
            call.sandbox_id.clone_from(&self.sandbox_id);
        }
        if let Some(last) = self.calls.back() {
            if call.route == last.route {
                call.route.clone_from(&last.route);
            }
            if call.peer == last.peer {
                call.peer = Arc::clone(&last.peer);
            }
            if let (CallState::Ended(outcome), Some(same)) = (&mut call.state, last.outcome())
                && outcome.message == same.message
            {
                outcome.message.clone_from(&same.message);
            }
        }
    }

    fn note_failure(&mut self, call: &EpisodeCall) {
        let target = (EpisodePhase::of(call.method), Box::from(call.target()));
        if self.unresolved.len() < MOST_UNRESOLVED && !self.unresolved.contains(&target) {
            self.unresolved.push(target);
        }
    }

    /// A success resolves failures of the same call; a StartContainer also those of its CreateContainer.
    fn resolve(&mut self, call: &EpisodeCall) {
        let phase = EpisodePhase::of(call.method);
        self.unresolved.retain(|(failed, target)| {
            let same_call = *failed == phase && **target == *call.target();
            let started = phase == EpisodePhase::ContainerStart
                && matches!(
                    failed,
                    EpisodePhase::ContainerCreate | EpisodePhase::ContainerStart
                )
                && **target == *call.target();
            !same_call && !started
        });
    }

    /// Another episode resolved the failures of a container.
    pub(super) fn resolve_container(&mut self, name: &str) {
        self.unresolved.retain(|(failed, target)| {
            let of_container = matches!(
                failed,
                EpisodePhase::ContainerCreate | EpisodePhase::ContainerStart
            );
            !(of_container && **target == *name)
        });
    }

    fn forget(&mut self) {
        while self.calls.len() > MOST_CALLS {
            if let Some(call) = self.calls.remove(FIRST_CALLS) {
                self.calls_forgotten += 1;
                self.forgotten[EpisodePhase::of(call.method) as usize] += call.elapsed_us();
            }
        }
    }

    /// Adds the exit of a container; the first and the newest are kept.
    pub(super) fn note_exit(&mut self, exit: Exit) {
        if self.exits.len() >= MOST_EXITS {
            self.exits.remove(1);
        }
        self.exits.push(exit);
    }

    /// Its state at `now`; `in_flight` if a call of it has not ended.
    pub(super) fn verdict(&self, now: u64, in_flight: bool, limits: &Limits) -> State {
        let quiet = !in_flight && now >= self.ended.saturating_add(limits.quiet);
        if quiet && self.is_resolved() && self.is_complete() {
            return State::Ok;
        }
        let given_up = now >= self.began.saturating_add(limits.give_up);
        if given_up { State::Failed } else { State::Open }
    }

    /// Returns whether it can end without a further call.
    fn is_complete(&self) -> bool {
        match self.kind {
            Kind::Start => self.started > 0,
            Kind::Restart => {
                self.started > 0 || self.calls.iter().all(|c| c.method == Method::PullImage)
            }
            Kind::Stop => true,
        }
    }

    /// Its final state if another episode ends it now.
    pub(super) fn cut_short(&self) -> State {
        if self.is_complete() && self.is_resolved() {
            State::Ok
        } else {
            State::Failed
        }
    }

    /// Containers that exited successfully before the next one was created: init containers, which the CRI does not mark.
    fn waited_for(&self) -> impl Iterator<Item = &Exit> {
        let followed = |exit: &&Exit| {
            let creates =
                |c: &&EpisodeCall| c.method == Method::CreateContainer && c.began_us() >= exit.at;
            let mut creates = self.calls.iter().filter(creates);
            creates.any(|c| !exit.is_of(c) && c.container.as_ref().is_some_and(|c| c.attempt == 0))
        };
        let exits = self.exits.iter().filter(|exit| exit.is_good());
        exits
            .filter(move |_| self.kind != Kind::Stop)
            .filter(followed)
    }

    /// Returns whether a container of this name and attempt was started in it.
    pub(super) fn has_started(&self, name: &str, attempt: u32) -> bool {
        self.calls.iter().any(|c| {
            let container = c.container.as_deref();
            c.method == Method::StartContainer
                && container.is_some_and(|c| *c.name == *name && c.attempt == attempt)
        })
    }

    /// The exit of the last started container, if it had succeeded by then.
    pub(super) fn last_done(&self, by: u64) -> Option<&Exit> {
        let mut starts = self.calls.iter().rev();
        let last = starts.find(|c| c.method == Method::StartContainer)?;
        let name = last.container_name()?;
        let mut exits = self.exits.iter().rev();
        exits.find(|exit| *exit.container == *name && exit.is_good() && exit.at <= by)
    }

    /// Counts the time since then as waiting for this container.
    pub(super) fn wait_for(&mut self, exit: Exit, since: u64) {
        self.began = self.began.min(since);
        self.note_exit(exit);
    }

    /// Time per phase.
    pub(in crate::lifecycle) fn shares(&self) -> Shares {
        let mut intervals = Vec::with_capacity(self.calls.len());
        for call in &self.calls {
            let (begin, end) = (call.began_us(), call.end_us());
            let phase = EpisodePhase::of(call.method);
            intervals.push(Interval { begin, end, phase });
            let network = call.work.iter().filter(|s| s.is_network());
            intervals.extend(network.map(|seen| Interval {
                begin: seen.began.max(begin),
                end: seen.ended.min(end),
                phase: EpisodePhase::Network,
            }));
        }
        intervals.extend(self.waited_for().map(|exit| Interval {
            begin: exit.at.saturating_sub(exit.ran),
            end: exit.at,
            phase: EpisodePhase::InitContainer,
        }));
        let mut shares = timeline::divide(self.began, self.ended, &intervals);
        timeline::add_forgotten(&mut shares, &self.forgotten);
        shares
    }

    /// The containers that calls waited for, in order.
    pub(in crate::lifecycle) fn waits(&self) -> Vec<Wait<'_>> {
        let mut end = self.began;
        let mut waits = Vec::new();
        for (before, call) in self.calls.iter().enumerate() {
            if let Some(exit) = self.waited_in_gap(end, call) {
                let began = end.max(exit.at.saturating_sub(exit.ran));
                waits.push(Wait {
                    before,
                    began,
                    took: exit.at - began,
                    container: &exit.container,
                });
            }
            end = end.max(call.end_us());
        }
        waits
    }

    /// The init container that the call waited for, in a gap that begins at `from`: one that ran for at least half of the gap
    /// and exited successfully in it.
    fn waited_in_gap(&self, from: u64, call: &EpisodeCall) -> Option<&Exit> {
        let to = call.began_us();
        self.exits
            .iter()
            .filter(|exit| exit.is_good())
            .find(|exit| {
                let is_within = exit.at > from && exit.at <= to;
                let ran = exit
                    .at
                    .saturating_sub(from.max(exit.at.saturating_sub(exit.ran)));
                is_within && !exit.is_of(call) && 2 * ran >= to - from
            })
    }
}

/// An init container that a call waited for.
#[derive(Clone, Copy, Debug)]
pub(in crate::lifecycle) struct Wait<'a> {
    /// The index of the call in the episode.
    pub(in crate::lifecycle) before: usize,
    /// Begin of the wait, in microseconds since 1970.
    pub(in crate::lifecycle) began: u64,
    /// How long, in microseconds.
    pub(in crate::lifecycle) took: u64,
    pub(in crate::lifecycle) container: &'a str,
}
