//! The facts of the last hours, bounded.

use std::collections::VecDeque;
use std::time::Duration;

use super::NodeFact;
#[cfg(test)]
use super::NodeFactKind;
use super::pressure::{PressureSample, PressureSpan};
use criscope_cri::units::times::UnixMicros;

/// Upper bound of facts that are remembered.
const MAX_FACTS: usize = 64;

/// Upper bound of facts of one episode.
const MAX_EPISODE_FACTS: usize = 8;

/// Facts, the oldest first, and the newest sample of pressure.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeHistory {
    facts: VecDeque<NodeFact>,
    pressure: Option<PressureSample>,
}

impl NodeHistory {
    /// Adds a fact, or replaces its earlier state.
    pub(crate) fn put(&mut self, fact: NodeFact) {
        match self.facts.iter_mut().find(|f| is_same(f, &fact)) {
            Some(known) => *known = fact,
            None => {
                if self.facts.len() >= MAX_FACTS {
                    self.facts.pop_front();
                }
                self.facts.push_back(fact);
            }
        }
    }

    /// The facts that hold now.
    pub(crate) fn holding(&self) -> impl Iterator<Item = &NodeFact> {
        self.facts.iter().filter(|fact| fact.holds())
    }

    /// The facts that held at some time since `from`.
    pub(crate) fn since(&self, from: UnixMicros) -> impl Iterator<Item = &NodeFact> {
        let facts = self.facts.iter();
        facts.filter(move |fact| fact.to.is_none_or(|to| to > from))
    }

    /// The last downtime of criscope, if it ended at most `within` before `at`.
    pub(crate) fn downtime(&self, at: UnixMicros, within: Duration) -> Option<&NodeFact> {
        let mut facts = self.facts.iter().rev();
        facts.find(|fact| {
            fact.is_downtime() && fact.to.is_some_and(|to| to <= at && at.since(to) <= within)
        })
    }

    /// The restarts of the node, the newest first.
    pub(crate) fn restarts(&self) -> impl Iterator<Item = &NodeFact> {
        let facts = self.facts.iter().rev();
        facts.filter(|fact| fact.booted().is_some())
    }

    /// Takes a new sample of pressure.
    pub(crate) fn sample(&mut self, sample: PressureSample) {
        self.pressure = Some(sample);
    }

    /// Pressure from the newest sample on.
    pub(crate) fn pressure(&self) -> Option<PressureSpan> {
        self.pressure.map(PressureSpan::new)
    }
}

/// Returns whether both are the same fact, at its begin or at its end.
pub(crate) fn is_same(one: &NodeFact, other: &NodeFact) -> bool {
    one.kind == other.kind && one.from == other.from
}

/// Adds a fact to the facts of an episode, or replaces its earlier state.
pub(crate) fn note(facts: &mut Vec<NodeFact>, fact: &NodeFact) {
    let known = facts.iter().position(|f| is_same(f, fact));
    // A full list loses its newest fact for the new one: the current state matters most.
    let place = known.or_else(|| {
        facts
            .len()
            .checked_sub(1)
            .filter(|_| facts.len() >= MAX_EPISODE_FACTS)
    });
    match place.and_then(|place| facts.get_mut(place)) {
        Some(place) => place.clone_from(fact),
        None => facts.push(fact.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(from: u64, to: Option<u64>) -> NodeFact {
        NodeFact {
            to: to.map(UnixMicros::new),
            ..NodeFact::new(NodeFactKind::NoKubelet, UnixMicros::new(from), "")
        }
    }

    #[test]
    fn a_fact_that_ends_replaces_itself_and_the_oldest_are_dropped() {
        let mut history = NodeHistory::default();
        history.put(fact(1, None));
        history.put(fact(1, Some(5)));
        assert_eq!(history.holding().count(), 0);
        assert_eq!(history.since(UnixMicros::new(4)).count(), 1);
        assert_eq!(history.since(UnixMicros::new(5)).count(), 0);
        for n in 10..200 {
            history.put(fact(n, Some(n + 1)));
        }
        assert_eq!(history.since(UnixMicros::new(0)).count(), MAX_FACTS);
        let mut of_episode = Vec::new();
        for n in 0..20 {
            note(&mut of_episode, &fact(n, None));
            note(&mut of_episode, &fact(n, Some(n + 1)));
        }
        assert_eq!(of_episode.len(), MAX_EPISODE_FACTS);
        assert_eq!(of_episode.last(), Some(&fact(19, Some(20))));
    }
}
