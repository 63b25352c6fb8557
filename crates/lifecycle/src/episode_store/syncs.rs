//! The kubelet's own spans in episodes. Spans arrive some seconds after they ended, and a pod may have spans before its first call.

use std::sync::Arc;
use std::time::Duration;

use super::{Episode, EpisodeStore};
use crate::episode_call::EpisodeCall;
use crate::kubelet::syncs::{KubeletSpan, MAX_SYNCS_PER_POD, PodSync, SyncKind};
use criscope_cri::call::CallFacts;
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::PodIdentity;

/// Episodes of a pod that a span may belong to, from the newest.
const MAX_EPISODES_PER_SPAN: usize = 8;
/// A span that begins this long after an episode belongs to the newest of its pod only.
const SPAN_FOLLOWS_EPISODE_WITHIN: Duration = Duration::from_secs(10);

/// Returns whether the kubelet's work of this kind belongs to these episodes.
fn fits(sync: &PodSync, kind: Kind) -> bool {
    (sync.kind == SyncKind::Sync) == (kind != Kind::Stop)
}

/// Returns whether the last span of an episode is a failure. Such an episode also gets the next span, which may end the failure.
fn has_failed_last(episode: &Episode) -> bool {
    episode
        .syncs
        .last()
        .is_some_and(|sync| sync.error.is_some())
}

impl EpisodeStore {
    /// Notes a span of the kubelet. Returns spans for the journal: a failure, less and less often while it repeats, how often it had
    /// failed when it no longer fails, and each long success.
    pub(crate) fn note_sync(&mut self, span: KubeletSpan) -> Vec<Arc<PodSync>> {
        let pod = span.pod.clone();
        self.note_end(&span);
        let before = self.syncs.syncs_of(&pod.uid).last().cloned();
        let Some(sync) = self.syncs.note(span) else {
            return Vec::new();
        };
        self.add_sync(&pod, &sync);
        let unwritten = before.filter(|before| before.is_unwritten() && before.first != sync.first);
        let is_news = !sync.is_unwritten();
        unwritten
            .into_iter()
            .chain(is_news.then_some(sync))
            .collect()
    }

    /// The failures of pods that the journal has with a smaller number of tries.
    pub(crate) fn unwritten_syncs(&self) -> impl Iterator<Item = (&PodIdentity, &PodSync)> {
        let last = self.syncs.last_of_all();
        last.filter(|(_, sync)| sync.is_unwritten())
    }

    /// Notes a span that [`Self::note_sync`] returned before a restart of criscope.
    pub(crate) fn note_earlier_sync(&mut self, pod: &PodIdentity, sync: PodSync) {
        let sync = self.syncs.put(pod.clone(), sync);
        self.add_sync(pod, &sync);
    }

    fn add_sync(&mut self, pod: &PodIdentity, sync: &Arc<PodSync>) {
        let episodes_of = self
            .episodes_of(pod)
            .filter(|episode| fits(sync, episode.kind));
        let of_time = episodes_of
            .take(MAX_EPISODES_PER_SPAN)
            .enumerate()
            .filter(|(n, episode)| {
                let is_newest = *n == 0;
                let began = episode.began - seen_before(episode.calls.front());
                let is_near = sync.began <= episode.ended + SPAN_FOLLOWS_EPISODE_WITHIN;
                sync.ended >= began && (is_newest || is_near || has_failed_last(episode))
            });
        let numbers: Vec<_> = of_time.map(|(_, episode)| episode.number).collect();
        for number in numbers {
            if let Some(episode) = self.episodes.get_mut(&number) {
                put(episode, sync);
            }
        }
    }

    /// Notes the end of a pod, if the span shows it. The pod may have no sandbox.
    fn note_end(&mut self, span: &KubeletSpan) {
        let is_end = span.kind != SyncKind::Sync && span.error.is_none();
        let newest = self.episodes_of(&span.pod).next();
        if is_end && newest.is_some_and(|newest| newest.ended <= span.ended) {
            self.note_deleted(&span.pod, span.ended);
        }
    }

    /// Adds to a new episode the kubelet's spans from before its first call.
    pub(super) fn add_syncs(&self, episode: &mut Episode, first: &EpisodeCall) {
        let from = first.began_at() - seen_before(Some(first));
        let syncs = self.syncs.syncs_of(&episode.pod.uid).iter();
        let fit = syncs.filter(|sync| fits(sync, episode.kind) && sync.ended >= from);
        episode.syncs = fit.cloned().collect();
    }

    /// The pod with this uid, if a span has named it.
    pub(crate) fn pod_of_spans(&self, uid: &str) -> Option<&PodIdentity> {
        self.syncs.pod(uid)
    }

    /// The spans of the pods that `is_meant` selects, in order of their end.
    pub(crate) fn syncs_of_pods(
        &self,
        is_meant: impl Fn(&PodIdentity) -> bool,
    ) -> Vec<Arc<PodSync>> {
        let mut syncs: Vec<_> = self.syncs.syncs_of_pods(is_meant).cloned().collect();
        syncs.sort_by_key(|sync| sync.ended);
        syncs
    }
}

/// How long before this first call of a pod the kubelet saw the pod.
pub(super) fn seen_before(first: Option<&EpisodeCall>) -> Duration {
    match first.map(|call| &call.facts) {
        Some(CallFacts::Seen { before_ms, .. }) => Duration::from_millis((*before_ms).into()),
        _ => Duration::ZERO,
    }
}

/// Adds a span, or replaces the equal failures before it.
fn put(episode: &mut Episode, sync: &Arc<PodSync>) {
    let mut syncs = episode.syncs.iter();
    let earlier = syncs.position(|other| other.kind == sync.kind && other.first == sync.first);
    if let Some(earlier) = earlier {
        episode.syncs.remove(earlier);
    }
    if episode.syncs.len() >= MAX_SYNCS_PER_POD {
        episode.syncs.remove(0);
    }
    episode.syncs.push(Arc::clone(sync));
}
