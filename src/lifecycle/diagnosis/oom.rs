//! OOM kills in containers that run on.

use crate::call::episode::Kind;
use crate::cri::Method;
use crate::cri::subject::ContainerIdentity;
use crate::lifecycle::episode_store::{ContainerOomKills, Episode};

/// The newest OOM kills in a container of these episodes of a pod that has neither ended nor been stopped or started again since.
pub(super) fn newest_oom_kills<'a>(pod: &[&'a Episode]) -> Option<&'a ContainerOomKills> {
    let all = pod.iter().flat_map(|episode| &episode.oom_kills);
    all.filter(|kills| runs(kills, pod))
        .max_by_key(|kills| kills.last)
}

fn runs(kills: &ContainerOomKills, pod: &[&Episode]) -> bool {
    let (name, attempt) = (&*kills.container.name, kills.container.attempt);
    let exits = || pod.iter().flat_map(|episode| &episode.exits);
    let has_ended = exits().any(|exit| *exit.container == *name && exit.attempt >= attempt);
    let calls = || {
        pod.iter()
            .flat_map(|e| e.calls.iter().map(move |call| (*e, call)))
    };
    let is_over = calls().any(|(episode, call)| {
        let is_its = call.container_name() == Some(name);
        match call.method {
            Method::StopPodSandbox | Method::RunPodSandbox => call.began_us() > kills.last,
            Method::StopContainer => is_its && call.began_us() > kills.last,
            Method::StartContainer => {
                let later = |it: &ContainerIdentity| it.attempt > attempt;
                let is_later = call.container.as_deref().is_some_and(later);
                is_its && is_later && call.is_good() && episode.kind != Kind::Stop
            }
            _ => false,
        }
    });
    !has_ended && !is_over
}
