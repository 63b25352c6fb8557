//! Ephemeral containers, such as `kubectl debug` adds to a running pod. The CRI does not mark them, and they are never started again.

use super::containers;
use crate::episode_store::Episode;
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;

/// Returns whether an episode is about a container that was added to its running pod: the first start of a container that is not
/// known from the pod's manifest, while others ran. Problems of such a container are no problems of the pod.
pub(super) fn is_ephemeral(episode: &Episode, pod: &[&Episode]) -> bool {
    if episode.kind != Kind::Restart {
        return false;
    }
    let mut earlier = pod.iter().filter(|other| other.began < episode.began);
    match episode.container.as_deref() {
        Some(container) => {
            let mut starts = pod.iter().filter(|other| other.kind == Kind::Start);
            let is_of_manifest = starts.any(|start| start.expects_container(&container.name));
            let has_run = earlier.any(|other| other.has_run(&container.name));
            container.attempt == 0 && !is_of_manifest && !has_run
        }
        // Only an image was pulled so far.
        None if containers::are_all_up(pod, episode.began) => true,
        None => {
            let image = episode.calls.front().and_then(|call| call.image.as_deref());
            let mut calls = earlier.flat_map(|other| &other.calls);
            let is_repeated = calls
                .any(|call| call.method == Method::PullImage && call.image.as_deref() == image);
            !is_repeated && !containers::is_one_down(pod, episode.began)
        }
    }
}
