//! The episodes and sessions of this node, for pages and commands.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::capture::CapturedState;
use super::diagnosis::{self, Diagnoser, FailingSync};
use super::episode_call::EpisodeCall;
use super::episode_store::{Episode, EpisodeStore, StoreLimits};
use super::kubelet::execs;
use super::kubelet::hanging_probe::HangingProbe;
use super::kubelet::pulls::PullInFlight;
use super::kubelet::relist::{RelistState, RelistTracker};
use super::node::NodeStatus;
use super::process_scanner::Observations;
use super::sessions::SessionHistory;
use super::settings;
use super::timeline::EpisodePhase;
use super::usual::UsualDurations;
use super::view::{self, OpenSessionView, PodStory, RecentEpisodes};
use criscope_cri::Method;
use criscope_cri::call::Call;
use criscope_cri::call::episode::{Kind, is_episodic};
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::UnixMicros;

/// The headline of a pod that has sessions and no episode.
const NO_EPISODE: &str = "no start, restart or stop of this pod was seen";

/// The episode store, written by the aggregator and read by the admin endpoint; both run on the side thread.
#[derive(Debug)]
pub struct Stories {
    pub(super) store: Mutex<EpisodeStore>,
    observations: Arc<Observations>,
    sessions: Mutex<SessionHistory>,
    node: Mutex<NodeStatus>,
    relists: Mutex<RelistTracker>,
    /// The present, if these are the stories of a capture.
    pub(super) captured: Option<CapturedState>,
}

impl Stories {
    /// An empty store. Calls in flight are shown with their `observations`.
    pub fn new(settings: &settings::StorySettings, observations: Arc<Observations>) -> Self {
        let limits = StoreLimits {
            episodes: settings.episodes,
            quiet: settings.quiet,
            give_up: settings.give_up,
        };
        Self {
            store: Mutex::new(EpisodeStore::new(
                limits,
                UsualDurations::new(settings.slow),
            )),
            observations,
            sessions: Mutex::default(),
            node: Mutex::default(),
            relists: Mutex::default(),
            captured: None,
        }
    }

    pub(super) fn store(&self) -> MutexGuard<'_, EpisodeStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, SessionHistory> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current time; in a capture the time when it was made.
    pub(super) fn now(&self) -> UnixMicros {
        let captured = self.captured.as_ref().map(|captured| captured.now);
        captured.unwrap_or_else(UnixMicros::now)
    }

