//! Bounds of the store, and copies of a part of it.

use super::{EpisodeStore, StoreLimits};
use crate::usual::UsualDurations;
use criscope_cri::subject::PodIdentity;

impl EpisodeStore {
    /// Evicts the oldest closed episode, else the oldest.
    pub(super) fn make_room(&mut self) {
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

    pub(super) fn remove(&mut self, number: u64) {
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

    /// A store with this pod only, to which calls in flight can be applied.
    pub(crate) fn excerpt(&self, pod: &PodIdentity) -> Self {
        let limits = StoreLimits {
            episodes: usize::MAX,
            ..self.limits
        };
        // Views of its episodes get the usual durations from the whole store.
        let mut store = Self::new(limits, UsualDurations::default());
        store.next = self.next;
        store.init_containers = self.init_containers.clone();
        store.node = self.node.clone();
        store.booted = self.booted.for_pod(&pod.uid);
        store.watches_since = self.watches_since;
        let mut newest_first: Vec<_> = self.episodes_of(pod).collect();
        newest_first.reverse();
        for episode in newest_first {
            let number = episode.number;
            if episode.is_open() {
                store.open.insert(number);
            }
            store.pods.entry(pod.uid.clone()).or_default().push(number);
            store.episodes.insert(number, Box::new(episode.clone()));
        }
        store
    }
}
