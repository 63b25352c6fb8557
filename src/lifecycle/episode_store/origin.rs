//! Whether the time at which the kubelet saw a pod says how long it waited before its first call.

use super::EpisodeStore;
use crate::call::CallFacts;
use crate::lifecycle::episode_call::EpisodeCall;

impl EpisodeStore {
    /// Calls before this time, in microseconds since 1970, may have been missed.
    pub(in crate::lifecycle) fn watch_since(&mut self, time: u64) {
        self.watches_since = time;
    }

    /// Removes the time at which the kubelet saw the pod from all calls but the first of a pod that is new to this node. A
    /// replaced sandbox has the time of the first one, or that of the kubelet's last start. Of the first one it notes how
    /// much of the time nobody watched.
    pub(in crate::lifecycle) fn judge_origin(&self, call: &mut EpisodeCall) {
        if !matches!(call.facts, CallFacts::Seen { .. }) {
            return;
        }
        let began = call.began_us();
        let is_first = call.pod.as_deref().is_some_and(|pod| {
            pod.attempt == 0 && self.of_pod(pod).all(|episode| episode.has(call))
        });
        // An evicted episode may have been the pod's first.
        let oldest = self.episodes.values().next().filter(|_| self.forgotten > 0);
        let since = oldest
            .map_or(0, |oldest| oldest.began)
            .max(self.watches_since);
        let CallFacts::Seen {
            before_ms,
            unwatched_ms,
            ..
        } = &mut call.facts
        else {
            return;
        };
        let seen = began.checked_sub(u64::from(*before_ms) * 1000);
        let Some(seen) = seen.filter(|_| is_first) else {
            call.facts = CallFacts::None;
            return;
        };
        let missed = since.min(began).saturating_sub(seen) / 1000;
        // After a replay of the journal more is watched than was then.
        *unwatched_ms = u32::try_from(missed).unwrap_or(u32::MAX).max(*unwatched_ms);
    }
}
