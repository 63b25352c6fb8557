//! Pods that still exist although the kubelet has stopped them. A pod that is deleted loses its directory some seconds after its sandbox was
//! stopped; one that is evicted, or past its deadline, stays in the API as failed.

use std::sync::Arc;
use std::time::Duration;

use super::{Episode, EpisodeStore};
use crate::view::EpisodeState;
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::UnixMicros;

/// The kubelet removes the directory of a deleted pod within some seconds: it looks for such directories every two
/// (`housekeepingPeriod` in `pkg/kubelet/kubelet.go`).
const DIRECTORY_REMOVED_WITHIN: Duration = Duration::from_secs(15);

/// Pods are not looked for after this time: a later deletion has another reason.
const LOOKED_FOR_WITHIN: Duration = Duration::from_secs(60);

impl Episode {
    /// Returns whether it stopped its pod so long before `now` that a deleted pod has no directory any more.
    fn has_stopped_pod(&self, now: UnixMicros) -> bool {
        let since = now.since(self.ended);
        let is_due = (DIRECTORY_REMOVED_WITHIN..LOOKED_FOR_WITHIN).contains(&since);
        let is_whole = self.kind == Kind::Stop && self.sandbox_stopped;
        is_whole && is_due && self.state == EpisodeState::Ok && self.found_after_stop.is_none()
    }
}

impl EpisodeStore {
    /// The pods that were stopped some seconds ago and have not been looked for since.
    pub(crate) fn stopped_pods(&self, now: UnixMicros) -> Vec<Arc<PodIdentity>> {
        let stops = self.episodes().filter(|stop| stop.has_stopped_pod(now));
        stops.map(|stop| Arc::clone(&stop.pod)).collect()
    }

    /// Notes that the directory of a stopped pod was found at `at`.
    pub(crate) fn note_found_after_stop(&mut self, pod: &PodIdentity, at: UnixMicros) {
        let mut stops = self.episodes_of(pod);
        let number = stops
            .find(|stop| stop.has_stopped_pod(at))
            .map(|stop| stop.number);
        drop(stops);
        if let Some(stop) = number.and_then(|number| self.get_mut(number)) {
            stop.found_after_stop = Some(at);
        }
    }

    /// The pods whose directory was found after their stop, and not seen to be gone since.
    pub(crate) fn kept_pods(&self) -> Vec<Arc<PodIdentity>> {
        let kept = self
            .episodes()
            .filter(|stop| stop.found_after_stop.is_some());
        kept.map(|stop| Arc::clone(&stop.pod)).collect()
    }

    /// Notes that the directory of a stopped pod is gone: on a busy node the kubelet removes it late.
    pub(crate) fn note_gone_after_stop(&mut self, pod: &PodIdentity) {
        let stops = self.episodes_of(pod);
        let kept = stops.filter(|stop| stop.found_after_stop.is_some());
        let numbers: Vec<_> = kept.map(|stop| stop.number).collect();
        for number in numbers {
            if let Some(stop) = self.get_mut(number) {
                stop.found_after_stop = None;
            }
        }
    }
}
