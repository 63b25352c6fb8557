//! All stories of this node, for those who read them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::diagnosis;
use super::episode_call::{self, Told, micros, span};
use super::episode_store::{EpisodeStore, Limits, Tale};
use super::process_scanner::Observations;
use super::sessions::Sessions;
use super::view::{self, OpenSession, PodStory, Recent};
use crate::config;
use crate::cri::Call;
use crate::cri::call::PodIdentity;
use crate::cri::episode::{Kind, is_told};

/// The headline of a pod of which only sessions were seen.
const NO_EPISODE: &str = "no start, restart or stop of this pod was seen";

/// The episodes that are remembered. Shared by the keeper, who writes, and the pages, who read; both live on the side
/// thread.
#[derive(Debug)]
pub struct Stories {
    pub(super) book: Mutex<EpisodeStore>,
    sightings: Arc<Observations>,
    sessions: Mutex<Sessions>,
}

impl Stories {
    /// No stories yet. Of calls in flight is shown what `sightings` has of them.
    pub fn new(settings: &config::Story, sightings: Arc<Observations>) -> Self {
        let limits = Limits {
            episodes: settings.episodes,
            quiet: span(settings.quiet),
            give_up: span(settings.give_up),
        };
        Self {
            book: Mutex::new(EpisodeStore::new(limits)),
            sightings,
            sessions: Mutex::default(),
        }
    }

    pub(super) fn book(&self) -> MutexGuard<'_, EpisodeStore> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sightings(&self) -> &Observations {
        &self.sightings
    }

    /// Recent episodes, the newest first, without their calls. Calls in flight count to the episodes they belong to.
    pub fn recent(&self, in_flight: &[Arc<Call>]) -> Recent {
        let now = micros(SystemTime::now());
        let mut episodes = self.episodes(in_flight, now, |_| true);
        episodes.sort_by_key(|episode| std::cmp::Reverse(episode.began_unix_us));
        for episode in &mut episodes {
            episode.calls = Vec::new();
        }
        Recent {
            now_unix_us: now,
            episodes,
            forgotten: self.book().forgotten(),
        }
    }

    /// All that is remembered of the pods of this name; `None` if there is nothing.
    pub fn of_pod(&self, namespace: &str, name: &str, in_flight: &[Arc<Call>]) -> Option<PodStory> {
        let now = micros(SystemTime::now());
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
            let book = self.book();
            let touched = touched(&book, calls);
            book.tales()
                .filter(|tale| !touched.iter().any(|(pod, _)| is_same(pod, &tale.pod)))
                .chain(touched.iter().flat_map(|(_, book)| book.tales()))
                .filter(|tale| is_meant(&tale.pod))
                .map(|tale| tale.view(now))
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
    pub(super) fn told(&self, in_flight: &[Arc<Call>]) -> Vec<Told> {
        let told = in_flight.iter().filter(|call| is_told(call.method));
        told.map(|call| Told::in_flight(call, self.sightings.of(call.seq)))
            .collect()
    }

    /// How many episodes are open, by kind.
    pub(super) fn open(&self) -> BTreeMap<&'static str, usize> {
        self.count(|tale| tale.is_open())
    }

    /// How many episodes are remembered, by kind.
    pub(super) fn remembered(&self) -> BTreeMap<&'static str, usize> {
        self.count(|_| true)
    }

    fn count(&self, wanted: impl Fn(&Tale) -> bool) -> BTreeMap<&'static str, usize> {
        let mut counts: BTreeMap<_, _> = Kind::ALL.iter().map(|kind| (kind.name(), 0)).collect();
        for tale in self.book().tales().filter(|tale| wanted(tale)) {
            *counts.entry(tale.kind.name()).or_default() += 1;
        }
        counts
    }

    /// Age of the oldest start that is open, in microseconds.
    pub(super) fn oldest_open_start(&self) -> Option<u64> {
        let now = micros(SystemTime::now());
        let book = self.book();
        let starts = book.open_tales().filter(|tale| tale.kind == Kind::Start);
        starts.map(|tale| now.saturating_sub(tale.began)).max()
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

/// The pods that have calls in flight, each with a book in which these are part of its episodes.
fn touched(
    book: &EpisodeStore,
    calls: Vec<episode_call::Told>,
) -> Vec<(Arc<PodIdentity>, EpisodeStore)> {
    let mut pods: Vec<(Arc<PodIdentity>, EpisodeStore)> = Vec::new();
    for call in calls {
        let Some(pod) = book.pod_of(&call) else {
            continue;
        };
        let at = pods.iter().position(|(p, _)| is_same(p, &pod));
        let at = at.unwrap_or_else(|| {
            pods.push((Arc::clone(&pod), book.excerpt(&pod)));
            pods.len() - 1
        });
        if let Some((_, book)) = pods.get_mut(at) {
            book.apply(call);
        }
    }
    pods
}
