//! Containers that are down because their image was changed: the kubelet stops them first, and gets the new image then.

use std::time::Duration;

use super::cause::Cause;
use super::{containers, history};
use crate::episode_call::EpisodeCall;
use crate::episode_store::Episode;
use criscope_cri::Method;
use criscope_cri::units::times::UnixMicros;

/// A container that the kubelet stopped, and whose image is pulled now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DownForImage<'a> {
    pub(super) container: &'a str,
    /// Since it was stopped.
    pub(super) ago: Duration,
    /// True if it was created from another image before.
    pub(super) is_new_image: bool,
}

/// The container that waits for the pull that this cause is about.
pub(super) fn down_for_image<'a>(
    cause: &Cause<'_>,
    pod: &[&'a Episode],
    now: UnixMicros,
) -> Option<DownForImage<'a>> {
    let pull = match cause {
        Cause::CallInFlight(call) => call.call,
        Cause::CallFails(failure) => failure.last,
        _ => return None,
    };
    let (container, stop) =
        containers::stopped_by_kubelet(pod).filter(|_| pull.method == Method::PullImage)?;
    (stop.began_at() <= pull.began_at()).then(|| DownForImage {
        container: &container.name,
        ago: now.since(stop.ended_at()),
        is_new_image: is_new(pull, &container.name, pod),
    })
}

/// Returns whether the container was created from another image last.
fn is_new(pull: &EpisodeCall, container: &str, pod: &[&Episode]) -> bool {
    let creates = history::calls(pod).filter(|call| {
        call.method == Method::CreateContainer && call.container_name() == Some(container)
    });
    let last = creates.max_by_key(|call| call.began);
    let image = last.and_then(|call| call.image.as_deref());
    image.is_some_and(|image| pull.image.as_deref() != Some(image))
}
