//! A fact about the node that holds for some time, in data and in words.

use serde::{Deserialize, Serialize};

use crate::lifecycle::episode_call::millis;
use crate::units::{clock, duration};

/// Longest reason kept, in bytes.
const MOST_REASON: usize = 300;

/// How containerd and CRI-O begin the message of NetworkReady.
const WRAPPER: &str = "Network plugin returns error: ";

/// A fact and its time, in microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeFact {
    #[serde(flatten)]
    pub(crate) kind: FactKind,
    pub(crate) from: u64,
    /// `None` while it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<u64>,
    /// What the runtime or the connection says; empty if it says nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
}

/// What holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub(crate) enum FactKind {
    /// A backend does not answer.
    BackendDown { backend: String },
    /// A backend is connected, and leaves polls unanswered that take a healthy one milliseconds.
    BackendHangs { backend: String },
    /// A condition of a backend is false.
    NotReady { backend: String, condition: String },
    /// A kubelet was connected, and none is now.
    NoKubelet,
    /// criscope itself was not running.
    CriscopeDown,
    /// The node was restarted: nothing that ran on it before runs now. `booted`: when, in microseconds since 1970; `from` and `to` are the
    /// time in which criscope was not running.
    NodeRestarted { booted: u64 },
    /// criscope was running, and got nothing done: it was stopped by a signal, frozen or starved.
    CriscopeStalled,
    /// The filesystem of a backend's images has hardly any space or inodes left.
    ImageFsFull { backend: String },
}

/// A call that waited for criscope is taken in within this time of the look that finds out, in microseconds: there is one a second.
const LOOK: u64 = 1_000_000;

impl NodeFact {
    /// Returns whether a call that was taken in at `at` may have waited for criscope, which had not run.
    pub(crate) fn held_up(&self, at: u64) -> bool {
        let is_around = |to: u64| self.from < at && at <= to.saturating_add(LOOK);
        self.kind == FactKind::CriscopeStalled && self.to.is_some_and(is_around)
    }

    /// When the node was restarted, in microseconds since 1970; `None` if it is another fact.
    pub(crate) fn booted(&self) -> Option<u64> {
        match self.kind {
            FactKind::NodeRestarted { booted } => Some(booted),
            _ => None,
        }
    }

    /// Returns whether criscope was not running, so that calls are unknown.
    pub(crate) fn is_downtime(&self) -> bool {
        self.kind == FactKind::CriscopeDown || self.booted().is_some()
    }

    /// Returns whether criscope itself was not there.
    pub(crate) fn is_of_criscope(&self) -> bool {
        matches!(
            self.kind,
            FactKind::CriscopeDown | FactKind::NodeRestarted { .. } | FactKind::CriscopeStalled
        )
    }

