//! The facts of the last hours, bounded.

use std::collections::VecDeque;

#[cfg(test)]
use super::FactKind;
use super::NodeFact;
use super::pressure::{PressureSpan, Sample};

/// Most facts that are remembered.
const MOST_FACTS: usize = 64;

/// Most facts of one episode.
const MOST_OF_EPISODE: usize = 8;

/// Facts, the oldest first, and the newest sample of pressure.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeHistory {
    facts: VecDeque<NodeFact>,
    pressure: Option<Sample>,
}

impl NodeHistory {
    /// Adds a fact, or replaces the same fact as it was before.
    pub(crate) fn put(&mut self, fact: NodeFact) {
        match self.facts.iter_mut().find(|f| is_same(f, &fact)) {
            Some(known) => *known = fact,
            None => {
                if self.facts.len() >= MOST_FACTS {
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
    pub(crate) fn since(&self, from: u64) -> impl Iterator<Item = &NodeFact> {
        let after = move |fact: &&NodeFact| fact.to.is_none_or(|to| to > from);
        self.facts.iter().filter(after)
    }

    /// The last time that criscope was down, if that ended at most `within` before `at`.
    pub(crate) fn downtime(&self, at: u64, within: u64) -> Option<&NodeFact> {
        let mut facts = self.facts.iter().rev();
        let recent = |to: u64| to <= at && at - to <= within;
        facts.find(|fact| fact.is_downtime() && fact.to.is_some_and(recent))
    }

    /// The restarts of the node, the newest first.
    pub(crate) fn restarts(&self) -> impl Iterator<Item = &NodeFact> {
        let facts = self.facts.iter().rev();
        facts.filter(|fact| fact.booted().is_some())
    }

    /// Takes a new sample of pressure.
    pub(crate) fn sample(&mut self, sample: Sample) {
        self.pressure = Some(sample);
    }

    /// Pressure from the newest sample on.
    pub(crate) fn pressure(&self) -> Option<PressureSpan> {
        self.pressure.map(PressureSpan::new)
    }
}

/// Returns whether they are one fact, at its begin and its end.
pub(crate) fn is_same(one: &NodeFact, other: &NodeFact) -> bool {
    one.kind == other.kind && one.from == other.from
}

/// Adds a fact to those of an episode, or replaces it.
pub(crate) fn note(facts: &mut Vec<NodeFact>, fact: &NodeFact) {
    let known = facts.iter().position(|f| is_same(f, fact));
    // In the end the newest replaces the one before: what holds now matters most.
    let place = known.or_else(|| {
        facts
            .len()
            .checked_sub(1)
            .filter(|_| facts.len() >= MOST_OF_EPISODE)
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
            to,
            ..NodeFact::new(FactKind::NoKubelet, from, "")
        }
    }

    #[test]
    fn a_fact_that_ends_replaces_itself_and_the_oldest_are_dropped() {
        let mut history = NodeHistory::default();
        history.put(fact(1, None));
        history.put(fact(1, Some(5)));
        assert_eq!(history.holding().count(), 0);
        assert_eq!(history.since(4).count(), 1);
        assert_eq!(history.since(5).count(), 0);
        for n in 10..200 {
            history.put(fact(n, Some(n + 1)));
        }
        assert_eq!(history.since(0).count(), MOST_FACTS);
        let mut of_episode = Vec::new();
        for n in 0..20 {
            note(&mut of_episode, &fact(n, None));
            note(&mut of_episode, &fact(n, Some(n + 1)));
        }
        assert_eq!(of_episode.len(), MOST_OF_EPISODE);
        assert_eq!(of_episode.last(), Some(&fact(19, Some(20))));
    }
}
