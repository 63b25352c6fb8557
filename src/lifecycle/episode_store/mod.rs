//! The episodes in memory, and the rules that form them from calls. Reads no clock: time is that of the calls and the given
//! `now`, so a replay of the journal yields the same episodes.

mod assign;
mod episode;
mod exits;
mod kubelet;
mod node;
mod origin;
mod spans;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use self::assign::Assignment;
pub(super) use self::episode::Episode;
pub(super) use self::exits::Exit;
use self::exits::KnownExits;
use self::kubelet::KubeletWork;
use self::spans::PendingSpans;
use super::episode_call::EpisodeCall;
use super::node::NodeHistory;
use super::usual::Usual;
use super::view::State;
use crate::call::episode::Kind;
use crate::cri::Method;
use crate::cri::subject::PodIdentity;

/// Capacity, and when an episode is over. Times in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) episodes: usize,
    pub(super) quiet: u64,
    pub(super) give_up: u64,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub(super) struct EpisodeStore {
    limits: Limits,
    episodes: BTreeMap<u64, Episode>,
    /// The numbers of the episodes of each pod uid, in order.
    pods: HashMap<Box<str>, Vec<u64>>,
    open: BTreeSet<u64>,
    next: u64,
    forgotten: u64,
    exits: KnownExits,
    work: KubeletWork,
    /// Calls before this time may have been missed, in microseconds since 1970.
    watches_since: u64,
    pending: PendingSpans,
    node: NodeHistory,
    /// Episodes closed since the last [`EpisodeStore::take_closed`].
    closed: Vec<u64>,
    /// Episodes evicted since the last [`EpisodeStore::take_unreported`] without being reported.
    unreported: usize,
    /// What is usual on this node.
    pub(super) usual: Usual,
}

/// The effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Applied {
    /// It is part of the episode with this number.
    Part(u64),
    /// It is part of none, but closed one.
    Noticed,
    /// It is part of none.
    Nothing,
}

impl EpisodeStore {
    /// An empty store.
    pub(super) fn new(limits: Limits, usual: Usual) -> Self {
        Self {
            limits,
            episodes: BTreeMap::new(),
            pods: HashMap::new(),
            open: BTreeSet::new(),
            next: 0,
            forgotten: 0,
            exits: KnownExits::default(),
            work: KubeletWork::default(),
            watches_since: 0,
            pending: PendingSpans::default(),
            node: NodeHistory::default(),
            closed: Vec::new(),
            unreported: 0,
            usual,
        }
    }

    /// Applies a call. Calls must be applied in the order in which they ended.
    pub(super) fn apply(&mut self, mut call: EpisodeCall) -> Applied {
        self.identify(&mut call);
        self.judge_origin(&mut call);
        self.pending.attach_to(&mut call);
        self.note_work(&call);
        if call.method == Method::ExecSync {
            return self.apply_hook(call);
        }
        let Some(pod) = call.pod.clone() else {
            return Applied::Nothing;
        };
        let before = self.closed.len();
        let pull = self.pull_before(&pod, &call);
        self.close_what_it_ends(&pod, &call);
        let number = match self.assign(&call) {
            Assignment::In(number) => number,
            Assignment::New(kind) => self.open(kind, &pod, &call),
            Assignment::Nowhere if self.closed.len() > before => return Applied::Noticed,
            Assignment::Nowhere => return Applied::Nothing,
        };
        if let (Some(pull), Some(episode)) = (pull, self.episodes.get_mut(&number)) {
            episode.add(pull);
        }
        self.claim_hooks(number, &call);
        self.claim_kill(number, &call);
        self.count_wait(number, &pod, &call);
        let in_restart = self
            .episodes
            .get(&number)
            .is_some_and(|t| t.kind == Kind::Restart);
        if in_restart && call.method == Method::StartContainer && call.is_good() {
            self.resolve_in_start(&pod, &call);
        }
        if let Some(episode) = self.episodes.get_mut(&number)
            && !episode.has(&call)
        {
            episode.add(call);
        }
        Applied::Part(number)
    }

    /// Completes the identity of a call from earlier calls, where the pod index lacked it.
    pub(super) fn identify(&self, call: &mut EpisodeCall) {
        if call.pod.is_some() {
            return;
        }
        let by_container = call.container_id.as_deref().and_then(|id| {
            let mut episodes = self.episodes.values().rev();
            episodes.find_map(|episode| Some((episode, episode.call_of_container(id)?)))
        });
        if let Some((episode, earlier)) = by_container {
            call.pod = Some(Arc::clone(&episode.pod));
            call.container = call.container.take().or_else(|| earlier.container.clone());
            call.sandbox_id = call
                .sandbox_id
                .take()
                .or_else(|| episode.sandbox_id.clone());
        } else if let Some(id) = &call.sandbox_id {
            let mut episodes = self.episodes.values().rev();
            let episode = episodes.find(|episode| episode.sandbox_id.as_ref() == Some(id));
            call.pod = episode.map(|episode| Arc::clone(&episode.pod));
        }
    }

