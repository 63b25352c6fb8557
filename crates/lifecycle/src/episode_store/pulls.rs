//! The containers that pulls are for. A pull names its pod, and no container.

use std::collections::BTreeMap;

use super::{Episode, EpisodeStore};
use crate::episode_call::EpisodeCall;
use criscope_cri::Method;
use criscope_cri::subject::{ContainerIdentity, PodIdentity};
use criscope_cri::units::times::UnixMicros;

/// State of a container when a pull began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StateAtPull {
    Up,
    /// Ended with exit code 0 by itself, as an init container does.
    Done,
    /// Stopped, or failed.
    Down,
}

impl EpisodeStore {
    /// Returns whether the failed pulls of an episode were for this container: no other one was down when the first of them began.
    pub(super) fn pulls_for(
        &self,
        episode: &Episode,
        pod: &PodIdentity,
        container: &ContainerIdentity,
    ) -> bool {
        let mut calls = episode.calls.iter();
        let first = calls.find(|call| call.method == Method::PullImage && call.is_bad());
        let Some(first) = first.filter(|_| episode.container.is_none()) else {
            return false;
        };
        let states = self.states_at(pod, first.began_at());
        let is_down = states
            .get(&*container.name)
            .is_some_and(|state| *state != StateAtPull::Up);
        let mut others = states.iter().filter(|(name, _)| ***name != *container.name);
        is_down && others.all(|(_, state)| *state != StateAtPull::Down)
    }

    /// Returns whether a pull is for a container that was added to the running pod: the start has started every container that the kubelet
    /// has written down, and none of them is down.
    pub(super) fn is_pull_for_added(
        &self,
        start: &Episode,
        pod: &PodIdentity,
        pull: &EpisodeCall,
    ) -> bool {
        let states = self.states_at(pod, pull.began_at());
        let mut states = states.values();
        start.has_started_all()
            && start.is_resolved()
            && states.all(|state| *state != StateAtPull::Down)
    }

    /// The state of each container of this sandbox at this time.
    fn states_at<'a>(
        &'a self,
        pod: &'a PodIdentity,
        time: UnixMicros,
    ) -> BTreeMap<&'a str, StateAtPull> {
        let own = self.episodes_of(pod);
        let own = own.filter(|episode| episode.pod.attempt == pod.attempt);
        let calls = own.clone().flat_map(|episode| &episode.calls);
        let mut starts = BTreeMap::<&str, &EpisodeCall>::new();
        for call in calls.clone() {
            let is_start = call.has_started() && call.began_at() <= time;
            let Some(name) = call.container_name().filter(|_| is_start) else {
                continue;
            };
            let newest = starts.entry(name).or_insert(call);
            if newest.began < call.began {
                *newest = call;
            }
        }
        let states = starts.into_iter().map(|(name, start)| {
            let mut exits = own.clone().flat_map(|episode| &episode.exits);
            let exit = exits.find(|exit| exit.is_of_start(start) && exit.at <= time);
            let is_stopped = calls.clone().any(|call| {
                call.method == Method::StopContainer
                    && call.is_good()
                    && call.container == start.container
                    && (start.began_at()..=time).contains(&call.began_at())
            });
            let state = match exit {
                _ if is_stopped => StateAtPull::Down,
                Some(exit) if exit.is_good() => StateAtPull::Done,
                Some(_) => StateAtPull::Down,
                None => StateAtPull::Up,
            };
            (name, state)
        });
        states.collect()
    }

    /// Forgets the failed pulls of the pod's start that were for this container, which was started from another image.
    pub(super) fn resolve_pulls_in_start(&mut self, pod: &PodIdentity, start: &EpisodeCall) {
        let Some(container) = start.container.as_deref() else {
            return;
        };
        let number = {
            let mut open = self.episodes_of(pod).filter(|episode| episode.is_open());
            let failing = open.find(|episode| self.pulls_for(episode, pod, container));
            failing.map(|episode| episode.number)
        };
        let Some(number) = number else {
            return;
        };
        if let Some(episode) = self.get_mut(number) {
            episode.resolve_pulls();
        }
    }
}
