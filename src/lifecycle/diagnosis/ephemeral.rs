//! Ephemeral containers, such as `kubectl debug` adds to a running pod. The CRI does not mark them, and they are never started again.

use crate::call::episode::Kind;
use crate::cri::Method;
use crate::lifecycle::episode_store::Episode;

/// Returns whether an episode of this pod is about a container that was added to it: the first start of one that is not known to be of the
/// pod's manifest, while others ran. A problem of it says nothing about the pod.
pub(super) fn is_ephemeral(episode: &Episode, pod: &[&Episode]) -> bool {
    if episode.kind != Kind::Restart {
        return false;
    }
    let before = || pod.iter().filter(|other| other.began < episode.began);
    match episode.container.as_deref() {
        Some(container) => {
            let mut starts = pod.iter().filter(|other| other.kind == Kind::Start);
            let is_of_manifest = starts.any(|start| start.expects_container(&container.name));
            let has_run = before().any(|other| other.has_run(&container.name));
            container.attempt == 0 && !is_of_manifest && !has_run
        }
        // Only its image was asked for.
        None => {
            let pulls = |other: &Episode| {
                let mut calls = other.calls.iter();
                let image = episode.calls.front().and_then(|call| call.image.as_deref());
                calls.any(|call| call.method == Method::PullImage && call.image.as_deref() == image)
            };
            !before().any(|other| pulls(other))
        }
    }
}