    /// Closes the episodes that cannot continue after this call.
    fn close_what_it_ends(&mut self, pod: &PodIdentity, call: &EpisodeCall) {
        let ends = |episode: &Episode| {
            let is_up = episode.kind != Kind::Stop;
            match call.method {
                Method::RunPodSandbox => {
                    is_up && (episode.pod.attempt != pod.attempt || episode.started > 0)
                }
                Method::StopPodSandbox | Method::RemovePodSandbox => {
                    is_up && episode.is_of_sandbox(pod, call.sandbox_id.as_deref())
                }
                Method::CreateContainer => self.is_followed_by(episode, call),
                _ => false,
            }
        };
        let ended: Vec<_> = self
            .of_pod(pod)
            .filter(|episode| episode.is_open() && ends(episode))
            .map(|episode| (episode.number, episode.cut_short()))
            .collect();
        for (number, state) in ended {
            self.close(number, state);
        }
    }

    /// Returns whether the call creates the next attempt of this restart's container.
    fn is_followed_by(&self, episode: &Episode, call: &EpisodeCall) -> bool {
        let (Some(ours), Some(new)) = (&episode.container, &call.container) else {
            return false;
        };
        episode.kind == Kind::Restart
            && ours.name == new.name
            && ours.attempt < new.attempt
            && !episode.is_unresolved(&new.name)
    }

    fn open(&mut self, kind: Kind, pod: &Arc<PodIdentity>, first: &EpisodeCall) -> u64 {
        self.make_room();
        let number = self.next;
        self.next += 1;
        let mut episode = Episode::open(number, kind, Arc::clone(pod), first);
        self.tell_of_node(&mut episode, first);
        self.episodes.insert(number, episode);
        self.pods.entry(pod.uid.clone()).or_default().push(number);
        self.open.insert(number);
        number
    }

    /// A container created for the first time after the start was closed may have waited for a long init container. Its
    /// episode then begins with that container's run.
    fn count_wait(&mut self, number: u64, pod: &PodIdentity, call: &EpisodeCall) {
        let is_first = call.container.as_ref().is_some_and(|c| c.attempt == 0);
        let is_late = |t: &&Episode| t.kind == Kind::Restart && t.exits.is_empty();
        let episode = self.episodes.get(&number).filter(is_late);
        let Some(episode) = episode.filter(|_| is_first && call.method == Method::CreateContainer)
        else {
            return;
        };
        let before = |t: &&Episode| t.kind != Kind::Stop && t.number < number;
        let before = self.of_pod(pod).find(before);
        let done = before.and_then(|before| Some((before.last_done(episode.began)?, before.ended)));
        let Some((exit, since)) = done.filter(|(exit, _)| !exit.is_of(call)) else {
            return;
        };
        let exit = exit.clone();
        if let Some(episode) = self.episodes.get_mut(&number) {
            episode.wait_for(exit, since);
        }
    }

    /// Evicts the oldest closed episode, else the oldest.
    fn make_room(&mut self) {
        while self.episodes.len() >= self.limits.episodes.max(1) {
            let mut numbers = self.episodes.keys();
            let closed = numbers.find(|number| !self.open.contains(number));
            let Some(number) = closed.or_else(|| self.episodes.keys().next()).copied() else {
                return;
            };
            let closed = self.closed.len();
            self.closed.retain(|n| *n != number);
            if self.open.contains(&number) || self.closed.len() < closed {
                self.unreported += 1;
            }
            self.remove(number);
            self.forgotten += 1;
        }
    }

    fn remove(&mut self, number: u64) {
        self.open.remove(&number);
        let Some(episode) = self.episodes.remove(&number) else {
            return;
        };
        if let Some(numbers) = self.pods.get_mut(&episode.pod.uid) {
            numbers.retain(|n| *n != number);
            if numbers.is_empty() {
                self.pods.remove(&episode.pod.uid);
            }
        }
    }

    /// The pull just before a container is recreated belongs to the restart, even if it came while the start of the pod, or
    /// the previous restart, was still open. Moves it from there.
    fn pull_before(&mut self, pod: &PodIdentity, call: &EpisodeCall) -> Option<EpisodeCall> {
        let creates = call.method == Method::CreateContainer;
        if !creates || self.assign(call) != Assignment::New(Kind::Restart) {
            return None;
        }
        let ends_with_pull = |episode: &&Episode| {
            let last = episode.calls.back();
            let pulled = last.is_some_and(|c| c.method == Method::PullImage && c.is_good());
            episode.is_open() && episode.kind != Kind::Stop && episode.calls.len() > 1 && pulled
        };
        let number = self.of_pod(pod).find(ends_with_pull)?.number;
        let episode = self.episodes.get_mut(&number)?;
        let (seq, began) = episode.calls.back().map(|c| (c.seq, c.began))?;
        let mut pulls = episode.take_calls(|c| c.seq == seq && c.began == began);
        pulls.pop()
    }

