//! Bounds of the store, and copies of a part of it.

use super::{EpisodeStore, StoreLimits};
use crate::usual::UsualDurations;
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::PodIdentity;

impl EpisodeStore {
    /// Evicts the pod that is gone for the longest, with all its episodes: some of them without the others would be misleading. Without
    /// such a pod, evicts the oldest closed episode, else the oldest.
    pub(super) fn make_room(&mut self) {
        while self.episodes.len() >= self.limits.episodes.max(1) {
            let evicted = match self.oldest_gone_pod() {
                Some(numbers) => numbers.to_vec(),
                None => Vec::from_iter(self.oldest_episode()),
            };
            if evicted.is_empty() {
                return;
            }
            for number in evicted {
                self.evict(number);
            }
        }
    }

    /// The episodes of the pod that is gone for the longest.
    fn oldest_gone_pod(&self) -> Option<&[u64]> {
        let stops = self.episodes.iter().filter(|(_, episode)| {
            episode.kind == Kind::Stop && episode.sandbox_stopped && !episode.is_open()
        });
        let mut pods = stops.filter_map(|(number, stop)| {
            let numbers = self.pods.get(&stop.pod.uid)?;
            let is_last = numbers.iter().all(|other| other <= number);
            is_last.then_some(&**numbers)
        });
        pods.next()
    }

    /// The oldest closed episode, else the oldest.
    fn oldest_episode(&self) -> Option<u64> {
        let mut numbers = self.episodes.keys();
        let closed = numbers.find(|number| !self.open.contains(number));
        closed.or_else(|| self.episodes.keys().next()).copied()
    }

    fn evict(&mut self, number: u64) {
        let closed = self.closed.len();
        self.closed.retain(|n| *n != number);
        if self.open.contains(&number) || self.closed.len() < closed {
            self.unreported += 1;
        }
        self.remove(number);
        self.forgotten += 1;
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
