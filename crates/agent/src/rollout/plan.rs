//! What the coordinator decides, from the records of all nodes. Nothing here waits or asks.

use std::collections::{BTreeMap, BTreeSet};

use super::record::{NodeRecord, NodeState};

/// A single node that is lost during its turn may be chance. So many are not: the rollout stops.
const LOST_NODES_STOP_AT: usize = 2;

/// The most names in the reason of a stop.
const MAX_NAMES: usize = 5;

/// A Node of the cluster that should go first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanaryNode {
    /// The name of the node.
    pub node: String,
    /// Set if the kubelet of the node reports to the API server.
    pub is_reachable: bool,
}

/// What the coordinator knows.
#[derive(Debug, Default)]
pub struct Situation<'a> {
    /// The records of all nodes, by name.
    pub records: Vec<NodeRecord>,
    /// The node of the coordinator. It goes last, so that the coordinator changes seldom.
    pub own_node: &'a str,
    /// Why no turns are given; by a person.
    pub paused: Option<String>,
    /// Nodes that get no turn for now: not reachable, or their installer does not answer.
    pub passed_over: BTreeSet<String>,
    /// Nodes that should go first, by selector. A selector that is absent could not be looked up.
    pub canaries: BTreeMap<String, Vec<CanaryNode>>,
}

/// The decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Nodes that get a turn, in this order.
    pub turns: Vec<String>,
    /// Why nodes wait although a turn is free.
    pub stopped: Option<String>,
}

impl Situation<'_> {
    /// The selectors of canaries that are needed for a decision.
    pub fn canary_selectors(&self) -> BTreeSet<&str> {
        let waiting = self
            .records
            .iter()
            .filter(|record| record.state == NodeState::Waiting && !record.is_canary);
        waiting
            .filter_map(|record| record.canary_selector.as_deref())
            .collect()
    }

    /// Decides which nodes get a turn now.
    pub fn decide(&self) -> Decision {
        let mut waiting: Vec<_> = self.in_state(NodeState::Waiting).collect();
        if waiting.is_empty() {
            return Decision::default();
        }
        if let Some(stopped) = self.stop() {
            return Decision {
                turns: Vec::new(),
                stopped: Some(stopped),
            };
        }
        waiting.sort_by_key(|record| {
            let is_own = record.node == self.own_node;
            (!record.is_canary, is_own, record.since, &record.node)
        });
        let with_turn = self.records.iter().filter(|record| record.state.has_turn());
        let mut with_turn = with_turn.count();
        let mut decision = Decision::default();
        for record in waiting {
            if self.passed_over.contains(&record.node) {
                continue;
            }
            if with_turn >= record.max_parallel.of_nodes(self.records.len()) {
                break;
            }
            if let Some(wait) = self.canaries_before(record) {
                // While a canary is worked on, the rollout goes on.
                decision.stopped = (with_turn == 0).then_some(wait);
                break;
            }
            with_turn += 1;
            decision.turns.push(record.node.clone());
        }
        decision
    }

    fn in_state(&self, state: NodeState) -> impl Iterator<Item = &NodeRecord> {
        self.records
            .iter()
            .filter(move |record| record.state == state)
    }

    fn stop(&self) -> Option<String> {
        if let Some(reason) = &self.paused {
            return Some(format!("paused: {reason}"));
        }
        let failed = self.in_state(NodeState::Failed).map(|record| &*record.node);
        let failed: Vec<_> = failed.collect();
        if !failed.is_empty() {
            return Some(format!("{} failed", names(&failed)));
        }
        let lost = self.in_state(NodeState::Lost).map(|record| &*record.node);
        let lost: Vec<_> = lost.collect();
        (lost.len() >= LOST_NODES_STOP_AT)
            .then(|| format!("{} were lost during their turns", names(&lost)))
    }

    /// Returns which canaries a node waits for, if any.
    fn canaries_before(&self, record: &NodeRecord) -> Option<String> {
        let selector = record.canary_selector.as_ref()?;
        if record.is_canary {
            return None;
        }
        let Some(canaries) = self.canaries.get(selector) else {
            return Some(format!(
                "the nodes with the labels {selector} cannot be listed"
            ));
        };
        let mut done = 0;
        let mut open = Vec::new();
        for canary in canaries {
            let found = self.records.iter().find(|known| {
                known.node == canary.node
                    && known.revision == record.revision
                    && known.goal == record.goal
            });
            match found.map(|known| known.state) {
                Some(NodeState::Done | NodeState::Skipped) => done += 1,
                Some(state) if state.has_turn() => open.push(&*canary.node),
                _ if canary.is_reachable => open.push(&*canary.node),
                _ => {}
            }
        }
        if !open.is_empty() {
            Some(format!(
                "{} first, because of --canary={selector}",
                names(&open)
            ))
        } else if done == 0 {
            Some(format!(
                "no reachable node has the labels of --canary={selector}"
            ))
        } else {
            None
        }
    }
}

/// Joins names of nodes.
fn names(nodes: &[&str]) -> String {
    let listed = nodes.iter().take(MAX_NAMES).copied().collect::<Vec<_>>();
    let more = match nodes.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", listed.join(", "))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
