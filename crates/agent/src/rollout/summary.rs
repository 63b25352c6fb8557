//! The state of a rollout as people see it: `kubectl criscope status` and the hook of `helm uninstall`.

use std::fmt::Write as _;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;

use super::record::{Goal, NodeRecord, NodeState, annotation};
use super::{COORDINATOR_LEASE, PAUSED_ANNOTATION, STOPPED_ANNOTATION};

/// The order of the states: the worst first.
const ORDER: [NodeState; 8] = [
    NodeState::Failed,
    NodeState::Lost,
    NodeState::Working,
    NodeState::Soaking,
    NodeState::Turn,
    NodeState::Skipped,
    NodeState::Waiting,
    NodeState::Done,
];

/// The state of a rollout.
#[derive(Clone, Debug, Default)]
pub struct RolloutSummary {
    /// The records of all nodes: failed ones first, done ones last.
    pub records: Vec<NodeRecord>,
    /// The node whose installer gives the turns.
    pub coordinator: Option<String>,
    /// Why a person has paused it.
    pub paused: Option<String>,
    /// Why nodes wait although a turn is free.
    pub stopped: Option<String>,
}

impl RolloutSummary {
    /// Reads the Leases of a rollout.
    pub fn from_leases<'a>(leases: impl Iterator<Item = &'a Lease> + Clone) -> Self {
        let named = leases.clone();
        let coordinator = named
            .filter(|lease| lease.metadata.name.as_deref() == Some(COORDINATOR_LEASE))
            .last();
        let mut records: Vec<_> = leases.filter_map(NodeRecord::from_lease).collect();
        records.sort_by_key(|record| {
            let place = ORDER.iter().position(|state| *state == record.state);
            (place, record.node.clone())
        });
        let spec = coordinator.and_then(|lease| lease.spec.as_ref());
        let holder = spec.and_then(|spec| spec.holder_identity.clone());
        Self {
            records,
            coordinator: holder.filter(|holder| !holder.is_empty()),
            paused: annotation(coordinator, PAUSED_ANNOTATION),
            stopped: annotation(coordinator, STOPPED_ANNOTATION),
        }
    }

    /// The number of nodes in a state.
    pub fn count(&self, state: NodeState) -> usize {
        self.in_state(state).count()
    }

    /// The records in a state.
    pub fn in_state(&self, state: NodeState) -> impl Iterator<Item = &NodeRecord> {
        self.records
            .iter()
            .filter(move |record| record.state == state)
    }

    /// Returns whether a person is needed for the rollout to go on.
    pub fn needs_a_person(&self) -> bool {
        self.count(NodeState::Failed) > 0 || (self.stopped.is_some() && self.paused.is_none())
    }

    /// Counts by state: `2 failed, 1 working, 7 waiting, 40 done`.
    pub fn counts(&self) -> String {
        let counted = ORDER.iter().map(|state| (self.count(*state), state.name()));
        let counted = counted.filter(|(count, _)| *count > 0);
        let counted: Vec<_> = counted
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        counted.join(", ")
    }

    /// The state as text. Nodes that wait or are done are listed only if `all`.
    pub fn text(&self, all: bool, now: Timestamp) -> String {
        if self.records.is_empty() {
            return "no rollout: no installer has registered its node\n".to_owned();
        }
        let is_removal = self
            .records
            .iter()
            .any(|record| record.goal == Goal::Uninstall);
        let verb = if is_removal { "uninstall" } else { "install" };
        let mut text = format!(
            "{verb}: {} of {} nodes done ({})\n",
            self.count(NodeState::Done),
            self.records.len(),
            self.counts()
        );
        if let Some(reason) = self.stopped.as_ref().or(self.paused.as_ref()) {
            let _ = writeln!(text, "stopped: {reason}");
        }
        if let Some(next) = self.next_step() {
            let _ = writeln!(text, "next: {next}");
        }
        if let Some(holder) = &self.coordinator {
            let _ = writeln!(text, "turns are given by the installer on {holder}");
        }
        let quiet = [NodeState::Waiting, NodeState::Done];
        let shown = self
            .records
            .iter()
            .filter(|record| all || !quiet.contains(&record.state) || !record.reason.is_empty());
        let rows: Vec<_> = shown.map(|record| row(record, now)).collect();
        if !rows.is_empty() {
            text.push('\n');
            text += &table(&rows);
        }
        text
    }

    fn next_step(&self) -> Option<String> {
        if let Some(record) = self.in_state(NodeState::Failed).next() {
            let node = &record.node;
            Some(format!(
                "mend {node}, then `kubectl criscope rollout retry {node}`; or go on without it: `kubectl criscope rollout resume`"
            ))
        } else if self.paused.is_some() {
            Some("`kubectl criscope rollout resume`".to_owned())
        } else if self.stopped.is_some() && self.count(NodeState::Lost) > 0 {
            Some(
                "look at the lost nodes; `kubectl criscope rollout resume` goes on without them"
                    .to_owned(),
            )
        } else {
            None
        }
    }
}

