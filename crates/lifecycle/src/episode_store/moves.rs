//! Calls that turn out to belong to another episode than the one they were first counted to.

use std::sync::Arc;

use super::assign::Assignment;
use super::{Episode, EpisodeStore};
use crate::episode_call::EpisodeCall;
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::PodIdentity;

impl EpisodeStore {
    /// A container created for the first time after the start was closed may have waited for a long init container. Its
    /// episode then begins with that container's run.
    pub(super) fn count_wait(&mut self, number: u64, pod: &PodIdentity, call: &EpisodeCall) {
        let is_first = call.container.as_ref().is_some_and(|c| c.attempt == 0);
        let episode = self
            .get(number)
            .filter(|episode| episode.kind == Kind::Restart && episode.exits.is_empty());
        let Some(episode) = episode.filter(|_| is_first && call.method == Method::CreateContainer)
        else {
            return;
        };
        let before = self
            .episodes_of(pod)
            .find(|other| other.kind != Kind::Stop && other.number < number);
        let done = before.and_then(|before| Some((before.last_done(episode.began)?, before.ended)));
        let Some((exit, since)) = done.filter(|(exit, _)| !exit.is_of(call)) else {
            return;
        };
        let exit = exit.clone();
        if let Some(episode) = self.episodes.get_mut(&number) {
            episode.wait_for(exit, since);
        }
    }

    /// The pull just before a container is recreated belongs to the restart, even if it came while the start of the pod, or
    /// the previous restart, was still open. Moves it from there.
    pub(super) fn pull_before(
        &mut self,
        pod: &PodIdentity,
        call: &EpisodeCall,
    ) -> Option<EpisodeCall> {
        let creates = call.method == Method::CreateContainer;
        if !creates || self.assign(call) != Assignment::New(Kind::Restart) {
            return None;
        }
        let ends_with_pull = self.episodes_of(pod).find(|episode| {
            let last = episode.calls.back();
            let pulled = last.is_some_and(|c| c.method == Method::PullImage && c.is_good());
            episode.is_open() && episode.kind != Kind::Stop && episode.calls.len() > 1 && pulled
        });
        let number = ends_with_pull?.number;
        let episode = self.episodes.get_mut(&number)?;
        let (seq, began) = episode.calls.back().map(|c| (c.seq, c.began))?;
        let mut pulls = episode.take_calls(|c| c.seq == seq && c.began == began);
        pulls.pop()
    }

    /// A container with a failed probe is stopped and recreated: that is one restart, so the kubelet's stop is moved to it. What other
    /// callers stop or remove is no part of the restart after it.
    pub(super) fn claim_kill(&mut self, number: u64, call: &EpisodeCall) {
        let Some(name) = call.container_name() else {
            return;
        };
        let Some(pod) = call.pod.as_deref() else {
            return;
        };
        let is_restart = self
            .episodes
            .get(&number)
            .is_some_and(|t| t.kind == Kind::Restart);
        if !is_restart || call.method != Method::CreateContainer {
            return;
        }
        let sandbox = call.sandbox_id.as_deref();
        let Some(stop) = self
            .episodes_of(pod)
            .find(|t| t.is_open() && t.is_tentative() && t.is_of_sandbox(pod, sandbox))
            .map(|stop| stop.number)
        else {
            return;
        };
        let Some(episode) = self.episodes.get_mut(&stop) else {
            return;
        };
        let kills = episode.take_calls(|c| c.container_name() == Some(name) && c.peer.is_kubelet());
        if episode.calls.is_empty() {
            self.remove(stop);
        }
        if let Some(restart) = self.episodes.get_mut(&number) {
            kills.into_iter().for_each(|kill| restart.add(kill));
        }
    }

    /// After a long init container the pull of the next container's image may have come before it was known whose it is. Moves
    /// it to the start that the container continues.
    pub(super) fn claim_pull(&mut self, number: u64, pod: &PodIdentity, call: &EpisodeCall) {
        let episode = self.episodes.get(&number);
        let is_start = episode.is_some_and(|t| t.kind == Kind::Start);
        if !is_start || call.method != Method::CreateContainer {
            return;
        }
        let sandbox = call.sandbox_id.as_deref();
        let Some(pull) = self
            .episodes_of(pod)
            .find(|t| {
                let only_pulls = t.kind == Kind::Restart && t.container.is_none();
                t.is_open() && only_pulls && t.is_of_sandbox(pod, sandbox)
            })
            .map(|restart| restart.number)
        else {
            return;
        };
        let pulls = self.episodes.get_mut(&pull).map(|t| t.take_calls(|_| true));
        self.remove(pull);
        if let Some(start) = self.episodes.get_mut(&number) {
            let pulls = pulls.into_iter().flatten();
            pulls.for_each(|pull| start.add(pull));
        }
    }

    /// Moves the containers that were added to a running pod out of its start, which ended before. Which containers are added shows
    /// only once the kubelet's checkpoint is read.
    pub(super) fn move_added(&mut self, number: u64) {
        let Some((name, since)) = self.get(number).and_then(Episode::added_container) else {
            return;
        };
        let Some(start) = self.get_mut(number) else {
            return;
        };
        let pod = Arc::clone(&start.pod);
        let calls = start.take_calls(|call| {
            let is_pull = call.method == Method::PullImage;
            call.began_at() > since && (is_pull || call.container_name() == Some(&*name))
        });
        let Some(first) = calls.iter().find(|call| call.container.is_some()) else {
            return;
        };
        let added = self.open(Kind::Restart, &pod, first);
        if let Some(added) = self.get_mut(added) {
            calls.into_iter().for_each(|call| added.add(call));
        }
        self.move_added(number);
    }

    /// A restart resolves failures of the start.
    pub(super) fn resolve_in_start(&mut self, pod: &PodIdentity, call: &EpisodeCall) {
        let start = self
            .episodes_of(pod)
            .find(|t| t.is_open() && t.kind == Kind::Start);
        let Some(number) = start.map(|t| t.number) else {
            return;
        };
        if let (Some(episode), Some(name)) = (self.episodes.get_mut(&number), call.container_name())
        {
            episode.resolve_container(name);
        }
    }
}
