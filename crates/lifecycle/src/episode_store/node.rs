//! Facts about the node in episodes.

use std::time::Duration;

use opentelemetry::trace::SpanId;

use super::syncs::seen_before;
use super::{Episode, EpisodeStore};
use crate::diagnosis::REPLACED_AFTER_DOWNTIME_WITHIN;
use crate::episode_call::EpisodeCall;
use crate::node::{NodeFact, NodeFactKind, PressureSample, PressureSpan, is_same, note};
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

/// A kubelet that was away sees its new pods this long after it has connected.
const PODS_SEEN_WITHIN: Duration = Duration::from_secs(10);
/// The first container of a pod that is created this long after a downtime was perhaps preceded by calls that criscope did not see.
const CREATED_AFTER_DOWNTIME_WITHIN: Duration = Duration::from_secs(300);

impl Episode {
    /// The pressure during it, if a resource was short.
    pub(crate) fn scarcity(&self) -> Option<PressureSpan> {
        self.pressure
            .filter(|pressure| pressure.short_of().is_some())
    }
}

impl EpisodeStore {
    /// Notes a fact that began or ended. Episodes get it if they have its begin, open ones of its time, and closed ones whose first call
    /// had waited for criscope.
    pub(crate) fn note_fact(&mut self, fact: NodeFact) {
        for (number, episode) in &mut self.episodes {
            let concerns = if self.open.contains(number) {
                fact.to.is_none_or(|to| to > episode.began)
            } else {
                fact.held_up(episode.began)
            };
            // The end of a fact is noticed only after it, perhaps in the middle of an episode that began after it.
            let is_known = episode.node.iter().any(|known| is_same(known, &fact));
            if concerns || is_known {
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

    /// Notes the pressure during the episode with this root span, as an earlier process measured it.
    pub(crate) fn put_pressure(&mut self, root: SpanId, pressure: PressureSpan) {
        let mut newest_first = self.episodes.values_mut().rev();
        if let Some(episode) = newest_first.find(|episode| episode.ids().root == root) {
            episode.pressure = Some(pressure);
        }
    }

    /// The facts about the node that hold.
    pub(crate) fn holding(&self) -> impl Iterator<Item = &NodeFact> {
        self.node.holding()
    }

    /// The same, to keep.
    pub(crate) fn facts(&self) -> Vec<NodeFact> {
        self.holding().cloned().collect()
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

    /// The end of the run after which this restart begins. What was the matter with the node since then may have delayed the restart.
    fn run_ended_before(&self, restart: &Episode, first: &EpisodeCall) -> Option<UnixMicros> {
        if restart.kind != Kind::Restart {
            return None;
        }
        let exits = self
            .episodes_of(&restart.pod)
            .flat_map(|known| &known.exits)
            .filter(|exit| exit.at <= restart.began);
        // A pull does not name the container that it is for.
        let own = exits.filter(|exit| {
            first
                .container_name()
                .is_none_or(|name| *exit.container == *name)
        });
        own.map(|exit| exit.at).max()
    }

    /// Adds to a new episode the facts since its begin, since the kubelet saw its pod, or since the run before ended; to the start of a new
    /// pod also the absence of the kubelet before that.
    pub(super) fn add_node_facts(&self, episode: &mut Episode, first: &EpisodeCall) {
        let seen = episode.began - seen_before(Some(first));
        let seen = seen.min(self.run_ended_before(episode, first).unwrap_or(seen));
        for fact in self.node.since(seen) {
            note(&mut episode.node, fact);
        }
        let mut known = self.node.since(UnixMicros::EPOCH);
        if let Some(fact) = known.find(|fact| fact.held_up(episode.began)) {
            note(&mut episode.node, fact);
        }
        if first.method.makes_sandbox() && episode.pod.attempt == 0 {
            let before = self.node.since(seen - PODS_SEEN_WITHIN);
            let mut absences = before.filter(|fact| fact.kind == NodeFactKind::NoKubelet);
            if let Some(absence) = absences.find(|fact| fact.to.is_some_and(|to| to <= seen)) {
                note(&mut episode.node, absence);
            }
        }
        if first.method.makes_sandbox() && episode.pod.attempt > 0 {
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
            && !first.method.makes_sandbox()
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
