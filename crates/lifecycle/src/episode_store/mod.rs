//! The episodes in memory, and the rules that form them from calls. Reads no clock: all times come from the calls and the given
//! `now`, so a replay of the journal yields the same episodes.

mod assign;
mod boot;
mod checkpoints;
mod deleted;
mod episode;
mod exits;
mod failing;
mod hooks;
mod init;
mod interventions;
mod kept;
mod kubelet;
mod moves;
mod node;
mod oom;
mod origin;
mod pulls;
mod requests;
mod room;
mod sandbox;
mod spans;
mod stops;
mod syncs;
#[cfg(test)]
mod tests;
mod times;
mod verdict;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use self::assign::Assignment;
use self::boot::RunsBeforeBoot;
pub(super) use self::checkpoints::{CheckpointRecord, CheckpointState};
pub(super) use self::episode::Episode;
use self::exits::KnownExits;
pub(super) use self::exits::{
    EXIT_FOLLOWS_OOM_WITHIN, ExitChange, ExitRecord, SIGKILL_EXIT_CODE, UNSEEN_EXIT_CODE,
};
pub(super) use self::failing::DueReport;
pub(super) use self::hooks::POST_START_FOLLOWS_WITHIN;
pub(super) use self::init::AwaitedContainers;
use self::init::KnownInitContainers;
pub(super) use self::interventions::InterventionKind;
use self::kubelet::KubeletWork;
pub(super) use self::oom::ContainerOomKills;
pub use self::sandbox::ReachedLimit;
pub(super) use self::sandbox::SandboxEnd;
use self::spans::PendingSpans;
use self::stops::StopRequestLog;
use super::episode_call::EpisodeCall;
use super::kubelet::syncs::KubeletSyncs;
use super::listed_pods::ListedPods;
use super::node::{NodeHistory, NodePrograms};
use super::texts::SharedTexts;
use super::usual::UsualDurations;
use super::view::EpisodeState;
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::UnixMicros;

/// Capacity of the store, and the times after which an episode is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreLimits {
    pub(super) episodes: usize,
    pub(super) quiet: Duration,
    pub(super) give_up: Duration,
}

/// The episodes in memory, and the state from which calls are assigned to them.
#[derive(Clone, Debug)]
pub(super) struct EpisodeStore {
    limits: StoreLimits,
    /// Boxed: the leaves of a map that only grows at its end stay half empty.
    episodes: BTreeMap<u64, Box<Episode>>,
    /// The numbers of the episodes of each pod uid, in order.
    pods: HashMap<Box<str>, Vec<u64>>,
    open: BTreeSet<u64>,
    next: u64,
    forgotten: u64,
    exits: KnownExits,
    work: KubeletWork,
    /// Calls before this time may have been missed.
    watches_since: UnixMicros,
    stop_requests: StopRequestLog,
    init_containers: KnownInitContainers,
    pending: PendingSpans,
    texts: SharedTexts,
    syncs: KubeletSyncs,
    node: NodeHistory,
    booted: RunsBeforeBoot,
    /// Pods without an episode.
    pub(super) listed: ListedPods,
    /// Episodes closed since the last [`EpisodeStore::take_closed`].
    closed: Vec<u64>,
    /// Episodes evicted since the last [`EpisodeStore::take_unreported`] without being reported.
    unreported: usize,
    /// Usual durations on this node.
    pub(super) usual: UsualDurations,
    /// The programs of this node.
    pub(super) programs: NodePrograms,
}

/// The effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEffect {
    /// The call is part of the episode with this number.
    PartOf(u64),
    /// The call is part of no episode, but closed one or added a fact to it.
    Noticed,
    /// The call is part of no episode.
    Nothing,
}

impl EpisodeStore {
    /// The limits of the store, and the duration from which an episode is slow.
    pub(super) fn settings(&self) -> (StoreLimits, Duration) {
        (self.limits, self.usual.slow())
    }

    /// An empty store.
    pub(super) fn new(limits: StoreLimits, usual: UsualDurations) -> Self {
        Self {
            limits,
            episodes: BTreeMap::new(),
            pods: HashMap::new(),
            open: BTreeSet::new(),
            next: 0,
            forgotten: 0,
            exits: KnownExits::default(),
            work: KubeletWork::default(),
            watches_since: UnixMicros::EPOCH,
            stop_requests: StopRequestLog::default(),
            init_containers: KnownInitContainers::default(),
            pending: PendingSpans::default(),
            texts: SharedTexts::default(),
            syncs: KubeletSyncs::default(),
            node: NodeHistory::default(),
            booted: RunsBeforeBoot::default(),
            listed: ListedPods::default(),
            closed: Vec::new(),
            unreported: 0,
            usual,
            programs: NodePrograms::default(),
        }
    }

