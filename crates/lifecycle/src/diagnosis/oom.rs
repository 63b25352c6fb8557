//! OOM kills in containers that run on.

use super::history;
use crate::episode_store::{ContainerOomKills, Episode};
use criscope_cri::Method;

/// The newest OOM kills in a container of a pod that runs on: it has neither ended nor been stopped or started again since.
pub(super) fn newest_oom_kills<'a>(pod: &[&'a Episode]) -> Option<&'a ContainerOomKills> {
    let all = pod.iter().flat_map(|episode| &episode.oom_kills);
    all.filter(|kills| runs_on(kills, pod))
        .max_by_key(|kills| kills.last)
}

fn runs_on(kills: &ContainerOomKills, pod: &[&Episode]) -> bool {
    let (name, attempt) = (&*kills.container.name, kills.container.attempt);
    let mut exits = history::exits(pod);
    if exits.any(|exit| *exit.container == *name && exit.attempt >= attempt) {
        return false;
    }
    !history::calls(pod).any(|call| {
        let is_of_container = call.container_name() == Some(name);
        match call.method {
            Method::StopPodSandbox | Method::RunPodSandbox | Method::RestorePod => {
                call.began_at() > kills.last
            }
            Method::StopContainer => is_of_container && call.began_at() > kills.last,
            Method::StartContainer => {
                let container = call.container.as_deref();
                let is_later = container.is_some_and(|container| container.attempt > attempt);
                is_of_container && is_later && call.is_good()
            }
            _ => false,
        }
    })
}
