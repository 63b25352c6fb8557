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
    /// replaced sandbox has the time of the first one, or that of the kubelet's last start.
    pub(in crate::lifecycle) fn judge_origin(&self, call: &mut EpisodeCall) {
        let CallFacts::Seen { before_ms, .. } = call.facts else {
            return;
        };
        let Some(pod) = call.pod.as_deref() else {
            return;
        };
        let seen = call.began_us().checked_sub(u64::from(before_ms) * 1000);
        // An evicted episode may have been the pod's first.
        let oldest = self.episodes.values().next().filter(|_| self.forgotten > 0);
        let since = oldest
            .map_or(0, |oldest| oldest.began)
            .max(self.watches_since);
        let is_first = pod.attempt == 0 && self.of_pod(pod).all(|episode| episode.has(call));
        if !is_first || seen.is_none_or(|seen| seen < since) {
            call.facts = CallFacts::None;
        }
    }
}
