//! The episodes and sessions of this node, for pages and commands.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::capture::Captured;
use super::diagnosis::{self, Pods, SyncFails};
use super::episode_call::EpisodeCall;
use super::episode_store::{Episode, EpisodeStore, Limits};
use super::kubelet::execs;
use super::kubelet::pulls::Pulling;
use super::kubelet::relist::{RelistState, Relists};
use super::node::NodeStatus;
use super::process_scanner::Observations;
use super::sessions::Sessions;
use super::settings;
use super::timeline::EpisodePhase;
use super::usual::Usual;
use super::view::{self, OpenSession, PodStory, Recent};
use crate::call::Call;
use crate::call::episode::{Kind, is_episodic};
use crate::call::times::{micros_of, unix_micros};
use crate::cri::Method;
use crate::cri::subject::PodIdentity;

/// The headline of a pod that has sessions and no episode.
const NO_EPISODE: &str = "no start, restart or stop of this pod was seen";

/// The episode store, written by the aggregator and read by the admin endpoint; both run on the side thread.
#[derive(Debug)]
pub struct Stories {
    pub(super) store: Mutex<EpisodeStore>,
    observations: Arc<Observations>,
    sessions: Mutex<Sessions>,
    node: Mutex<NodeStatus>,
    relists: Mutex<Relists>,
    /// The present, if these are the stories of a capture.
    pub(super) captured: Option<Captured>,
}

