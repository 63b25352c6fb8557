//! Decisions of the coordinator.

use super::*;
use crate::rollout::{Goal, MaxParallel};

fn record(node: &str, state: NodeState) -> NodeRecord {
    NodeRecord {
        node: node.to_owned(),
        state,
        goal: Goal::Install,
        reason: String::new(),
        since: None,
        installer: String::new(),
        revision: "1".to_owned(),
        max_parallel: MaxParallel::Nodes(1),
        canary_selector: None,
        is_canary: false,
        installed: None,
        renewed: None,
    }
}

fn situation(records: Vec<NodeRecord>) -> Situation<'static> {
    Situation {
        records,
        ..Situation::default()
    }
}

fn canary(node: &str, is_reachable: bool) -> CanaryNode {
    CanaryNode {
        node: node.to_owned(),
        is_reachable,
    }
}

fn turns(situation: &Situation<'_>) -> Vec<String> {
    situation.decide().turns
}

/// Records of 50 waiting nodes with this limit.
fn fifty(max_parallel: MaxParallel) -> Vec<NodeRecord> {
    let names = (0..50).map(|n| format!("n{n:02}"));
    names
        .map(|name| NodeRecord {
            max_parallel,
            ..record(&name, NodeState::Waiting)
        })
        .collect()
}

#[test]
fn as_many_nodes_as_allowed_have_a_turn() {
    for (max, expected) in [
        (MaxParallel::Nodes(1), 1),
        (MaxParallel::Nodes(7), 7),
        (MaxParallel::Percent(10), 5),
        (MaxParallel::Percent(1), 1),
    ] {
        let mut all = situation(fifty(max));
        assert_eq!(turns(&all).len(), expected, "{max}");
        all.records[0].state = NodeState::Soaking;
        all.records[1].state = NodeState::Turn;
        assert_eq!(turns(&all).len(), expected.saturating_sub(2), "{max}");
    }
}

#[test]
fn a_failed_node_stops_the_rollout_until_a_person_skips_it() {
    let mut all = situation(fifty(MaxParallel::Nodes(5)));
    all.records[3].state = NodeState::Failed;
    let decision = all.decide();
    assert_eq!(decision.turns, [""; 0]);
    assert_eq!(decision.stopped.as_deref(), Some("n03 failed"));
    all.records[3].state = NodeState::Skipped;
    assert_eq!(turns(&all).len(), 5);
}

#[test]
fn one_lost_node_is_chance_and_two_are_not() {
    let mut all = situation(fifty(MaxParallel::Nodes(5)));
    all.records[3].state = NodeState::Lost;
    assert_eq!(turns(&all).len(), 5);
    all.records[4].state = NodeState::Lost;
    assert_eq!(
        all.decide().stopped.as_deref(),
        Some("n03, n04 were lost during their turns")
    );
}

#[test]
fn a_pause_stops_new_turns() {
    let mut all = situation(fifty(MaxParallel::Nodes(5)));
    all.paused = Some("a holiday".to_owned());
    let decision = all.decide();
    assert_eq!(decision.turns, [""; 0]);
    assert_eq!(decision.stopped.as_deref(), Some("paused: a holiday"));
}

#[test]
fn unreachable_nodes_are_passed_over_and_the_coordinator_goes_last() {
    let mut all = situation(fifty(MaxParallel::Nodes(2)));
    all.own_node = "n00";
    all.passed_over = BTreeSet::from(["n01".to_owned()]);
    assert_eq!(turns(&all), ["n02", "n03"]);
    all.records.truncate(2);
    assert_eq!(turns(&all), ["n00"]);
}

#[test]
fn canaries_go_first_and_are_done_before_the_others_begin() {
    let mut all = situation(fifty(MaxParallel::Nodes(3)));
    for record in &mut all.records {
        record.canary_selector = Some("ring=0".to_owned());
        record.is_canary = ["n07", "n09"].contains(&&*record.node);
    }
    assert_eq!(
        all.canary_selectors(),
        BTreeSet::from(["ring=0"]),
        "they must be looked up"
    );
    all.canaries.insert(
        "ring=0".to_owned(),
        vec![
            canary("n07", true),
            canary("n09", true),
            canary("off", false),
        ],
    );
    let decision = all.decide();
    assert_eq!(decision.turns, ["n07", "n09"]);
    all.records[7].state = NodeState::Done;
    all.records[9].state = NodeState::Soaking;
    assert_eq!(all.decide(), Decision::default(), "it goes on");
    all.records[9].state = NodeState::Waiting;
    all.passed_over = BTreeSet::from(["n09".to_owned()]);
    let decision = all.decide();
    assert_eq!(decision.turns, [""; 0]);
    assert_eq!(
        decision.stopped.as_deref(),
        Some("n09 first, because of --canary=ring=0")
    );
    all.records[9].state = NodeState::Done;
    assert_eq!(turns(&all).len(), 3);
    // A canary that was done with the revision before is not done with this one.
    all.records[9].revision = "0".to_owned();
    assert_eq!(turns(&all), [""; 0]);
}

#[test]
fn a_selector_of_canaries_that_chooses_no_node_stops_the_rollout() {
    let mut all = situation(fifty(MaxParallel::Nodes(3)));
    for record in &mut all.records {
        record.canary_selector = Some("ring=O".to_owned());
    }
    all.canaries.insert("ring=O".to_owned(), Vec::new());
    assert_eq!(
        all.decide().stopped.as_deref(),
        Some("no reachable node has the labels of --canary=ring=O")
    );
}
