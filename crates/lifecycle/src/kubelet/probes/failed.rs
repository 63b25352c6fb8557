//! Probes that had failed before their containers were stopped.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::kubelet::execs::ExecResult;
use criscope_cri::units::times;

/// An exec probe that had failed before its container was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FailedProbe {
    /// The last result.
    pub(crate) result: ExecResult,
    /// Failures in a row.
    pub(crate) in_a_row: u32,
    /// True if it had failed since the container began.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) never_succeeded: bool,
    /// Evidence that it was the reason for the stop.
    #[serde(default, skip_serializing_if = "KillEvidence::is_at_once")]
    pub(crate) evidence: KillEvidence,
    /// From the last failure to the stop, or to the preStop hook before the stop.
    #[serde(default, with = "times::micros", skip_serializing_if = "is_zero")]
    pub(crate) before: Duration,
}

/// Evidence that a failed probe was the reason for a stop, the best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KillEvidence {
    /// The stop, or a hook before it, followed at once.
    #[default]
    AtOnce,
    /// The probe was due and was not run again: the kubelet no longer runs a liveness or startup probe that has led to a kill, nor one of a
    /// deleted pod.
    GivenUp,
    /// No evidence: another reason is as likely.
    Weak,
}

impl KillEvidence {
    fn is_at_once(&self) -> bool {
        *self == Self::AtOnce
    }
}

fn is_zero(time: &Duration) -> bool {
    time.is_zero()
}
