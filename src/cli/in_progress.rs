//! What is in progress, and so would be broken off by a restart of criscope or of the runtime behind it: calls that change something, and
//! sessions.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use crate::cri::Method;
use crate::cri::method::Class;
use crate::lifecycle::tables::RpcTable;

/// A session that is open.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct OpenSession {
    /// `exec`, `attach` or `portforward`.
    kind: String,
}

/// Counts by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkInProgress {
    /// In the order in which they are said: pulls take longest.
    counts: BTreeMap<WorkKind, u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WorkKind {
    Pull,
    Stop,
    PodStart,
    ContainerStart,
    Command,
    Checkpoint,
    KeptCall,
    Other,
    Session(String),
}

impl WorkInProgress {
    /// `kept`: calls that wait for a retry (`backends.NAME.join_retries`).
    pub(super) fn new(calls: &RpcTable, sessions: &[OpenSession], kept: u64) -> Self {
        let mut counts = BTreeMap::new();
        for row in &calls.methods {
            if let Some(kind) = Method::ALL
                .into_iter()
                .find_map(|method| kind(method, &row.method))
                && row.in_flight > 0
            {
                *counts.entry(kind).or_default() += row.in_flight;
            }
        }
        if kept > 0 {
            counts.insert(WorkKind::KeptCall, kept);
        }
        for session in sessions {
            let kind = WorkKind::Session(session.kind.clone());
            *counts.entry(kind).or_default() += 1;
        }
        Self { counts }
    }

    /// Counts for programs.
    pub(super) fn by_kind(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for (kind, count) in &self.counts {
            *counts.entry(kind.name()).or_default() += count;
        }
        counts
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

/// The kind of a call by its method's name; `None` for calls that are made again without loss, as polls.
fn kind(method: Method, name: &str) -> Option<WorkKind> {
    if method.name() != name || method.class() != Class::Mutating {
        return None;
    }
    Some(match method {
        Method::PullImage => WorkKind::Pull,
        Method::StopContainer | Method::StopPodSandbox => WorkKind::Stop,
        Method::RunPodSandbox | Method::RestorePod => WorkKind::PodStart,
        Method::CheckpointPod | Method::CheckpointContainer => WorkKind::Checkpoint,
        Method::CreateContainer | Method::StartContainer => WorkKind::ContainerStart,
        Method::ExecSync => WorkKind::Command,
        _ => WorkKind::Other,
    })
}

impl WorkKind {
    fn name(&self) -> &'static str {
        match self {
            Self::Pull => "pulls",
            Self::Stop => "stops",
            Self::PodStart => "pod_starts",
            Self::ContainerStart => "container_starts",
            Self::Command => "probes_and_hooks",
            Self::Checkpoint => "checkpoints",
            Self::KeptCall => "kept_calls",
            Self::Other => "other_calls",
            Self::Session(_) => "sessions",
        }
    }

    fn words(&self, count: u64) -> String {
        let noun = match self {
            Self::Pull => "pull",
            Self::Stop => "stop",
            Self::PodStart => "pod start",
            Self::ContainerStart => "container start",
            Self::Command => "probe or hook",
            Self::Checkpoint => "checkpoint",
            Self::KeptCall => "call that waits for its retry",
            Self::Other => "other call",
            Self::Session(kind) if kind == "portforward" => "port-forward session",
            Self::Session(kind) => &format!("{kind} session"),
        };
        match (self, count) {
            (_, 1) => format!("1 {noun}"),
            (Self::KeptCall, _) => format!("{count} calls that wait for their retry"),
            (Self::Command, _) => format!("{count} probes or hooks"),
            _ => format!("{count} {noun}s"),
        }
    }
}

impl fmt::Display for WorkInProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self
            .counts
            .iter()
            .map(|(kind, count)| kind.words(*count))
            .collect();
        let total: u64 = self.counts.values().sum();
        let verb = if total == 1 { "is" } else { "are" };
        match words.split_last() {
            None => f.write_str("nothing is in progress"),
            Some((only, [])) => write!(f, "{only} {verb} in progress"),
            Some((last, first)) => write!(f, "{} and {last} {verb} in progress", first.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::tables::RpcMethodRow;

    fn said(calls: &[(&str, u64)], sessions: &[&str]) -> String {
        let rows = calls.iter().map(|(method, in_flight)| RpcMethodRow {
            method: (*method).to_owned(),
            in_flight: *in_flight,
            ..RpcMethodRow::default()
        });
        let table = RpcTable {
            methods: rows.collect(),
            ..RpcTable::default()
        };
        let sessions = sessions.iter().map(|kind| OpenSession {
            kind: (*kind).to_owned(),
        });
        WorkInProgress::new(&table, &sessions.collect::<Vec<_>>(), 0).to_string()
    }

    #[test]
    fn calls_that_wait_for_a_retry_count() {
        let work = |kept| WorkInProgress::new(&RpcTable::default(), &[], kept).to_string();
        assert_eq!(work(1), "1 call that waits for its retry is in progress");
        assert_eq!(work(2), "2 calls that wait for their retry are in progress");
    }

    #[test]
    fn calls_that_change_something_and_sessions_count() {
        let calls = [
            ("StopContainer", 1),
            ("PullImage", 3),
            ("ListContainers", 4),
            ("GetContainerEvents", 1),
        ];
        assert_eq!(
            said(&calls, &["exec", "exec"]),
            "3 pulls, 1 stop and 2 exec sessions are in progress"
        );
        assert_eq!(said(&calls[2..], &[]), "nothing is in progress");
        assert_eq!(
            said(&[("RunPodSandbox", 1)], &[]),
            "1 pod start is in progress"
        );
        assert_eq!(
            said(&[("ExecSync", 2)], &[]),
            "2 probes or hooks are in progress"
        );
        assert_eq!(
            said(&[("CreateContainer", 1), ("StartContainer", 1)], &[]),
            "2 container starts are in progress"
        );
    }
}
