//! A fact about the node that holds for some time, in data and in words.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use criscope_cri::units::times::UnixMicros;
use criscope_cri::units::{clock, spoken};

/// Longest reason that is kept, in bytes.
const MAX_REASON_LEN: usize = 300;

/// The beginning of NetworkReady's message in containerd and CRI-O.
const NETWORK_READY_PREFIX: &str = "Network plugin returns error: ";

/// A fact and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeFact {
    #[serde(flatten)]
    pub(crate) kind: NodeFactKind,
    pub(crate) from: UnixMicros,
    /// End of the fact; `None` while it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<UnixMicros>,
    /// The reason from the runtime or the connection; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
}

/// The kind of a fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub(crate) enum NodeFactKind {
    /// A backend does not answer.
    BackendDown { backend: String },
    /// A backend is connected, but does not answer polls that a healthy one answers in milliseconds.
    BackendHangs { backend: String },
    /// A condition of a backend is false.
    NotReady { backend: String, condition: String },
    /// A kubelet was connected, and none is now.
    NoKubelet,
    /// A kubelet is connected, and makes no call, not even the polls that it makes every second.
    KubeletSilent,
    /// criscope itself was not running.
    CriscopeDown,
    /// Calls reached the runtime without criscope, because it could not serve.
    CriscopeBypassed,
    /// The node was restarted at `booted`: nothing that ran before runs now. `from` and `to` are the time in which criscope was
    /// not running.
    NodeRestarted { booted: UnixMicros },
    /// criscope was running, and got nothing done: it was stopped by a signal, frozen or starved.
    CriscopeStalled,
    /// The filesystem of a backend's images has hardly any space or inodes left.
    ImageFsFull { backend: String },
}

/// A call that waited for a stalled criscope is read at most this long after the check that notices the stall. There is one
/// check per second.
const CHECK_DELAY: Duration = Duration::from_secs(1);

impl NodeFact {
    /// Returns whether a call that was read at `at` may have waited for a stalled criscope.
    pub(crate) fn held_up(&self, at: UnixMicros) -> bool {
        let Some(to) = self.to else { return false };
        self.kind == NodeFactKind::CriscopeStalled && self.from < at && at <= to + CHECK_DELAY
    }

    /// Time at which the node was restarted; `None` if the fact is another one.
    pub(crate) fn booted(&self) -> Option<UnixMicros> {
        match self.kind {
            NodeFactKind::NodeRestarted { booted } => Some(booted),
            _ => None,
        }
    }

    /// The backend that the fact is about; `None` for a fact about the whole node.
    pub(crate) fn backend(&self) -> Option<&str> {
        match &self.kind {
            NodeFactKind::BackendDown { backend }
            | NodeFactKind::BackendHangs { backend }
            | NodeFactKind::NotReady { backend, .. }
            | NodeFactKind::ImageFsFull { backend } => Some(backend),
            _ => None,
        }
    }

    /// Returns whether calls are unknown, because criscope was not running or was bypassed.
    pub(crate) fn is_downtime(&self) -> bool {
        matches!(
            self.kind,
            NodeFactKind::CriscopeDown
                | NodeFactKind::CriscopeBypassed
                | NodeFactKind::NodeRestarted { .. }
        )
    }

    /// Returns whether criscope itself was down, bypassed or stalled.
    pub(crate) fn is_of_criscope(&self) -> bool {
        matches!(
            self.kind,
            NodeFactKind::CriscopeDown
                | NodeFactKind::CriscopeBypassed
                | NodeFactKind::NodeRestarted { .. }
                | NodeFactKind::CriscopeStalled
        )
    }