    /// A container with a failed probe is stopped and recreated: that is one restart, so the stop is moved to it.
    fn claim_kill(&mut self, number: u64, call: &EpisodeCall) {
        let Some(name) = call.container_name() else {
            return;
        };
        let Some(pod) = call.pod.as_deref() else {
            return;
        };
        let is_restart = self
            .episodes
            .get(&number)
            .is_some_and(|t| t.kind == Kind::Restart);
        if !is_restart || call.method != Method::CreateContainer {
            return;
        }
        let is_kill = |t: &Episode| {
            t.is_open() && t.is_tentative() && t.is_of_sandbox(pod, call.sandbox_id.as_deref())
        };
        let Some(stop) = self.of_pod(pod).find(|t| is_kill(t)).map(|t| t.number) else {
            return;
        };
        let Some(episode) = self.episodes.get_mut(&stop) else {
            return;
        };
        let kills = episode.take_calls(|c| c.container_name() == Some(name));
        if episode.calls.is_empty() {
            self.remove(stop);
        }
        if let Some(restart) = self.episodes.get_mut(&number) {
            kills.into_iter().for_each(|kill| restart.add(kill));
        }
    }

    /// A restart resolves failures of the start.
    fn resolve_in_start(&mut self, pod: &PodIdentity, call: &EpisodeCall) {
        let start = self
            .of_pod(pod)
            .find(|t| t.is_open() && t.kind == Kind::Start);
        let Some(number) = start.map(|t| t.number) else {
            return;
        };
        if let (Some(episode), Some(name)) = (self.episodes.get_mut(&number), call.container_name())
        {
            episode.resolve_container(name);
        }
    }

    /// Closes the episodes that a quiet period or their age has ended. `in_flight`: calls that have not ended.
    pub(super) fn tick(&mut self, now: u64, in_flight: &[EpisodeCall]) {
        let busy: HashSet<_> = in_flight
            .iter()
            .filter_map(|call| {
                let mut call = call.clone();
                self.identify(&mut call);
                match self.assign(&call) {
                    Assignment::In(number) => Some(number),
                    Assignment::New(_) | Assignment::Nowhere => None,
                }
            })
            .collect();
        let verdicts: Vec<_> = self
            .open
            .iter()
            .filter_map(|number| Some((*number, self.episodes.get(number)?)))
            .map(|(n, episode)| (n, episode.verdict(now, busy.contains(&n), &self.limits)))
            .collect();
        for (number, state) in verdicts {
            if state != State::Open {
                self.close(number, state);
            }
        }
    }

    /// Closes an open episode.
    pub(super) fn close(&mut self, number: u64, state: State) {
        if let Some(episode) = self.episodes.get_mut(&number)
            && self.open.remove(&number)
        {
            episode.state = state;
            episode.calls.shrink_to_fit();
            self.closed.push(number);
        }
    }

    /// The episodes closed since the last call, in that order.
    pub(super) fn take_closed(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.closed)
    }

    /// The number of episodes evicted unreported since the last call.
    pub(super) fn take_unreported(&mut self) -> usize {
        std::mem::take(&mut self.unreported)
    }

    /// An episode.
    pub(super) fn get(&self, number: u64) -> Option<&Episode> {
        self.episodes.get(&number)
    }

    /// All episodes, in the order in which they were opened.
    pub(super) fn episodes(&self) -> impl Iterator<Item = &Episode> {
        self.episodes.values()
    }

    /// The open episodes.
    pub(super) fn open_episodes(&self) -> impl Iterator<Item = &Episode> {
        self.open
            .iter()
            .filter_map(|number| self.episodes.get(number))
    }

    /// The episodes of a pod, the newest first.
    pub(super) fn of_pod<'a>(
        &'a self,
        pod: &'a PodIdentity,
    ) -> impl Iterator<Item = &'a Episode> + use<'a> {
        let numbers = self.pods.get(&pod.uid).into_iter().flatten().rev();
        numbers
            .filter_map(|number| self.episodes.get(number))
            .filter(|episode| {
                episode.pod.name == pod.name && episode.pod.namespace == pod.namespace
            })
    }

    /// The pod of a call in flight.
    pub(super) fn pod_of(&self, call: &EpisodeCall) -> Option<Arc<PodIdentity>> {
        let mut call = call.clone();
        self.identify(&mut call);
        call.pod.clone()
    }

    /// A store with this pod only, to which calls in flight can be applied.
    pub(super) fn excerpt(&self, pod: &PodIdentity) -> Self {
        let limits = Limits {
            episodes: usize::MAX,
            ..self.limits
        };
        // Its episodes are shown with what the whole store knows.
        let mut store = Self::new(limits, Usual::default());
        store.next = self.next;
        store.node = self.node.clone();
        store.watches_since = self.watches_since;
        for episode in self.episodes_of(pod) {
            let number = episode.number;
            if episode.is_open() {
                store.open.insert(number);
            }
            store.pods.entry(pod.uid.clone()).or_default().push(number);
            store.episodes.insert(number, episode.clone());
        }
        store
    }

    fn episodes_of<'a>(&'a self, pod: &'a PodIdentity) -> Vec<&'a Episode> {
        let mut episodes: Vec<_> = self.of_pod(pod).collect();
        episodes.reverse();
        episodes
    }

    /// Episodes evicted so far.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }
}
