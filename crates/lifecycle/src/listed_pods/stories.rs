//! Listed pods in lists of pods and in stories of their own.

use std::collections::HashSet;
use std::sync::Arc;

use super::sentence::ListedVerdict;
use super::{ListedExit, ListedPod, ListedRun};
use crate::Stories;
use crate::episode_store::EpisodeStore;
use crate::view::{
    EpisodeState, EpisodeView, ListedContainerView, ListedPodView, PodState, PodSummary,
};
use criscope_cri::call::episode::Kind;
use criscope_cri::lists::RuntimeLists;
use criscope_cri::subject::{ContainerState, PodIdentity};
use criscope_cri::units::times::{UnixMicros, millis};

/// The stable name of the cause.
pub(crate) const START_NOT_SEEN: &str = "start_not_seen";

/// The story of a listed pod.
#[derive(Debug)]
pub(crate) struct ListedPodStory {
    pub(crate) verdict: ListedVerdict,
    pub(crate) pod: ListedPod,
}

impl Stories {
    /// Takes the lists of a backend. Returns the ids of the containers whose status is wanted.
    pub fn set_listed(&self, backend: &Arc<str>, lists: RuntimeLists) -> Vec<Arc<str>> {
        self.store().set_listed(backend, lists)
    }

    /// Takes the status of a container for which [`Self::set_listed`] asked.
    pub fn note_listed_status(&self, container_id: &str, state: ContainerState) {
        self.store().note_listed_status(container_id, state);
    }

    /// The entries of the listed pods whose uids are not known from calls.
    pub(crate) fn listed_summaries(
        &self,
        known: &HashSet<String>,
        now: UnixMicros,
    ) -> Vec<PodSummary> {
        let store = self.store();
        let pods = store.listed_pods();
        let pods = pods.filter(|listed| !known.contains(&*listed.pod.uid));
        let stories = pods.map(|listed| ListedPodStory::new(listed, &store, now));
        stories.map(|story| story.summary(now)).collect()
    }

    /// The newest listed pod that is meant, if no call has named it and these episodes are those of earlier pods.
    pub(crate) fn listed_story(
        &self,
        is_meant: impl Fn(&PodIdentity) -> bool,
        episodes: &[EpisodeView],
        now: UnixMicros,
    ) -> Option<ListedPodStory> {
        let store = self.store();
        let pods = store.listed_pods().filter(|listed| is_meant(&listed.pod));
        let listed = pods.max_by_key(|listed| listed.created)?;
        let is_newest = episodes.iter().all(|episode| {
            *episode.uid != *listed.pod.uid && episode.began_unix_us < listed.created
        });
        is_newest.then(|| ListedPodStory::new(listed, &store, now))
    }
}

impl ListedPodStory {
    pub(crate) fn new(pod: &ListedPod, store: &EpisodeStore, now: UnixMicros) -> Self {
        Self {
            verdict: ListedVerdict::new(pod, store, now),
            pod: pod.clone(),
        }
    }

    /// The entry in lists.
    pub(crate) fn summary(self, now: UnixMicros) -> PodSummary {
        let ListedVerdict {
            headline,
            state,
            since,
            next,
        } = self.verdict;
        let PodIdentity {
            namespace,
            name,
            uid,
            attempt,
        } = &*self.pod.pod;
        // The duration of the start is unknown.
        let duration_ms = match state {
            PodState::Failed | PodState::Starting => millis(now.since(since)),
            _ => 0.0,
        };
        let runs = self.pod.containers.iter();
        let restarts = runs.map(|run| run.container.attempt);
        PodSummary {
            namespace: namespace.to_string(),
            name: name.to_string(),
            uid: uid.to_string(),
            state,
            reason: headline.clone(),
            cause: START_NOT_SEEN.to_owned(),
            next: next.clone(),
            notable: matches!(state, PodState::Failed | PodState::Starting),
            began_unix_us: self.pod.created,
            since_unix_us: since,
            duration_ms,
            restarts: restarts.fold(0, u32::saturating_add),
            episode: EpisodeView {
                kind: Kind::Start.name().to_owned(),
                namespace: namespace.to_string(),
                name: name.to_string(),
                uid: uid.to_string(),
                attempt: *attempt,
                sandbox_id: Some(self.pod.sandbox_id.to_string()),
                state: match state {
                    PodState::Starting => EpisodeState::Open,
                    PodState::Failed => EpisodeState::Failed,
                    _ => EpisodeState::Ok,
                },
                cause_state: Some(state),
                began_unix_us: self.pod.created,
                duration_ms,
                headline,
                next,
                cause: START_NOT_SEEN.to_owned(),
                ..EpisodeView::default()
            },
            ..PodSummary::default()
        }
    }

    /// What the runtime lists of the pod.
    pub(crate) fn view(&self) -> ListedPodView {
        ListedPodView {
            uid: self.pod.pod.uid.to_string(),
            sandbox_id: self.pod.sandbox_id.to_string(),
            state: self.verdict.state,
            created_unix_us: self.pod.created,
            containers: self.pod.containers.iter().map(ListedRun::view).collect(),
        }
    }
}

impl ListedRun {
    fn view(&self) -> ListedContainerView {
        let exit = self.exit.as_ref();
        ListedContainerView {
            name: self.container.name.to_string(),
            restarts: self.container.attempt,
            state: self.state.name().to_owned(),
            created_unix_us: self.created,
            exit_code: exit.map(|exit| exit.code),
            exit_reason: exit.map(|exit| exit.reason.name().to_owned()),
            ended_unix_us: exit.map(|ListedExit { at, .. }| *at),
        }
    }
}
