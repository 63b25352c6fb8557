//! Containers that ended because the node was restarted.

use std::collections::BTreeSet;

use super::cause::Cause;
use super::history;
use crate::episode_store::Episode;
use criscope_cri::Method;

/// The containers of a pod that ended with the node, if nothing of the pod was made since.
pub(super) fn ended_with_node<'a>(pod: &[&'a Episode]) -> Option<Cause<'a>> {
    let exits = history::exits(pod);
    let boots = exits.clone().filter_map(|exit| exit.node_restarted);
    let booted = boots.max()?;
    let is_made_again = history::calls(pod).any(|call| {
        let makes = matches!(
            call.method,
            Method::RunPodSandbox
                | Method::RestorePod
                | Method::PullImage
                | Method::CreateContainer
        );
        makes && call.began_at() >= booted
    });
    let ended = exits.filter(|exit| exit.node_restarted == Some(booted));
    let names: BTreeSet<_> = ended.map(|exit| &*exit.container).collect();
    let containers = names.into_iter().collect();
    (!is_made_again).then_some(Cause::EndedWithNode { containers, booted })
}