fn row(record: &NodeRecord, now: Timestamp) -> [String; 5] {
    let age = record.since.map(|since| age((now - since).get_seconds()));
    let canary = if record.is_canary { "canary" } else { "" };
    [
        record.node.clone(),
        record.state.name().to_owned(),
        age.unwrap_or_default(),
        canary.to_owned(),
        record.reason.clone(),
    ]
}

/// A time as kubectl writes it: the largest unit that fits.
fn age(seconds: i64) -> String {
    match seconds.max(0) {
        seconds if seconds < 120 => format!("{seconds}s"),
        seconds if seconds < 7200 => format!("{}m", seconds / 60),
        seconds if seconds < 172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Columns as kubectl prints them.
fn table(rows: &[[String; 5]]) -> String {
    let head = ["NODE", "STATE", "FOR", "", "REASON"].map(str::to_owned);
    let all = std::iter::once(&head).chain(rows);
    let mut widths = [0; 5];
    for row in all.clone() {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in all {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths).filter(|(_, width)| *width > 0) {
            let _ = write!(line, "{cell:width$}   ");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;

    use super::*;
    use crate::rollout::MaxParallel;
    use crate::rollout::record::set_state;

    fn lease(node: &str, state: NodeState, reason: &str) -> Lease {
        let record = NodeRecord {
            node: node.to_owned(),
            state,
            goal: Goal::Install,
            reason: String::new(),
            since: None,
            installer: "uid".to_owned(),
            revision: "1".to_owned(),
            max_parallel: MaxParallel::Percent(10),
            canary_selector: Some("ring=0".to_owned()),
            is_canary: node == "a",
            installed: None,
            renewed: None,
        };
        let mut lease = record.new_lease(&Node::default());
        // Reading what was written gives the same record.
        let read = NodeRecord::from_lease(&lease).expect("a record");
        assert_eq!(
            NodeRecord {
                since: None,
                ..read
            },
            record
        );
        set_state(&mut lease, state, reason);
        lease
    }

    #[test]
    fn a_stopped_rollout_says_why_and_what_to_do() {
        let leases = [
            lease("a", NodeState::Done, ""),
            lease("b", NodeState::Waiting, ""),
            lease("c", NodeState::Failed, "kubelet.service is not active"),
        ];
        let summary = RolloutSummary::from_leases(leases.iter());
        assert!(summary.needs_a_person());
        let text = summary.text(false, Timestamp::now());
        assert_eq!(
            text,
            "install: 1 of 3 nodes done (1 failed, 1 waiting, 1 done)\n\
             next: mend c, then `kubectl criscope rollout retry c`; or go on without it: `kubectl criscope rollout resume`\n\
             \n\
             NODE   STATE    FOR   REASON\n\
             c      failed   0s    kubelet.service is not active\n"
        );
        let all = summary.text(true, Timestamp::now());
        assert!(all.contains("a      done      0s    canary"), "{all}");
        assert!(all.contains("b      waiting   0s"), "{all}");
    }

    #[test]
    fn no_rollout_is_said() {
        let summary = RolloutSummary::from_leases([].iter());
        assert!(
            summary
                .text(true, Timestamp::now())
                .starts_with("no rollout")
        );
        assert!(!summary.needs_a_person());
    }
}
