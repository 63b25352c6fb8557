//! The episodes and sessions of this node, for pages and commands.

mod said;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::said::SaidCause;
use super::capture::CapturedState;
use super::diagnosis::{Diagnoser, FailingSync};
use super::episode_call::EpisodeCall;
use super::episode_store::{Episode, EpisodeStore, StoreLimits};
use super::kubelet::execs;
use super::kubelet::hanging_probe::HangingProbe;
use super::kubelet::pulls::PullInFlight;
use super::kubelet::relist::{RelistState, RelistTracker};
use super::kubelet::waiting::WaitingPod;
use super::listed_pods::sentence::ListedVerdict;
use super::listed_pods::stories::START_NOT_SEEN;
use super::node::{NodeFact, NodeFactKind, NodeStatus};
use super::process_scanner::Observations;
use super::sessions::SessionHistory;
use super::settings;
use super::usual::UsualDurations;
use super::view::{self, OpenSessionView, PodStory, RecentEpisodes};
use super::waiting_pods::WAITS_BEFORE_FIRST_CALL;
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
    waiting: Mutex<Vec<WaitingPod>>,
    /// Calls in flight in processes that hand over to this one.
    handed_over: Mutex<Vec<EpisodeCall>>,
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
            waiting: Mutex::default(),
            handed_over: Mutex::default(),
            captured: None,
        }
    }

    /// Since when criscope is bypassed, as a sentence; `None` if it is not.
    pub fn bypass(&self) -> Option<String> {
        let since = self.node().bypassed_since?;
        let fact = NodeFact::new(NodeFactKind::CriscopeBypassed, since, "");
        Some(fact.sentence(self.now()))
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

    /// The pods that waited for their first call at the last look.
    pub(super) fn waiting(&self) -> MutexGuard<'_, Vec<WaitingPod>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn handed_over(&self) -> MutexGuard<'_, Vec<EpisodeCall>> {
        let calls = self.handed_over.lock();
        calls.unwrap_or_else(PoisonError::into_inner)
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
        let hanging = self.hanging_probes(in_flight, |pod| wanted.is(pod));
        let hanging = hanging.into_iter().map(|(_, probe)| probe).collect();
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
                let cause = pods
                    .newest_verdict()
                    .map(|verdict| SaidCause::from_diagnosis(&verdict.diagnosis, &pods));
                (shown.collect::<Vec<_>>(), cause, probes)
            },
        );
        let sessions = self.sessions().select(|pod| wanted.is(pod));
        let listed = self.listed_story(|pod| wanted.is(pod), &episodes, now);
        let of_listed = listed.as_ref().map(|listed| {
            let ListedVerdict { headline, next, .. } = &listed.verdict;
            SaidCause {
                next: next.clone(),
                ..SaidCause::new(headline.clone(), START_NOT_SEEN)
            }
        });
        let cause = self
            .sync_failure(wanted, &episodes, now)
            .or(of_listed)
            .or_else(|| self.wait_before_calls(wanted, &episodes, now))
            .or(cause);
        if cause.is_none() && sessions.is_empty() {
            return None;
        }
        episodes.sort_by_key(|episode| episode.began_unix_us);
        let captured = self.captured.as_ref().filter(|_| uid.is_none());
        let said = captured.and_then(|captured| captured.headline(namespace, name));
        let cause = said.map(SaidCause::from_capture).or(cause);
        let said = cause.unwrap_or_else(|| SaidCause::new(NO_EPISODE.to_owned(), "no_episode"));
        Some(PodStory {
            now_unix_us: now,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            headline: said.headline,
            cause: said.cause,
            raw_message: said.raw_message,
            next: said.next,
            episodes,
            sessions,
            probes,
            listed: listed.map(|listed| listed.view()),
        })
    }

    /// The wait of a pod that no call has named, if it is the newest of the wanted pods.
    fn wait_before_calls(
        &self,
        wanted: WantedPod<'_>,
        episodes: &[view::EpisodeView],
        now: UnixMicros,
    ) -> Option<SaidCause> {
        let WantedPod {
            namespace,
            name,
            uid,
        } = wanted;
        let waiting = self.waiting_pod(namespace, name, uid, now)?;
        let mut others = episodes.iter();
        let is_newest = others
            .all(|episode| *episode.uid != *waiting.uid && episode.began_unix_us < waiting.since);
        is_newest.then(|| SaidCause {
            next: Some(waiting.next),
            ..SaidCause::new(waiting.headline, WAITS_BEFORE_FIRST_CALL)
        })
    }

    /// The sync failure of a pod that no call has named, if it is the newest of the wanted pods.
    fn sync_failure(
        &self,
        wanted: WantedPod<'_>,
        episodes: &[view::EpisodeView],
        now: UnixMicros,
    ) -> Option<SaidCause> {
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
        let pod = PodIdentity {
            namespace: wanted.namespace.into(),
            name: wanted.name.into(),
            uid: wanted.uid.unwrap_or_default().into(),
            attempt: 0,
        };
        let next = fails.next_step(&pod, &store.programs);
        Some(SaidCause {
            raw_message: fails.raw_message(),
            next: next.map(|step| step.to_string()),
            ..SaidCause::new(format!("{fails}; {whom}"), "kubelet_sync_failed")
        })
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

    /// The exec probes of the selected pods that hang.
    pub(super) fn hanging_probes(
        &self,
        in_flight: &[Arc<Call>],
        is_meant: impl Fn(&PodIdentity) -> bool,
    ) -> Vec<(Arc<PodIdentity>, HangingProbe)> {
        let execs = in_flight
            .iter()
            .filter(|call| call.method == Method::ExecSync);
        let calls =
            execs.map(|call| EpisodeCall::in_flight(call, self.observations.for_call(call.seq)));
        let hanging = calls.filter_map(|mut call| {
            self.store().identify(&mut call);
            let pod = call.pod.clone().filter(|pod| is_meant(pod))?;
            Some((pod, HangingProbe::from_call(&call)?))
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
        let calls = in_flight.iter().filter(|call| {
            let is_told = is_episodic(call.method) || call.method.checkpoints();
            is_told || call.method == Method::ExecSync
        });
        calls
            .map(|call| {
                let scanned = self.observations.is_scanned_since(call.started_at);
                EpisodeCall::in_flight(call, self.observations.for_call(call.seq)).scanned(scanned)
            })
            .filter(|call| call.method != Method::ExecSync || execs::is_hook(call))
            .chain({
                let (handed_over, now) = (self.handed_over(), self.now());
                let calls = handed_over.iter().cloned();
                calls.map(|call| call.in_flight_at(now)).collect::<Vec<_>>()
            })
            .collect()
    }

    /// Number of episodes in memory, by kind.
    pub(super) fn remembered(&self) -> BTreeMap<&'static str, usize> {
        let mut counts: BTreeMap<_, _> = Kind::ALL.iter().map(|kind| (kind.name(), 0)).collect();
        for episode in self.store().episodes() {
            *counts.entry(episode.kind.name()).or_default() += 1;
        }
        counts
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
            call.was_listed_up = store.is_listed_up(&call);
            excerpt.apply(call);
        }
    }
    pods
}

#[cfg(test)]
pub(super) mod tests;
