//! What the requests for containers say, for the events that follow them.

use std::sync::Arc;

use super::{CallEffect, EpisodeStore};
use crate::episode_call::EpisodeCall;
use criscope_cri::Method;
use criscope_cri::container_request::ContainerRequest;
use criscope_cri::subject::PodIdentity;

impl EpisodeStore {
    /// What was requested for this run of a container, with the limits that later calls changed.
    pub(super) fn request_of(
        &self,
        pod: &PodIdentity,
        name: &str,
        attempt: u32,
    ) -> Option<Arc<ContainerRequest>> {
        let mut calls = self.episodes_of(pod).flat_map(|episode| &episode.calls);
        let created = calls.find(|call| {
            let container = call.container.as_deref();
            call.method == Method::CreateContainer
                && container.is_some_and(|known| *known.name == *name && known.attempt == attempt)
        })?;
        created.facts.container_request().cloned()
    }

    /// Changes the limits of the container that an UpdateContainerResources names. A change of CPU sets alone is no news.
    pub(super) fn update_limits(&mut self, call: &EpisodeCall) -> CallEffect {
        let limits = call.facts.new_limits().filter(|_| call.is_good());
        let (Some(limits), Some(id)) = (limits, call.container_id.as_deref()) else {
            return CallEffect::Nothing;
        };
        let mut calls = self.episodes.values_mut().rev().flat_map(|episode| {
            let calls = episode.calls.iter_mut();
            calls.filter(|known| known.facts.container_request().is_some())
        });
        let Some(created) = calls.find(|known| known.container_id.as_deref() == Some(id)) else {
            return CallEffect::Nothing;
        };
        created.update_limits(limits);
        CallEffect::Noticed
    }
}