    /// A stable name of the kind.
    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            NodeFactKind::BackendDown { .. } => "backend_down",
            NodeFactKind::BackendHangs { .. } => "backend_hangs",
            NodeFactKind::NotReady { .. } => "backend_not_ready",
            NodeFactKind::NoKubelet => "no_kubelet",
            NodeFactKind::KubeletSilent => "kubelet_silent",
            NodeFactKind::CriscopeDown => "criscope_down",
            NodeFactKind::CriscopeBypassed => "criscope_bypassed",
            NodeFactKind::NodeRestarted { .. } => "node_restarted",
            NodeFactKind::CriscopeStalled => "criscope_stalled",
            NodeFactKind::ImageFsFull { .. } => "image_fs_full",
        }
    }

    /// A fact that holds from now on.
    pub(crate) fn new(kind: NodeFactKind, from: UnixMicros, reason: &str) -> Self {
        let reason = reason
            .strip_prefix(NETWORK_READY_PREFIX)
            .unwrap_or(reason)
            .trim();
        let reason = &reason[..reason.floor_char_boundary(MAX_REASON_LEN)];
        Self {
            kind,
            from,
            to: None,
            reason: reason.to_owned(),
        }
    }

    /// Returns whether the fact holds now.
    pub(crate) fn holds(&self) -> bool {
        self.to.is_none()
    }

    /// The time for which the fact held between `from` and `to`.
    pub(crate) fn within(&self, from: UnixMicros, to: UnixMicros) -> Duration {
        let end = self.to.unwrap_or(UnixMicros::MAX).min(to);
        end.since(self.from.max(from))
    }

    /// The fact and its time, before a clause on a call of that time: what is known of such a call is said there.
    pub(crate) fn sentence_of_time(&self, now: UnixMicros) -> String {
        match (&self.kind, self.to) {
            (NodeFactKind::CriscopeDown, Some(to)) => {
                let (from, to) = (clock(self.from), clock(to));
                format!("criscope was down from {from} to {to} UTC")
            }
            (NodeFactKind::CriscopeBypassed, Some(to)) => {
                let (from, to) = (clock(self.from), clock(to));
                format!("criscope was bypassed from {from} to {to} UTC")
            }
            _ => self.sentence(now),
        }
    }

    /// The fact as a sentence without a full stop.
    pub(crate) fn sentence(&self, now: UnixMicros) -> String {
        let mut text = match self.to {
            None => self.present(&spoken(now.since(self.from))),
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
            NodeFactKind::BackendDown { backend } | NodeFactKind::BackendHangs { backend } => {
                format!("the runtime {backend} has not answered for {time}")
            }
            NodeFactKind::NotReady { backend, condition } => {
                format!("the runtime {backend} has reported {condition} false for {time}")
            }
            NodeFactKind::NoKubelet => format!("no kubelet has been connected for {time}"),
            NodeFactKind::KubeletSilent => {
                format!("the kubelet is stopped or hangs: no call at all for {time}")
            }
            NodeFactKind::CriscopeDown => format!("criscope has been down for {time}"),
            NodeFactKind::CriscopeBypassed => {
                format!("criscope has been bypassed for {time}: calls reach the runtime without it")
            }
            NodeFactKind::NodeRestarted { booted } => restarted(*booted),
            NodeFactKind::CriscopeStalled => {
                format!("criscope itself has been stopped, frozen or starved for {time}")
            }
            NodeFactKind::ImageFsFull { backend } => {
                format!("the image disk of {backend} has been nearly full for {time}")
            }
        }
    }

    fn past(&self, to: UnixMicros) -> String {
        let when = format!("from {} to {} UTC", clock(self.from), clock(to));
        let time = spoken(to.since(self.from));
        match &self.kind {
            NodeFactKind::BackendDown { backend } | NodeFactKind::BackendHangs { backend } => {
                format!("the runtime {backend} did not answer {when} ({time})")
            }
            NodeFactKind::NotReady { backend, condition } => {
                format!("the runtime {backend} reported {condition} false {when} ({time})")
            }
            NodeFactKind::NoKubelet => format!("no kubelet was connected {when} ({time})"),
            NodeFactKind::KubeletSilent => {
                format!("the kubelet was stopped or hung: no call at all {when} ({time})")
            }
            NodeFactKind::CriscopeStalled => {
                format!("criscope itself was stopped, frozen or starved {when} ({time})")
            }
            NodeFactKind::NodeRestarted { booted } => restarted(*booted),
            NodeFactKind::CriscopeDown => {
                format!("criscope was down {when} and saw no calls then")
            }
            NodeFactKind::CriscopeBypassed => {
                format!("criscope was bypassed {when} and saw no calls then")
            }
            NodeFactKind::ImageFsFull { backend } => {
                format!("the image disk of {backend} was nearly full {when} ({time})")
            }
        }
    }
}

/// A sentence about a restart of the node.
pub(crate) fn restarted(booted: UnixMicros) -> String {
    format!("the node was restarted at {} UTC", clock(booted))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: UnixMicros = UnixMicros::new(1_767_268_800_000_000);

    #[test]
    fn a_fact_says_what_since_when_and_why() {
        let kind = NodeFactKind::NotReady {
            backend: "containerd".to_owned(),
            condition: "NetworkReady".to_owned(),
        };
        let text = "Network plugin returns error: cni plugin not initialized";
        let mut fact = NodeFact::new(kind, NOON + Duration::from_secs(63), text);
        assert_eq!(
            fact.sentence(NOON + Duration::from_secs(253)),
            "the runtime containerd has reported NetworkReady false for 3m 10s: cni plugin not initialized"
        );
        fact.to = Some(NOON + Duration::from_secs(250));
        assert_eq!(
            fact.sentence(NOON),
            "the runtime containerd reported NetworkReady false from 12:01:03 to 12:04:10 UTC (3m 07s): cni plugin not initialized"
        );
        assert_eq!(
            fact.within(NOON, NOON + Duration::from_secs(100)),
            Duration::from_secs(37)
        );
        assert_eq!(
            fact.within(
                NOON + Duration::from_secs(300),
                NOON + Duration::from_secs(400)
            ),
            Duration::ZERO
        );
        let down = NodeFact {
            kind: NodeFactKind::CriscopeDown,
            from: NOON + Duration::from_secs(63),
            to: Some(NOON + Duration::from_secs(250)),
            reason: String::new(),
        };
        assert_eq!(
            down.sentence(NOON),
            "criscope was down from 12:01:03 to 12:04:10 UTC and saw no calls then"
        );
        let text = serde_json::to_string(&down).expect("json");
        assert_eq!(serde_json::from_str::<NodeFact>(&text).expect("read"), down);
    }
}
