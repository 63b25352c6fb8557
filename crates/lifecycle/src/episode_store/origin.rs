//! The time at which the kubelet saw a pod, kept only where it shows how long the kubelet waited before its first call.

use std::time::Duration;

use super::EpisodeStore;
use crate::episode_call::EpisodeCall;
use crate::view::EpisodeState;
use criscope_cri::call::CallFacts;
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

impl EpisodeStore {
    /// Sets the time before which calls may have been missed.
    pub(crate) fn watch_since(&mut self, time: UnixMicros) {
        self.watches_since = time;
    }

    /// Removes the time at which the kubelet saw the pod from all calls but the first of a pod that is new to this node, or comes back:
    /// a replaced sandbox has the time of the first one, or of the kubelet's last start. Adds to the first call for how long
    /// criscope was not running.
    pub(crate) fn judge_origin(&self, call: &mut EpisodeCall) {
        if !matches!(call.facts, CallFacts::Seen { .. }) {
            return;
        }
        let began = call.began_at();
        let is_first = call.pod.as_deref().is_some_and(|pod| {
            pod.attempt == 0 && self.episodes_of(pod).all(|episode| episode.has(call))
        });
        // An evicted episode may have been the pod's first.
        let oldest = self.episodes.values().next().filter(|_| self.forgotten > 0);
        let since = oldest
            .map_or(UnixMicros::EPOCH, |oldest| oldest.began)
            .max(self.watches_since);
        let CallFacts::Seen {
            before_ms,
            source,
            unwatched_ms,
            cpu_millis,
        } = call.facts
        else {
            return;
        };
        let seen = began.checked_sub(Duration::from_millis(before_ms.into()));
        let Some(seen) = seen.filter(|seen| is_first || self.was_stopped_by(*seen, call)) else {
            call.record_mut().facts = CallFacts::None;
            return;
        };
        let missed = since.min(began).since(seen).as_millis();
        let missed = u32::try_from(missed).unwrap_or(u32::MAX);
        // After a replay of the journal more is watched than was then.
        if missed > unwatched_ms {
            call.record_mut().facts = CallFacts::Seen {
                before_ms,
                source,
                unwatched_ms: missed,
                cpu_millis,
            };
        }
    }

    /// Returns whether the pod of the call was stopped when the kubelet saw it, at this time: a static pod keeps its uid when its
    /// manifest is taken away and put back, and its attempt goes on until the stopped sandbox is removed. A kubelet that replaces a
    /// sandbox stops it after it saw the pod, but may have cleaned up an older one before.
    fn was_stopped_by(&self, seen: UnixMicros, call: &EpisodeCall) -> bool {
        let Some(pod) = call.pod.as_deref() else {
            return false;
        };
        let earlier = self.episodes_of(pod).filter(|episode| !episode.has(call));
        let starts = earlier
            .clone()
            .filter(|episode| episode.kind == Kind::Start);
        let last_start = starts.max_by_key(|start| start.began);
        let mut stops = earlier.clone().filter(|episode| episode.kind == Kind::Stop);
        let was_stopped = stops.any(|stop| {
            let is_over = stop.state == EpisodeState::Ok && stop.ended <= seen;
            let is_of_last_start = last_start.is_none_or(|start| {
                stop.pod.attempt == start.pod.attempt && stop.began >= start.began
            });
            // Attempts begin anew once the stopped sandboxes are removed.
            let is_newest = pod.attempt == 0 || stop.pod.attempt + 1 >= pod.attempt;
            is_over && is_newest && is_of_last_start
        });
        let mut others = earlier.filter(|episode| episode.kind != Kind::Stop);
        was_stopped && others.all(|episode| episode.began < seen)
    }
}