    /// The state of the node at the last check.
    pub(super) fn node(&self) -> MutexGuard<'_, NodeStatus> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn relists(&self) -> MutexGuard<'_, RelistTracker> {
        self.relists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of the kubelet's relist (PLEG); `None` if none was seen, or no kubelet is at work. Its `Display` is a
    /// sentence.
    pub fn relist(&self) -> Option<RelistState> {
        self.relists().state(self.now())
    }

    pub(super) fn observations(&self) -> &Observations {
        &self.observations
    }

    /// Recent episodes, the newest first, without their calls. Calls in flight are included.
    pub fn recent(&self, in_flight: &[Arc<Call>]) -> RecentEpisodes {
        let now = self.now();
        let (mut episodes, forgotten) = self.read(
            in_flight,
            |_| true,
            |episodes, store, pulls| {
                let pods = Diagnoser::new(episodes, store.node().with_pulls(pulls), now);
                let shown = episodes.iter().map(|episode| episode.summary(&pods));
                (shown.collect::<Vec<_>>(), store.forgotten())
            },
        );
        episodes.sort_by_key(|episode| std::cmp::Reverse(episode.began_unix_us));
        RecentEpisodes {
            now_unix_us: now,
            episodes,
            forgotten,
        }
    }

    /// The story of the pods of this name, or of the one with this uid; `None` if there are neither episodes nor sessions.
    pub fn pod_story(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
        in_flight: &[Arc<Call>],
    ) -> Option<PodStory> {
        let now = self.now();
        let wanted = WantedPod {
            namespace,
            name,
            uid,
        };
        let hanging = self.hanging_probes(in_flight, wanted);
        let (mut episodes, cause, probes) = self.read(
            in_flight,
            |pod| wanted.is(pod),
            |episodes, store, pulls| {
                let probes = store.probes_of(episodes);
                let node = store.node().with_pulls(pulls);
                let pods = Diagnoser::new(episodes, node, now)
                    .with_probes(probes.clone())
                    .with_hanging_probes(hanging);
                let shown = episodes.iter().map(|episode| episode.view(&pods));
                let cause = pods.newest_cause().map(|newest| {
                    let next = newest.next.as_ref().map(ToString::to_string);
                    (newest.to_string(), newest.name(), next)
                });
                (shown.collect::<Vec<_>>(), cause, probes)
            },
        );
        let sessions = self.sessions().select(|pod| wanted.is(pod));
        let cause = self.sync_failure(wanted, &episodes, now).or(cause);
        if cause.is_none() && sessions.is_empty() {
            return None;
        }
        episodes.sort_by_key(|episode| episode.began_unix_us);
        let captured = self.captured.as_ref().filter(|_| uid.is_none());
        let said = captured.and_then(|captured| captured.headline(namespace, name));
        let cause = match said {
            Some(said) => Some((said.headline.clone(), &*said.cause, None)),
            None => cause,
        };
        let (headline, cause, next) =
            cause.unwrap_or_else(|| (NO_EPISODE.to_owned(), "no_episode", None));
        Some(PodStory {
            now_unix_us: now,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            headline,
            cause: cause.to_owned(),
            next,
            episodes,
            sessions,
            probes,
        })
    }

    /// The sync failure of a pod that no call has named, if it is the newest of the wanted pods.
    fn sync_failure(
        &self,
        wanted: WantedPod<'_>,
        episodes: &[view::EpisodeView],
        now: UnixMicros,
    ) -> Option<(String, &'static str, Option<String>)> {
        let store = self.store();
        let syncs = store.syncs_of_pods(|pod| {
            let mut uids = episodes.iter().map(|episode| &*episode.uid);
            wanted.is(pod) && !uids.any(|uid| *uid == *pod.uid)
        });
        let newest = episodes.iter().map(|episode| episode.began_unix_us).max();
        let fails = FailingSync::from_spans(syncs.iter().map(|sync| &**sync), now)?;
        let whom = match newest {
            None => "no call has named the pod",
            Some(began) if fails.sync.first > began => {
                "no call has named this pod, only an earlier one of its name"
            }
            Some(_) => return None,
        };
        Some((format!("{fails}; {whom}"), "kubelet_sync_failed", None))
    }

    /// Reads the selected pods' episodes, calls in flight included, with the store locked, and the pulls of all pods in flight.
    pub(super) fn read<T>(
        &self,
        in_flight: &[Arc<Call>],
        is_meant: impl Fn(&PodIdentity) -> bool,
        read: impl FnOnce(&[&Episode], &EpisodeStore, Vec<PullInFlight>) -> T,
    ) -> T {
        let calls = self.in_flight(in_flight);
        let pulls = calls.iter().filter_map(PullInFlight::from_call).collect();
        let store = self.store();
        let touched = touched(&store, calls);
        let episodes = store
            .episodes()
            .filter(|episode| !touched.iter().any(|(pod, _)| is_same(pod, &episode.pod)))
            .chain(touched.iter().flat_map(|(_, store)| store.episodes()))
            .filter(|episode| is_meant(&episode.pod));
        read(&episodes.collect::<Vec<_>>(), &store, pulls)
    }

    /// The exec probes of a pod that hang.
    fn hanging_probes(&self, in_flight: &[Arc<Call>], wanted: WantedPod<'_>) -> Vec<HangingProbe> {
        let execs = in_flight
            .iter()
            .filter(|call| call.method == Method::ExecSync);
        let calls =
            execs.map(|call| EpisodeCall::in_flight(call, self.observations.for_call(call.seq)));
        let hanging = calls.filter_map(|mut call| {
            self.store().identify(&mut call);
            let is_wanted = call.pod.as_deref().is_some_and(|pod| wanted.is(pod));
            HangingProbe::from_call(&call).filter(|_| is_wanted)
        });
        hanging.collect()
    }

    /// Sessions of exec, attach and port-forward that are open, the oldest first.
    pub fn open_sessions(&self) -> Vec<OpenSessionView> {
        self.sessions().open()
    }

    /// The calls in flight that belong to episodes.
    pub(super) fn in_flight(&self, in_flight: &[Arc<Call>]) -> Vec<EpisodeCall> {
        if let Some(captured) = &self.captured {
            return captured.in_flight.clone();
        }
        let calls = in_flight
            .iter()
            .filter(|call| is_episodic(call.method) || call.method == Method::ExecSync);
        calls
            .map(|call| {
                let scanned = self.observations.is_scanned_since(call.started_at);
                EpisodeCall::in_flight(call, self.observations.for_call(call.seq)).scanned(scanned)
            })
            .filter(|call| call.method != Method::ExecSync || execs::is_hook(call))
            .collect()
    }

    /// Number of open episodes, by kind.
    pub(super) fn open(&self) -> BTreeMap<&'static str, usize> {
        self.count(|episode| episode.is_open())
    }