impl Stories {
    /// An empty store. Calls in flight are shown with their `observations`.
    pub fn new(settings: &settings::StorySettings, observations: Arc<Observations>) -> Self {
        let limits = Limits {
            episodes: settings.episodes,
            quiet: micros_of(settings.quiet),
            give_up: micros_of(settings.give_up),
        };
        Self {
            store: Mutex::new(EpisodeStore::new(limits, Usual::new(settings.slow))),
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

    pub(super) fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time, in microseconds since 1970.
    pub(super) fn now(&self) -> u64 {
        let captured = self.captured.as_ref().map(|it| it.now);
        captured.unwrap_or_else(|| unix_micros(SystemTime::now()))
    }

    /// The node at the last look.
    pub(super) fn node(&self) -> MutexGuard<'_, NodeStatus> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn relists(&self) -> MutexGuard<'_, Relists> {
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
    pub fn recent(&self, in_flight: &[Arc<Call>]) -> Recent {
        let now = self.now();
        let (mut episodes, forgotten) = self.read(
            in_flight,
            |_| true,
            |episodes, store, pulls| {
                let pods = Pods::new(episodes, store.node().with_pulls(pulls), now);
                let shown = episodes.iter().map(|episode| episode.summary(&pods));
                (shown.collect::<Vec<_>>(), store.forgotten())
            },
        );
        episodes.sort_by_key(|episode| std::cmp::Reverse(episode.began_unix_us));
        Recent {
            now_unix_us: now,
            episodes,
            forgotten,
        }
    }

    /// The story of the pods of this name, or of the one with this uid; `None` if there are neither episodes nor sessions.
    pub fn of_pod(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
        in_flight: &[Arc<Call>],
    ) -> Option<PodStory> {
        let now = self.now();
        let is_meant = |pod: &PodIdentity| {
            *pod.namespace == *namespace
                && *pod.name == *name
                && uid.is_none_or(|uid| *pod.uid == *uid)
        };
        let (mut episodes, cause, probes) =
            self.read(in_flight, is_meant, |episodes, store, pulls| {
                let probes = store.probes_of(episodes);
                let node = store.node().with_pulls(pulls);
                let pods = Pods::new(episodes, node, now).with_probes(probes.clone());
                let shown = episodes.iter().map(|episode| episode.view(&pods));
                let cause = pods.newest();
                let cause = cause.map(|cause| (cause.to_string(), cause.name()));
                (shown.collect::<Vec<_>>(), cause, probes)
            });
        let sessions = self.sessions().of_pod(is_meant);
        let cause = self.of_unknown(is_meant, &episodes, now).or(cause);
        if cause.is_none() && sessions.is_empty() {
            return None;
        }
        episodes.sort_by_key(|episode| episode.began_unix_us);
        let captured = self.captured.as_ref().filter(|_| uid.is_none());
        let said = captured.and_then(|it| it.said(namespace, name));
        let cause = match said {
            Some(said) => Some((said.headline.clone(), &*said.cause)),
            None => cause,
        };
        let (headline, cause) = cause.unwrap_or_else(|| (NO_EPISODE.to_owned(), "no_episode"));
        Some(PodStory {
            now_unix_us: now,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            headline,
            cause: cause.to_owned(),
            episodes,
            sessions,
            probes,
        })
    }

    /// How the kubelet fails at a pod of this name that no call has named, if that is the newest one.
    fn of_unknown(
        &self,
        is_meant: impl Fn(&PodIdentity) -> bool,
        episodes: &[view::Episode],
        now: u64,
    ) -> Option<(String, &'static str)> {
        let is_known = |pod: &PodIdentity| episodes.iter().any(|it| it.uid == *pod.uid);
        let store = self.store();
        let syncs = store.syncs_of_name(|pod| is_meant(pod) && !is_known(pod));
        let newest = episodes.iter().map(|episode| episode.began_unix_us).max();
        let fails = SyncFails::of_unknown(syncs.iter().map(|it| &**it), now)?;
        let whom = match newest {
            None => "no call has named the pod",
            Some(began) if fails.sync.first > began => {
                "no call has named this pod, only an earlier one of its name"
            }
            Some(_) => return None,
        };
        Some((format!("{fails}; {whom}"), "kubelet_sync_failed"))
    }

    /// Reads the selected pods' episodes, calls in flight included, with the store locked, and the pulls of all pods in flight.
    pub(super) fn read<T>(
        &self,
        in_flight: &[Arc<Call>],
        is_meant: impl Fn(&PodIdentity) -> bool,
        read: impl FnOnce(&[&Episode], &EpisodeStore, Vec<Pulling>) -> T,
    ) -> T {
        let calls = self.in_flight(in_flight);
        let pulls = calls.iter().filter_map(Pulling::of).collect();
        let store = self.store();
        let touched = touched(&store, calls);
        let episodes = store
            .episodes()
            .filter(|episode| !touched.iter().any(|(pod, _)| is_same(pod, &episode.pod)))
            .chain(touched.iter().flat_map(|(_, store)| store.episodes()))
            .filter(|episode| is_meant(&episode.pod));
        read(&episodes.collect::<Vec<_>>(), &store, pulls)
    }

    /// Sessions of exec, attach and port-forward that are open, the oldest first.
    pub fn open_sessions(&self) -> Vec<OpenSession> {
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

    /// Number of pods with an open start in which a call of this phase failed, and no later one made good for it; one number
    /// for each phase.
    pub(super) fn failing<const N: usize>(&self, phases: &[EpisodePhase; N]) -> [usize; N] {
        let store = self.store();
        let starts = store.open_episodes().filter(|it| it.kind == Kind::Start);
        let failing =
            starts.flat_map(|it| diagnosis::failing(it).map(|phase| (phase, &it.pod.uid)));
        let failing: HashSet<_> = failing.collect();
        phases.map(|phase| failing.iter().filter(|(it, _)| *it == phase).count())
    }

    /// Age of the oldest open start, in microseconds.
    pub(super) fn oldest_open_start(&self) -> Option<u64> {
        let now = self.now();
        let store = self.store();
        let starts = store
            .open_episodes()
            .filter(|episode| episode.kind == Kind::Start);
        starts
            .map(|episode| now.saturating_sub(episode.began))
            .max()
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
pub(super) mod tests {
    use super::*;
    use crate::cri::status::Code;
    use crate::lifecycle::script::{Pod, pod};
    use crate::settings::Reader;

    pub(in crate::lifecycle) fn stories(calls: impl IntoIterator<Item = EpisodeCall>) -> Stories {
        let settings = settings::StorySettings::read(&mut Reader::empty(), "/nowhere".as_ref());
        let stories = Stories::new(&settings, Arc::default());
        for call in calls {
            stories.store().apply(call);
        }
        stories
    }

    /// Another pod of the name `web`.
    fn namesake() -> Pod {
        Pod(Arc::new(PodIdentity {
            uid: "other".into(),
            ..(*pod("web").0).clone()
        }))
    }

    #[test]
    fn pods_that_had_the_same_name_are_told_apart_by_uid() {
        let (first, second) = (pod("web"), namesake());
        let stories = stories([
            second.run(0, 9000),
            second.create(("app", 0), 9000, 10),
            second.start(("app", 0), 9010, 10),
            first.run(20_000, 10),
            first
                .pull("web:1", 20_100, 10)
                .fails(Code::NotFound, "no such image"),
        ]);
        let of = |uid| stories.of_pod("shop", "web", uid, &[]);
        let all = of(None).expect("both");
        let newest = of(Some("uid-web")).expect("known");
        assert_eq!(
            (newest.episodes.len(), &newest.headline),
            (1, &all.headline)
        );
        let other = of(Some("other")).expect("known");
        assert_eq!(
            (other.episodes.len(), &other.headline),
            (1, &all.episodes[0].headline)
        );
        assert_ne!(other.headline, newest.headline);
        assert_eq!(of(Some("none")), None);
    }

    #[test]
    fn a_pod_that_no_call_has_named_is_known_by_the_spans_of_the_kubelet() {
        let stories = stories([]);
        let of = || stories.of_pod("shop", "web", None, &[]);
        assert_eq!(of(), None);
        let text = "unmounted volumes=[data], unattached volumes=[], failed to process volumes=[]: context deadline exceeded";
        stories
            .store()
            .note_sync(pod("web").sync_fails(0, 123_000, text));
        let story = of().expect("known");
        let headline = &story.headline;
        assert!(
            headline.starts_with(
                "kubelet: syncPod failed: volume data is not mounted: context deadline exceeded ("
            ) && headline.ends_with(" ago); no call has named the pod"),
            "{headline}"
        );
        assert_eq!(story.cause, "kubelet_sync_failed");
        stories.store().note_sync(pod("web").syncs(200_000, 10));
        assert_eq!(of(), None, "it is over");
    }

    /// Such as one with `hostUsers: false` where the runtime has no user namespaces: the kubelet makes no call for it.
    #[test]
    fn a_pod_that_no_call_has_named_is_not_an_earlier_one_of_its_name() {
        let (first, second) = (pod("web"), namesake());
        let up = [
            first.run(10_000, 10),
            first.create(("app", 0), 10_100, 10),
            first.start(("app", 0), 10_200, 10),
        ];
        let stories = stories(up);
        let of = |uid| stories.of_pod("shop", "web", uid, &[]).expect("known");
        let earlier = of(None).headline;
        let text = "runtime does not support user namespaces";
        let fails = |from| second.sync_fails(from, 10, text);
        stories.store().note_sync(fails(5000));
        assert_eq!(of(None).headline, earlier, "it is the older one");
        stories.store().note_sync(second.syncs(6000, 10));
        stories.store().note_sync(fails(20_000));
        let said = of(None).headline;
        let (why, whom) = said.split_once(" (").expect("when");
        assert_eq!(why, format!("kubelet: syncPod failed: {text}"));
        assert!(
            whom.ends_with("this pod, only an earlier one of its name"),
            "{whom}"
        );
        assert_eq!(of(Some("uid-web")).headline, earlier);
    }

    /// One pod counts once, however often it is retried.
    #[test]
    fn pods_that_cannot_start_are_counted_by_what_fails() {
        let refused = |name: &str, from| {
            let pull = pod(name).pull("web:1", from, 10);
            pull.fails(Code::NotFound, "no such image")
        };
        let well = pod("well");
        let stories = stories([
            pod("one").run(0, 10),
            refused("one", 100),
            refused("one", 200),
            pod("one")
                .create(("app", 0), 300, 10)
                .fails(Code::Unknown, "no"),
            pod("two").run(0, 10),
            refused("two", 400),
            well.run(0, 10),
            refused("well", 500),
            well.pull("web:1", 600, 10),
        ]);
        let phases = [
            EpisodePhase::Sandbox,
            EpisodePhase::ImagePull,
            EpisodePhase::ContainerCreate,
        ];
        assert_eq!(stories.failing(&phases), [0, 2, 1]);
    }

    /// Calls take most of the memory; a list is built without copying them, and has the same headlines.
    #[test]
    fn a_list_has_the_episodes_without_their_calls() {
        let web = pod("web");
        let stories = stories([
            web.run(0, 9000),
            web.pull("web:1", 9000, 10),
            web.start(("app", 0), 9010, 10),
        ]);
        let [listed] = &stories.recent(&[]).episodes[..] else {
            panic!("one episode")
        };
        let story = stories.of_pod("shop", "web", None, &[]).expect("known");
        assert_eq!((listed.calls.len(), story.episodes[0].calls.len()), (0, 3));
        assert_eq!(listed.headline, story.headline);
        assert_eq!(listed.phases, story.episodes[0].phases);
    }
}