    /// Applies a call. Calls must be applied in the order in which they ended.
    pub(super) fn apply(&mut self, mut call: EpisodeCall) -> CallEffect {
        self.identify(&mut call);
        self.judge_origin(&mut call);
        self.listed.note_call(&call);
        self.pending.attach_to(&mut call);
        if call.method == Method::UpdateContainerResources {
            let is_known = self.note_intervention(&call);
            return match self.update_limits(&call) {
                CallEffect::Nothing if is_known => CallEffect::Noticed,
                effect => effect,
            };
        }
        if call.method.checkpoints() {
            return self.note_checkpoint(&call);
        }
        call.share_texts(&mut self.texts);
        self.note_work(&call);
        if call.method == Method::ExecSync {
            return self.apply_hook(call);
        }
        let Some(pod) = call.pod.clone() else {
            return CallEffect::Nothing;
        };
        self.note_stop_request(&pod, &call);
        let pull = self.pull_before(&pod, &call);
        let noticed = self.close_ended_by(&pod, &call);
        let number = match self.assign(&call) {
            Assignment::In(number) => {
                self.resume(number, &call);
                number
            }
            Assignment::New(kind) => self.open(kind, &pod, &call),
            Assignment::Nowhere => {
                let is_news = self.note_removed(&pod, &call) | self.note_intervention(&call);
                return if noticed || is_news {
                    CallEffect::Noticed
                } else {
                    CallEffect::Nothing
                };
            }
        };
        if let (Some(pull), Some(episode)) = (pull, self.episodes.get_mut(&number)) {
            episode.add(pull);
        }
        self.claim_hooks(number, &call);
        self.claim_kill(number, &call);
        self.claim_pull(number, &pod, &call);
        self.count_wait(number, &pod, &call);
        self.learn_init(number, &pod, &call);
        let in_restart = self
            .episodes
            .get(&number)
            .is_some_and(|t| t.kind == Kind::Restart);
        if in_restart && call.method == Method::StartContainer && call.is_good() {
            self.resolve_in_start(&pod, &call);
            self.resolve_pulls_in_start(&pod, &call);
        }
        let Some(episode) = self.episodes.get_mut(&number) else {
            return CallEffect::Nothing;
        };
        let ends = matches!(
            call.method,
            Method::StopPodSandbox | Method::RemovePodSandbox
        );
        let is_end = ends && call.is_good();
        if !episode.has(&call) {
            episode.add(call);
        }
        // Later calls are the kubelet's routine clean-up, minutes later.
        if is_end && episode.kind == Kind::Stop && !episode.only_cleans {
            self.close(number, EpisodeState::Ok);
        }
        CallEffect::PartOf(number)
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
            let record = call.record_mut();
            record.pod = Some(Arc::clone(&episode.pod));
            let container = record.container.take();
            record.container = container.or_else(|| earlier.container.clone());
            let sandbox_id = record.sandbox_id.take();
            record.sandbox_id = sandbox_id.or_else(|| episode.sandbox_id.clone());
        } else if let Some(id) = &call.sandbox_id {
            let mut episodes = self.episodes.values().rev();
            if let Some(episode) = episodes.find(|other| other.sandbox_id.as_ref() == Some(id)) {
                call.record_mut().pod = Some(Arc::clone(&episode.pod));
            }
        }
    }

    /// Closes the episodes that cannot continue after this call. Returns whether there was one.
    fn close_ended_by(&mut self, pod: &PodIdentity, call: &EpisodeCall) -> bool {
        let ended: Vec<_> = self
            .episodes_of(pod)
            .filter(|episode| episode.is_open() && is_ended_by(episode, pod, call))
            .map(|episode| (episode.number, episode.cut_short()))
            .collect();
        let noticed = !ended.is_empty();
        for (number, state) in ended {
            let episode = self.episodes.get_mut(&number);
            if let Some(start) = episode.filter(|t| t.lacks_sandbox() && t.failures > 0) {
                // The kubelet also stops what a failed try left behind, before the next one.
                start.last_cleanup_end = Some(call.ended_at());
                continue;
            }
            self.close(number, state);
            if let Some(episode) = self.episodes.get_mut(&number) {
                episode.ended_by_other = true;
            }
        }
        noticed
    }

    fn open(&mut self, kind: Kind, pod: &Arc<PodIdentity>, first: &EpisodeCall) -> u64 {
        self.make_room();
        let number = self.next;
        self.next += 1;
        let mut episode = Episode::open(number, kind, Arc::clone(pod), first);
        self.add_node_facts(&mut episode, first);
        self.add_boot_fact(&mut episode, first);
        episode.only_cleans = kind == Kind::Stop && self.is_stopped(pod, first);
        self.add_syncs(&mut episode, first);
        self.episodes.insert(number, Box::new(episode));
        self.pods.entry(pod.uid.clone()).or_default().push(number);
        self.open.insert(number);
        number
    }

    /// Returns whether the sandbox of this call was stopped before, or never made.
    pub(super) fn is_stopped(&self, pod: &PodIdentity, call: &EpisodeCall) -> bool {
        let sandbox = call.sandbox_id.as_deref();
        let mut episodes = self.episodes_of(pod);
        episodes.any(|t| {
            (t.sandbox_stopped || t.last_cleanup_end.is_some()) && t.is_of_sandbox(pod, sandbox)
        })
    }

    /// Opens an episode again if this call continues it, and takes over the attempt of a new sandbox.
    fn resume(&mut self, number: u64, call: &EpisodeCall) {
        if let Some(episode) = self.episodes.get_mut(&number)
            && !episode.is_open()
        {
            episode.state = EpisodeState::Open;
            episode.deleted = None;
            episode.give_up_from = call.began_at();
            self.open.insert(number);
        }
        // A start whose sandbox is made with a later attempt is that sandbox's.
        if let (Some(episode), Some(pod)) = (self.episodes.get_mut(&number), &call.pod)
            && call.method.makes_sandbox()
            && episode.pod.attempt != pod.attempt
        {
            episode.pod = Arc::clone(pod);
            episode.last_cleanup_end = None;
        }
    }

    /// Closes the episodes that a quiet period or their age has ended. `in_flight`: calls that have not ended.
    pub(super) fn tick(&mut self, now: UnixMicros, in_flight: &[EpisodeCall]) {
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
            if state != EpisodeState::Open {
                self.close(number, state);
            }
        }
    }

    /// Closes an open episode.
    pub(super) fn close(&mut self, number: u64, state: EpisodeState) {
        if let Some(episode) = self.episodes.get_mut(&number)
            && self.open.remove(&number)
        {
            episode.state = state;
            episode.closings += 1;
            episode.calls.shrink_to_fit();
            self.closed.push(number);
            self.freeze_starts(number);
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
        self.episodes.get(&number).map(AsRef::as_ref)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Episode> {
        self.episodes.get_mut(&number).map(AsMut::as_mut)
    }

    /// All episodes, in the order in which they were opened.
    pub(super) fn episodes(&self) -> impl Iterator<Item = &Episode> {
        self.episodes.values().map(AsRef::as_ref)
    }

    /// The uids of the pods with episodes.
    pub(super) fn uids(&self) -> impl Iterator<Item = &Box<str>> {
        self.pods.keys()
    }

    /// Since when every call was seen.
    pub(super) fn watched_since(&self) -> UnixMicros {
        self.watches_since
    }

    /// The open episodes.
    pub(super) fn open_episodes(&self) -> impl Iterator<Item = &Episode> {
        self.open.iter().filter_map(|number| self.get(*number))
    }

    /// The episodes of a pod, the newest first.
    pub(super) fn episodes_of<'a>(
        &'a self,
        pod: &'a PodIdentity,
    ) -> impl Iterator<Item = &'a Episode> + Clone + use<'a> {
        let numbers = self.pods.get(&pod.uid).into_iter().flatten().rev();
        numbers
            .filter_map(|number| self.get(*number))
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

    /// Episodes evicted so far.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

/// Returns whether an episode of this pod cannot continue after the call.
fn is_ended_by(episode: &Episode, pod: &PodIdentity, call: &EpisodeCall) -> bool {
    let is_up = episode.kind != Kind::Stop;
    match call.method {
        Method::RunPodSandbox | Method::RestorePod => {
            let is_other = episode.pod.attempt != pod.attempt || episode.started > 0;
            is_up && is_other && !episode.lacks_sandbox()
        }
        Method::StopPodSandbox | Method::RemovePodSandbox => {
            is_up && episode.is_of_sandbox(pod, call.sandbox_id.as_deref())
        }
        Method::CreateContainer => is_followed_by(episode, call),
        _ => false,
    }
}

/// Returns whether the call creates the next attempt of a restart's container.
fn is_followed_by(restart: &Episode, call: &EpisodeCall) -> bool {
    let (Some(ours), Some(new)) = (&restart.container, &call.container) else {
        return false;
    };
    restart.kind == Kind::Restart
        && ours.name == new.name
        && ours.attempt < new.attempt
        && !restart.is_unresolved(&new.name)
}
