//! What the episodes of a pod hold together.

use std::time::Duration;

use crate::episode_call::EpisodeCall;
use crate::episode_store::{Episode, ExitRecord};
use crate::timeline::EpisodePhase;
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;

/// All calls of these episodes.
pub(super) fn calls<'a>(
    pod: &[&'a Episode],
) -> impl DoubleEndedIterator<Item = &'a EpisodeCall> + Clone {
    pod.iter().flat_map(|episode| &episode.calls)
}

/// All exits of these episodes.
pub(super) fn exits<'a>(pod: &[&'a Episode]) -> impl Iterator<Item = &'a ExitRecord> + Clone {
    pod.iter().flat_map(|episode| &episode.exits)
}

/// Returns whether a call ends its sandbox. The kubelet and crictl stop a sandbox before they remove it; other callers may remove it at
/// once.
pub(super) fn ends_sandbox(call: &EpisodeCall) -> bool {
    matches!(
        call.method,
        Method::StopPodSandbox | Method::RemovePodSandbox
    )
}

/// Returns whether a container was started in this episode.
pub(super) fn has_started(episode: &Episode) -> bool {
    episode.calls.iter().any(|call| call.has_started())
}

/// Returns whether an unfinished start has not started a container.
pub(super) fn awaits_first_container(episode: &Episode) -> bool {
    episode.is_open() && episode.kind == Kind::Start && !has_started(episode)
}

/// The phase that took most of an episode, and its time.
pub(super) fn longest_phase(episode: &Episode) -> Option<(EpisodePhase, Duration)> {
    let shares = EpisodePhase::ALL.into_iter().zip(episode.shares());
    shares.max_by_key(|(_, time)| *time)
}
