//! One episode: its calls, what failed in it and is not yet made good, and whether it is over.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Limits;
use super::exits::Exit;
use crate::call::CallState;
use crate::call::episode::{Ids, Kind};
use crate::cri::Method;
use crate::cri::subject::{ContainerIdentity, PodIdentity};
use crate::lifecycle::episode_call::{EpisodeCall, millis};
use crate::lifecycle::timeline::{self, EpisodePhase, Interval, Shares};
use crate::lifecycle::view::State;

/// Most calls of an episode that are remembered one by one: the first ones, which tell how it began, and the newest.
pub(super) const MOST_CALLS: usize = 128;
const FIRST_CALLS: usize = 32;
/// Most failures of different things that are kept apart.
const MOST_MATTERS: usize = 16;
/// Most ends of containers per episode.
const MOST_EXITS: usize = 16;

/// An episode.
#[derive(Clone, Debug)]
pub(in crate::lifecycle) struct Episode {
    /// Counts episodes in the order in which they were opened.
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
    /// StartContainer calls that ended well.
    pub(in crate::lifecycle) started: u32,
    /// What failed and has not succeeded since.
    open_matters: Vec<(EpisodePhase, Box<str>)>,
    pub(in crate::lifecycle) exits: Vec<Exit>,
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
            open_matters: Vec::new(),
            exits: Vec::new(),
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

    /// Whether calls may still come.
    pub(in crate::lifecycle) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Its trace. What starts for the first time in a pod that is up is part of the trace of the pod's start, as are its
    /// calls, but with a root of its own.
    pub(in crate::lifecycle) fn ids(&self) -> Ids {
        let attempt = self.pod.attempt;
        // A person's pod may have no uid; then nothing but its name tells it from others.
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

    /// Whether it is about this sandbox, as far as both are known.
    pub(super) fn is_of_sandbox(&self, pod: &PodIdentity, sandbox_id: Option<&str>) -> bool {
        match (&self.sandbox_id, sandbox_id) {
            (Some(own), Some(other)) => **own == *other,
            _ => self.pod.attempt == pod.attempt,
        }
    }

    /// Whether a call of this episode named the container with this id.
    pub(super) fn call_of_container(&self, id: &str) -> Option<&EpisodeCall> {
        let mut calls = self.calls.iter().rev();
        calls.find(|call| call.container_id.as_deref() == Some(id))
    }

    /// Whether the call is there already: one that ended between two looks at what is in flight.
    pub(super) fn has(&self, call: &EpisodeCall) -> bool {
        let mut calls = self.calls.iter().rev();
        calls.any(|c| c.seq == call.seq && c.began == call.began)
    }

    /// Whether something about this container, or this image, failed and has not succeeded since.
    pub(in crate::lifecycle) fn is_unresolved(&self, matter: &str) -> bool {
        self.open_matters.iter().any(|(_, m)| **m == *matter)
    }

    /// Whether nothing that failed is left.
    pub(in crate::lifecycle) fn is_resolved(&self) -> bool {
        self.open_matters.is_empty()
    }

    /// Whether it only stopped containers, which may be because they are to start again.
    pub(in crate::lifecycle) fn is_tentative(&self) -> bool {
        let stops = |call: &EpisodeCall| call.method == Method::StopContainer;
        self.kind == Kind::Stop && self.calls.iter().all(stops)
    }

    /// Takes a call in.
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

    /// Gives up the calls for which `wanted` says so, because they belong to another episode after all.
    pub(super) fn give_away(&mut self, wanted: impl Fn(&EpisodeCall) -> bool) -> Vec<EpisodeCall> {
        // What was counted of calls that are no longer there could not be counted again.
        if self.calls_forgotten > 0 {
            return Vec::new();
        }
        let (given, kept): (Vec<_>, Vec<_>) = self.calls.drain(..).partition(|c| wanted(c));
        (self.retries, self.failures, self.started) = (0, 0, 0);
        self.open_matters.clear();
        self.pulled = false;
        if let Some(first) = kept.first() {
            (self.began, self.ended) = (first.began_us(), first.began_us());
        }
        for call in kept {
            self.add(call);
        }
        given
    }

    /// One text instead of many that are the same: after a restart, and of errors that come again and again.
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
        let matter = (EpisodePhase::of(call.method), Box::from(call.target()));
        if self.open_matters.len() < MOST_MATTERS && !self.open_matters.contains(&matter) {
            self.open_matters.push(matter);
        }
    }

