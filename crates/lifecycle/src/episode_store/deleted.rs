//! Pods that are deleted before they have a sandbox. The kubelet makes no call for that; it removes the directory of the pod, and one
//! of its spans shows that it ended the pod.

use std::sync::Arc;
use std::time::Duration;

use super::{Episode, EpisodeStore};
use crate::view::EpisodeState;
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::UnixMicros;

/// The kubelet repeats a failed RunPodSandbox after 10 to 15 seconds; twice that is late.
const SANDBOX_RETRY_OVERDUE: Duration = Duration::from_secs(30);

impl Episode {
    /// Returns whether it waits for another try of RunPodSandbox, or waited for it in vain.
    fn awaits_sandbox(&self) -> bool {
        let waits = matches!(self.state, EpisodeState::Open | EpisodeState::Failed)
            && self.deleted.is_none();
        let last = self.calls.back();
        waits && self.failures > 0 && self.lacks_sandbox() && last.is_some_and(|call| call.is_bad())
    }

    /// Returns whether the kubelet should have tried again to make the sandbox by `now`, and has not. It tries until the pod is
    /// deleted.
    pub(crate) fn is_not_tried_again(&self, now: UnixMicros) -> bool {
        self.awaits_sandbox() && now >= self.ended + SANDBOX_RETRY_OVERDUE
    }
}

impl EpisodeStore {
    /// The pods whose sandbox could not be made so far.
    pub(crate) fn without_sandbox(&self) -> Vec<Arc<PodIdentity>> {
        let waiting = self.open_episodes().filter(|start| start.awaits_sandbox());
        waiting.map(|start| Arc::clone(&start.pod)).collect()
    }

    /// Notes that a pod without a sandbox was found to be deleted at `at`. Returns whether this is new.
    pub(crate) fn note_deleted(&mut self, pod: &PodIdentity, at: UnixMicros) -> bool {
        let number = self
            .episodes_of(pod)
            .find(|episode| episode.kind == Kind::Start && episode.awaits_sandbox())
            .map(|start| start.number);
        let Some(episode) = number.and_then(|number| self.get_mut(number)) else {
            return false;
        };
        episode.deleted = Some(at);
        let (number, state) = (episode.number, episode.cut_short());
        self.close(number, state);
        true
    }
}
