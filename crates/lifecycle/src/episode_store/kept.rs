//! Pods that were stopped: whether they still exist. A pod that is deleted loses its directory some seconds after its sandbox was
//! stopped; one that is evicted, or past its deadline, stays in the API as failed.

use std::sync::Arc;
use std::time::Duration;

use super::{Episode, EpisodeStore};
use crate::episode_call::EpisodeCall;
use crate::view::EpisodeState;
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::UnixMicros;

/// The kubelet removes the directory of a deleted pod within some seconds: it looks for such directories every two
/// (`housekeepingPeriod` in `pkg/kubelet/kubelet.go`).
const DIRECTORY_REMOVED_WITHIN: Duration = Duration::from_secs(15);

/// Pods are not looked for after this time: a later deletion has another reason.
const LOOKED_FOR_WITHIN: Duration = Duration::from_secs(60);

impl Episode {
    /// Returns whether the kubelet stopped its pod in it, and the pod is not known to be gone. Pods of other clients have no directory.
    fn has_stopped_pod(&self) -> bool {
        let mut ends = self
            .calls
            .iter()
            .filter(|call| call.method == Method::StopPodSandbox && call.is_good());
        let is_by_kubelet = ends.any(|call| call.peer.is_kubelet());
        let is_whole = self.kind == Kind::Stop && self.sandbox_stopped && is_by_kubelet;
        is_whole && self.state == EpisodeState::Ok && self.deleted.is_none()
    }

    /// Returns whether it stopped its pod a short time ago.
    fn has_just_stopped_pod(&self, now: UnixMicros) -> bool {
        let is_due = now.since(self.ended) < LOOKED_FOR_WITHIN;
        is_due && self.has_stopped_pod() && self.found_after_stop.is_none()
    }

    /// Returns whether it stopped its pod so long before `now` that a deleted pod has no directory any more.
    fn keeps_pod(&self, now: UnixMicros) -> bool {
        self.has_just_stopped_pod(now) && now.since(self.ended) >= DIRECTORY_REMOVED_WITHIN
    }
}

impl EpisodeStore {
    /// The pods that were stopped a short time ago, and of which it is not known whether they still exist.
    pub(crate) fn stopped_pods(&self, now: UnixMicros) -> Vec<Arc<PodIdentity>> {
        let stops = self
            .episodes()
            .filter(|stop| stop.has_just_stopped_pod(now));
        stops.map(|stop| Arc::clone(&stop.pod)).collect()
    }

    /// Notes that the directory of a stopped pod was found at `at`. Returns whether that is news: a pod that is deleted loses it some
    /// seconds after its stop.
    pub(crate) fn note_found_after_stop(&mut self, pod: &PodIdentity, at: UnixMicros) -> bool {
        let mut stops = self.episodes_of(pod);
        let number = stops
            .find(|stop| stop.keeps_pod(at))
            .map(|stop| stop.number);
        drop(stops);
        let stop = number.and_then(|number| self.get_mut(number));
        stop.is_some_and(|stop| stop.found_after_stop.replace(at).is_none())
    }

    /// Notes that the sandbox of a stopped pod was removed. Returns whether that is news.
    pub(super) fn note_removed(&mut self, pod: &PodIdentity, call: &EpisodeCall) -> bool {
        if call.method != Method::RemovePodSandbox || !call.is_good() {
            return false;
        }
        let sandbox = call.sandbox_id.as_deref();
        let mut stops = self.episodes_of(pod).filter(|stop| {
            let is_own = stop.kind == Kind::Stop && stop.is_of_sandbox(pod, sandbox);
            is_own && stop.sandbox_stopped && stop.state == EpisodeState::Ok
        });
        let number = stops.next().map(|stop| stop.number);
        drop(stops);
        let stop = number.and_then(|number| self.get_mut(number));
        let Some(stop) = stop.filter(|stop| stop.deleted.is_none()) else {
            return false;
        };
        stop.deleted = Some(call.ended_at());
        true
    }

    /// The pods whose directory was found after their stop, and not seen to be gone since.
    pub(crate) fn kept_pods(&self) -> Vec<Arc<PodIdentity>> {
        let kept = self
            .episodes()
            .filter(|stop| stop.found_after_stop.is_some() && stop.has_stopped_pod());
        kept.map(|stop| Arc::clone(&stop.pod)).collect()
    }

    /// Notes that the directory of a stopped pod was gone at `at`: the pod was deleted. On a busy node the kubelet removes it late.
    pub(crate) fn note_gone_after_stop(&mut self, pod: &PodIdentity, at: UnixMicros) {
        let stops = self.episodes_of(pod);
        let stops = stops.filter(|stop| stop.has_stopped_pod());
        let numbers: Vec<_> = stops.map(|stop| stop.number).collect();
        for number in numbers {
            if let Some(stop) = self.get_mut(number) {
                stop.found_after_stop = None;
                stop.deleted = Some(at);
            }
        }
    }
}
