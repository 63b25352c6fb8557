//! Facts about the node in episodes.

use std::time::Duration;

use super::syncs::seen_before;
use super::{Episode, EpisodeStore};
use crate::diagnosis::REPLACED_AFTER_DOWNTIME_WITHIN;
use crate::episode_call::EpisodeCall;
use crate::node::{NodeFact, PressureSample, is_same, note};
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

/// The first container of a pod that is created this long after a downtime was perhaps preceded by calls that criscope did not see.
const CREATED_AFTER_DOWNTIME_WITHIN: Duration = Duration::from_secs(300);

impl EpisodeStore {
    /// Notes a fact that began or ended. Open episodes of its time get it. Closed episodes get it if they have its begin, or if their
    /// first call had waited for criscope.
    pub(crate) fn note_fact(&mut self, fact: NodeFact) {
        for (number, episode) in &mut self.episodes {
            let concerns = if self.open.contains(number) {
                fact.to.is_none_or(|to| to > episode.began)
            } else {
                fact.held_up(episode.began)
                    || episode.node.iter().any(|known| is_same(known, &fact))
            };
            if concerns {
                note(&mut episode.node, &fact);
            }
        }
        self.node.put(fact);
    }

    /// Adds a sample of pressure to the open episodes.
    pub(crate) fn note_pressure(&mut self, sample: PressureSample) {
        for number in &self.open {
            let episode = self.episodes.get_mut(number);
            if let Some(pressure) = episode.and_then(|episode| episode.pressure.as_mut()) {
                pressure.extend(sample);
            }
        }
        self.node.sample(sample);
    }

    /// The facts about the node that hold.
    pub(crate) fn facts(&self) -> Vec<NodeFact> {
        self.node.holding().cloned().collect()
    }

    /// The facts that held at some time since then.
    pub(crate) fn node_since(&self, from: UnixMicros) -> Vec<NodeFact> {
        self.node.since(from).cloned().collect()
    }

    /// Returns whether a kubelet made one of the calls.
    pub(crate) fn has_seen_kubelet(&self) -> bool {
        let mut calls = self.episodes.values().flat_map(|episode| &episode.calls);
        calls.any(|call| call.peer.is_kubelet())
    }

    /// Adds to a new episode the facts since its begin, or since the kubelet saw its pod.
    pub(super) fn add_node_facts(&self, episode: &mut Episode, first: &EpisodeCall) {
        let seen = episode.began - seen_before(Some(first));
        for fact in self.node.since(seen) {
            note(&mut episode.node, fact);
        }
        let mut known = self.node.since(UnixMicros::EPOCH);
        if let Some(fact) = known.find(|fact| fact.held_up(episode.began)) {
            note(&mut episode.node, fact);
        }
        if first.method == Method::RunPodSandbox && episode.pod.attempt > 0 {
            let before = self.node.since(seen - REPLACED_AFTER_DOWNTIME_WITHIN);
            for fact in before.filter(|fact| fact.to.is_some_and(|to| to <= seen)) {
                note(&mut episode.node, fact);
            }
            // However late: none of the sandboxes of before is left.
            if let Some(restart) = self.node.restarts().next() {
                note(&mut episode.node, restart);
            }
        }
        episode.pressure = self.node.pressure();
        let container = first.container.as_deref();
        let is_first = container.is_none_or(|container| container.attempt == 0);
        if episode.kind != Kind::Stop
            && first.method != Method::RunPodSandbox
            && is_first
            && self.episodes_of(&episode.pod).next().is_none()
            && let Some(down) = self
                .node
                .downtime(episode.began, CREATED_AFTER_DOWNTIME_WITHIN)
        {
            note(&mut episode.node, down);
        }
    }
}
