//! All stories of this node, for those who read them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::diagnosis;
use super::episode_call::EpisodeCall;
use super::episode_store::{Episode, EpisodeStore, Limits};
use super::process_scanner::Observations;
use super::sessions::Sessions;
use super::view::{self, OpenSession, PodStory, Recent};
use crate::call::Call;
use crate::call::episode::{Kind, is_told};
use crate::call::times::{micros_of, unix_micros};
use crate::config;
use crate::cri::subject::PodIdentity;

/// The headline of a pod of which only sessions were seen.
const NO_EPISODE: &str = "no start, restart or stop of this pod was seen";

/// The episodes that are remembered. Shared by the aggregator, who writes, and the pages, who read; both live on the side
/// thread.
#[derive(Debug)]
pub struct Stories {
    pub(super) store: Mutex<EpisodeStore>,
    observations: Arc<Observations>,
    sessions: Mutex<Sessions>,
}

impl Stories {
    /// No stories yet. Of calls in flight is shown what `observations` has of them.
    pub fn new(settings: &config::Story, observations: Arc<Observations>) -> Self {
        let limits = Limits {
            episodes: settings.episodes,
            quiet: micros_of(settings.quiet),
            give_up: micros_of(settings.give_up),
        };
        Self {
            store: Mutex::new(EpisodeStore::new(limits)),
            observations,
            sessions: Mutex::default(),
        }
    }

    pub(super) fn store(&self) -> MutexGuard<'_, EpisodeStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn observations(&self) -> &Observations {
        &self.observations
    }

    /// Recent episodes, the newest first, without their calls. Calls in flight count to the episodes they belong to.
    pub fn recent(&self, in_flight: &[Arc<Call>]) -> Recent {
        let now = unix_micros(SystemTime::now());
        let mut episodes = self.episodes(in_flight, now, |_| true);
        episodes.sort_by_key(|episode| std::cmp::Reverse(episode.began_unix_us));
        for episode in &mut episodes {
            episode.calls = Vec::new();
        }
        Recent {
            now_unix_us: now,
            episodes,
            forgotten: self.store().forgotten(),
        }
    }

    /// All that is remembered of the pods of this name; `None` if there is nothing.
    pub fn of_pod(&self, namespace: &str, name: &str, in_flight: &[Arc<Call>]) -> Option<PodStory> {
        let now = unix_micros(SystemTime::now());
        let is_meant = |pod: &PodIdentity| *pod.namespace == *namespace && *pod.name == *name;
        let mut episodes = self.episodes(in_flight, now, is_meant);
        let sessions = self.sessions().of_pod(is_meant);
        if episodes.is_empty() && sessions.is_empty() {
            return None;
        }
        episodes.sort_by_key(|episode| episode.began_unix_us);
        Some(PodStory {
            now_unix_us: now,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            headline: headline(&episodes, now),
            episodes,
            sessions,
        })
    }

    /// The episodes of the pods that are meant, as they are shown, and with what is in flight.
    fn episodes(
        &self,
        in_flight: &[Arc<Call>],
        now: u64,
        is_meant: impl Fn(&PodIdentity) -> bool,
    ) -> Vec<view::Episode> {
        let calls = self.told(in_flight);
        let mut episodes: Vec<_> = {
            let store = self.store();
            let touched = touched(&store, calls);
            store
                .episodes()
                .filter(|episode| !touched.iter().any(|(pod, _)| is_same(pod, &episode.pod)))
                .chain(touched.iter().flat_map(|(_, store)| store.episodes()))
                .filter(|episode| is_meant(&episode.pod))
                .map(|episode| episode.view(now))
                .collect()
        };
        diagnosis::mark_crash_loops(&mut episodes, now);
        episodes
    }

    /// Sessions of exec, attach and port-forward that are open, the oldest first.
    pub fn open_sessions(&self) -> Vec<OpenSession> {
        self.sessions().open()
    }

    /// The calls in flight that make episodes.
    pub(super) fn told(&self, in_flight: &[Arc<Call>]) -> Vec<EpisodeCall> {
        let told = in_flight.iter().filter(|call| is_told(call.method));
        told.map(|call| EpisodeCall::in_flight(call, self.observations.of(call.seq)))
            .collect()
    }

    /// How many episodes are open, by kind.
    pub(super) fn open(&self) -> BTreeMap<&'static str, usize> {
        self.count(|episode| episode.is_open())
    }

    /// How many episodes are remembered, by kind.
    pub(super) fn remembered(&self) -> BTreeMap<&'static str, usize> {
        self.count(|_| true)
    }

    fn count(&self, wanted: impl Fn(&Episode) -> bool) -> BTreeMap<&'static str, usize> {
        let mut counts: BTreeMap<_, _> = Kind::ALL.iter().map(|kind| (kind.name(), 0)).collect();
        for episode in self.store().episodes().filter(|episode| wanted(episode)) {
            *counts.entry(episode.kind.name()).or_default() += 1;
        }
        counts
    }

    /// Age of the oldest start that is open, in microseconds.
    pub(super) fn oldest_open_start(&self) -> Option<u64> {
        let now = unix_micros(SystemTime::now());
        let store = self.store();
        let starts = store
            .open_episodes()
            .filter(|episode| episode.kind == Kind::Start);
        starts
            .map(|episode| now.saturating_sub(episode.began))
            .max()
    }
}

fn headline(episodes: &[view::Episode], now: u64) -> String {
    match episodes.is_empty() {
        true => NO_EPISODE.to_owned(),
        false => diagnosis::of_pod(episodes, now),
    }
}

impl PodStory {
    /// Leaves the pod with this uid, of several that had the name, and the sentence on it.
    pub fn keep(&mut self, uid: &str) {
        self.episodes.retain(|episode| episode.uid == uid);
        self.sessions.retain(|session| session.uid == uid);
        self.headline = headline(&self.episodes, self.now_unix_us);
    }
}

fn is_same(one: &PodIdentity, other: &PodIdentity) -> bool {
    one.uid == other.uid && one.name == other.name && one.namespace == other.namespace
}

/// The pods that have calls in flight, each with a store in which these are part of its episodes.
fn touched(store: &EpisodeStore, calls: Vec<EpisodeCall>) -> Vec<(Arc<PodIdentity>, EpisodeStore)> {
    let mut pods: Vec<(Arc<PodIdentity>, EpisodeStore)> = Vec::new();
    for call in calls {
        let Some(pod) = store.pod_of(&call) else {
            continue;
        };
        let at = pods.iter().position(|(p, _)| is_same(p, &pod));
        let at = at.unwrap_or_else(|| {
            pods.push((Arc::clone(&pod), store.excerpt(&pod)));
            pods.len() - 1
        });
        if let Some((_, store)) = pods.get_mut(at) {
            store.apply(call);
        }
    }
    pods
}
