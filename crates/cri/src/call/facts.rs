//! Facts of a call besides its subject, by method. Small, since every flight recorder record has space for them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::live::Call;
use crate::Method;
use crate::annotations::ConfigSource;
use crate::units::times::UnixMicros;

/// Facts of a call besides its subject. The serde form is part of the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallFacts {
    /// Nothing.
    #[default]
    None,
    /// RunPodSandbox: the kubelet saw the pod before.
    Seen {
        /// How long before the call, in milliseconds, at most 49 days.
        before_ms: u32,
        /// Where the kubelet saw it.
        source: ConfigSource,
        /// The first part of that time, in milliseconds, in which criscope was not running.
        #[serde(default, skip_serializing_if = "is_zero")]
        unwatched_ms: u32,
    },
    /// CreateContainer with the annotation of the pod's grace period.
    Create {
        /// `terminationGracePeriodSeconds`.
        pod_grace: u32,
    },
    /// StopContainer.
    Stop {
        /// Seconds until the container is killed.
        grace: u32,
    },
    /// ExecSync.
    Exec {
        /// Timeout of the command in seconds; 0 for none.
        timeout: u32,
        /// Exit code of the command.
        exit_code: Option<i32>,
    },
}

fn is_zero(ms: &u32) -> bool {
    *ms == 0
}

fn seconds(timeout: i64) -> u32 {
    u32::try_from(timeout.max(0)).unwrap_or(u32::MAX)
}

impl From<&Call> for CallFacts {
    fn from(call: &Call) -> Self {
        let Some(subject) = call.subject.get() else {
            return Self::None;
        };
        match (call.method, subject.origin, subject.timeout) {
            (Method::RunPodSandbox, Some(origin), _) => {
                let (seen, began) = (UnixMicros::new(origin.seen_us), call.started_at.into());
                let before = (seen <= began).then(|| began.since(seen).as_millis());
                match before.map(u32::try_from) {
                    Some(Ok(before_ms)) => Self::Seen {
                        before_ms,
                        source: origin.source,
                        unwatched_ms: 0,
                    },
                    _ => Self::None,
                }
            }
            (Method::CreateContainer, ..) => match subject.grace_period {
                Some(pod_grace) => Self::Create { pod_grace },
                None => Self::None,
            },
            (Method::StopContainer, _, Some(timeout)) => Self::Stop {
                grace: seconds(timeout),
            },
            (Method::ExecSync, _, Some(timeout)) => Self::Exec {
                timeout: seconds(timeout),
                exit_code: call.response.get().and_then(|answer| answer.exit_code),
            },
            _ => Self::None,
        }
    }
}

impl CallFacts {
    /// The exit code of the command, if it is an ExecSync that has succeeded.
    pub fn exit_code(&self) -> Option<i32> {
        match self {
            Self::Exec { exit_code, .. } => *exit_code,
            _ => None,
        }
    }

    /// The time until the container is killed, if it is a StopContainer.
    pub fn grace_period(&self) -> Option<Duration> {
        match self {
            Self::Stop { grace } => Some(Duration::from_secs((*grace).into())),
            _ => None,
        }
    }

    /// Returns whether there are none.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}