    /// A stable name of its kind.
    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            FactKind::BackendDown { .. } => "backend_down",
            FactKind::BackendHangs { .. } => "backend_hangs",
            FactKind::NotReady { .. } => "backend_not_ready",
            FactKind::NoKubelet => "no_kubelet",
            FactKind::CriscopeDown => "criscope_down",
            FactKind::NodeRestarted { .. } => "node_restarted",
            FactKind::CriscopeStalled => "criscope_stalled",
            FactKind::ImageFsFull { .. } => "image_fs_full",
        }
    }

    /// A fact that holds from now on.
    pub(crate) fn new(kind: FactKind, from: u64, reason: &str) -> Self {
        let reason = reason.strip_prefix(WRAPPER).unwrap_or(reason).trim();
        let reason = &reason[..reason.floor_char_boundary(MOST_REASON)];
        Self {
            kind,
            from,
            to: None,
            reason: reason.to_owned(),
        }
    }

    /// Returns whether it holds now.
    pub(crate) fn holds(&self) -> bool {
        self.to.is_none()
    }

    /// How long it held between these times, in microseconds.
    pub(crate) fn within(&self, from: u64, to: u64) -> u64 {
        let end = self.to.unwrap_or(u64::MAX).min(to);
        end.saturating_sub(self.from.max(from))
    }

    /// The fact as a sentence without a full stop; `now` in microseconds since 1970.
    pub(crate) fn sentence(&self, now: u64) -> String {
        let mut text = match self.to {
            None => self.present(&duration(millis(now.saturating_sub(self.from)))),
            Some(to) => self.past(to),
        };
        if !self.reason.is_empty() {
            text += ": ";
            text += &self.reason;
        }
        text
    }

    fn present(&self, time: &str) -> String {
        match &self.kind {
            FactKind::BackendDown { backend } | FactKind::BackendHangs { backend } => {
                format!("the runtime {backend} has not answered for {time}")
            }
            FactKind::NotReady { backend, condition } => {
                format!("{condition} of {backend} has been false for {time}")
            }
            FactKind::NoKubelet => format!("no kubelet has been connected for {time}"),
            FactKind::CriscopeDown => format!("criscope has been down for {time}"),
            FactKind::NodeRestarted { booted } => restarted(*booted),
            FactKind::CriscopeStalled => format!("criscope has not run for {time}"),
            FactKind::ImageFsFull { backend } => {
                format!("the disk of the images of {backend} has been nearly full for {time}")
            }
        }
    }

    fn past(&self, to: u64) -> String {
        let when = format!("from {} to {} UTC", clock(self.from), clock(to));
        let time = duration(millis(to.saturating_sub(self.from)));
        match &self.kind {
            FactKind::BackendDown { backend } | FactKind::BackendHangs { backend } => {
                format!("the runtime {backend} did not answer {when} ({time})")
            }
            FactKind::NotReady { backend, condition } => {
                format!("{condition} of {backend} was false {when} ({time})")
            }
            FactKind::NoKubelet => format!("no kubelet was connected {when} ({time})"),
            FactKind::CriscopeStalled => {
                format!("criscope did not run {when} ({time}): it was stopped, frozen or starved")
            }
            FactKind::NodeRestarted { booted } => restarted(*booted),
            FactKind::CriscopeDown => {
                format!("criscope was down {when}: nothing is known of calls in between")
            }
            FactKind::ImageFsFull { backend } => {
                format!("the disk of the images of {backend} was nearly full {when} ({time})")
            }
        }
    }
}

/// That the node was restarted.
pub(crate) fn restarted(booted: u64) -> String {
    format!("the node was started again at {} UTC", clock(booted))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 1_767_268_800_000_000;

    #[test]
    fn a_fact_says_what_since_when_and_why() {
        let kind = FactKind::NotReady {
            backend: "containerd".to_owned(),
            condition: "NetworkReady".to_owned(),
        };
        let text = "Network plugin returns error: cni plugin not initialized";
        let mut fact = NodeFact::new(kind, NOON + 63_000_000, text);
        assert_eq!(
            fact.sentence(NOON + 253_000_000),
            "NetworkReady of containerd has been false for 3m 10s: cni plugin not initialized"
        );
        fact.to = Some(NOON + 250_000_000);
        assert_eq!(
            fact.sentence(NOON),
            "NetworkReady of containerd was false from 12:01:03 to 12:04:10 UTC (3m 07s): cni plugin not initialized"
        );
        assert_eq!(fact.within(NOON, NOON + 100_000_000), 37_000_000);
        assert_eq!(fact.within(NOON + 300_000_000, NOON + 400_000_000), 0);
        let down = NodeFact {
            kind: FactKind::CriscopeDown,
            from: NOON + 63_000_000,
            to: Some(NOON + 250_000_000),
            reason: String::new(),
        };
        assert_eq!(
            down.sentence(NOON),
            "criscope was down from 12:01:03 to 12:04:10 UTC: nothing is known of calls in between"
        );
        let text = serde_json::to_string(&down).expect("json");
        assert_eq!(serde_json::from_str::<NodeFact>(&text).expect("read"), down);
    }
}