    /// Number of episodes in memory, by kind.
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

    /// Number of pods, for each of the phases, with an open start in which a call of the phase failed and no later call resolved it.
    pub(super) fn failing<const N: usize>(&self, phases: &[EpisodePhase; N]) -> [usize; N] {
        let store = self.store();
        let starts = store.open_episodes();
        let starts = starts.filter(|start| start.kind == Kind::Start);
        let failing = starts.flat_map(|start| {
            let phases = diagnosis::failing_phases(start);
            phases.map(|phase| (phase, &start.pod.uid))
        });
        let failing: HashSet<_> = failing.collect();
        phases.map(|phase| {
            let own = failing.iter().filter(|(other, _)| *other == phase);
            own.count()
        })
    }

    /// Age of the oldest open start.
    pub(super) fn oldest_open_start(&self) -> Option<Duration> {
        let now = self.now();
        let store = self.store();
        let starts = store
            .open_episodes()
            .filter(|episode| episode.kind == Kind::Start);
        starts.map(|episode| now.since(episode.began)).max()
    }
}

/// A pod by name; by uid, too, if it is given.
#[derive(Clone, Copy)]
struct WantedPod<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: Option<&'a str>,
}

impl WantedPod<'_> {
    fn is(&self, pod: &PodIdentity) -> bool {
        *pod.namespace == *self.namespace
            && *pod.name == *self.name
            && self.uid.is_none_or(|uid| *pod.uid == *uid)
    }
}

fn is_same(one: &PodIdentity, other: &PodIdentity) -> bool {
    one.uid == other.uid && one.name == other.name && one.namespace == other.namespace
}

/// For each pod with calls in flight, a copy of its episodes with these calls applied.
fn touched(
    store: &EpisodeStore,
    mut calls: Vec<EpisodeCall>,
) -> Vec<(Arc<PodIdentity>, EpisodeStore)> {
    let mut pods: Vec<(Arc<PodIdentity>, EpisodeStore)> = Vec::new();
    // A preStop hook before the stop of its container.
    calls.sort_by_key(|call| call.began);
    for mut call in calls {
        let Some(pod) = store.pod_of(&call) else {
            continue;
        };
        let at = pods.iter().position(|(p, _)| is_same(p, &pod));
        let at = at.unwrap_or_else(|| {
            pods.push((Arc::clone(&pod), store.excerpt(&pod)));
            pods.len() - 1
        });
        if let Some((_, excerpt)) = pods.get_mut(at) {
            // Why the kubelet kills a container is known when it begins to.
            if matches!(call.method, Method::StopContainer | Method::ExecSync) {
                store.observe_in(excerpt, &mut call);
            }
            excerpt.apply(call);
        }
    }
    pods
}

#[cfg(test)]
pub(super) mod tests;