    /// A container that was started makes good whatever failed of it before.
    fn resolve(&mut self, call: &EpisodeCall) {
        let phase = EpisodePhase::of(call.method);
        self.open_matters.retain(|(failed, matter)| {
            let same_call = *failed == phase && **matter == *call.target();
            let started = phase == EpisodePhase::ContainerStart
                && matches!(
                    failed,
                    EpisodePhase::ContainerCreate | EpisodePhase::ContainerStart
                )
                && **matter == *call.target();
            !same_call && !started
        });
    }

    /// What failed of a container was made good by another episode.
    pub(super) fn resolve_container(&mut self, name: &str) {
        self.open_matters.retain(|(failed, matter)| {
            let of_container = matches!(
                failed,
                EpisodePhase::ContainerCreate | EpisodePhase::ContainerStart
            );
            !(of_container && **matter == *name)
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

    /// Notes the end of one of its containers; the first and the newest are kept.
    pub(super) fn note_exit(&mut self, exit: Exit) {
        if self.exits.len() >= MOST_EXITS {
            self.exits.remove(1);
        }
        self.exits.push(exit);
    }

    /// How it stands at `now`, `in_flight` being whether a call of it is. `Open` if it goes on.
    pub(super) fn verdict(&self, now: u64, in_flight: bool, limits: &Limits) -> State {
        let quiet = !in_flight && now >= self.ended.saturating_add(limits.quiet);
        if quiet && self.is_resolved() && self.is_complete() {
            return State::Ok;
        }
        let given_up = now >= self.began.saturating_add(limits.give_up);
        if given_up { State::Failed } else { State::Open }
    }

    /// Whether it has what an episode of its kind must have before silence can end it.
    fn is_complete(&self) -> bool {
        match self.kind {
            Kind::Start => self.started > 0,
            Kind::Restart => {
                self.started > 0 || self.calls.iter().all(|c| c.method == Method::PullImage)
            }
            Kind::Stop => true,
        }
    }

    /// How it ends if something else ends it now.
    pub(super) fn cut_short(&self) -> State {
        if self.is_complete() && self.is_resolved() {
            State::Ok
        } else {
            State::Failed
        }
    }

    /// Containers that had done their work before the pod went on. That is what init containers do; nothing in the CRI
    /// says which they are.
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

    /// Whether a container of this name and number was started in it.
    pub(super) fn has_started(&self, name: &str, attempt: u32) -> bool {
        self.calls.iter().any(|c| {
            let container = c.container.as_deref();
            c.method == Method::StartContainer
                && container.is_some_and(|c| *c.name == *name && c.attempt == attempt)
        })
    }

    /// The container that was started last, if it had done its work by then.
    pub(super) fn last_done(&self, by: u64) -> Option<&Exit> {
        let mut starts = self.calls.iter().rev();
        let last = starts.find(|c| c.method == Method::StartContainer)?;
        let name = last.container_name()?;
        let mut exits = self.exits.iter().rev();
        exits.find(|exit| *exit.container == *name && exit.is_good() && exit.at <= by)
    }

    /// It waited for this container, from then on.
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

    /// The container that the call waited for, behind a gap that begins at `from`: one that ran for at least half of the
    /// gap, did its work, and ended in it. An init container, that is.
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

/// A container that had to do its work before a call was made.
#[derive(Clone, Copy, Debug)]
pub(in crate::lifecycle) struct Wait<'a> {
    /// The place of the call among those of the episode.
    pub(in crate::lifecycle) before: usize,
    /// From when on nothing else went on, in microseconds since 1970.
    pub(in crate::lifecycle) began: u64,
    /// How long, in microseconds.
    pub(in crate::lifecycle) took: u64,
    pub(in crate::lifecycle) container: &'a str,
}
