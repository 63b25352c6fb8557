//! Facts of a call besides its subject, by method. Small, since every flight recorder record has space for them.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::live::Call;
use crate::Method;
use crate::annotations::ConfigSource;
use crate::container_request::{ContainerRequest, ResourceLimits};
use crate::units::times::UnixMicros;

/// Facts of a call besides its subject. The serde form is part of the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallFacts {
    /// Nothing.
    #[default]
    None,
    /// RunPodSandbox and RestorePod: the kubelet saw the pod before.
    Seen {
        /// How long before the call, in milliseconds, at most 49 days.
        before_ms: u32,
        /// Where the kubelet saw it.
        source: ConfigSource,
        /// The first part of that time, in milliseconds, in which criscope was not running.
        #[serde(default, skip_serializing_if = "is_zero")]
        unwatched_ms: u32,
        /// The sum of its containers' CPU limits, in thousandths of a CPU; 0 if no container has one.
        #[serde(default, skip_serializing_if = "is_zero")]
        cpu_millis: u32,
    },
    /// CreateContainer.
    Create(Arc<ContainerRequest>),
    /// UpdateContainerResources.
    Limits {
        /// The new CPU limit in thousandths of a CPU; 0 if it stays.
        #[serde(default, skip_serializing_if = "is_zero")]
        cpu_millis: u32,
        /// The new memory limit in bytes; 0 if it stays.
        memory: u64,
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

fn is_zero(number: &u32) -> bool {
    *number == 0
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
            (Method::RunPodSandbox | Method::RestorePod, Some(origin), _) => {
                let (seen, began) = (UnixMicros::new(origin.seen_us), call.started_at.into());
                let before = (seen <= began).then(|| began.since(seen).as_millis());
                match before.map(u32::try_from) {
                    Some(Ok(before_ms)) => Self::Seen {
                        before_ms,
                        source: origin.source,
                        unwatched_ms: 0,
                        cpu_millis: subject.limits.unwrap_or_default().cpu_millis,
                    },
                    _ => Self::None,
                }
            }
            (Method::CreateContainer, ..) => {
                let request = subject.request.as_ref();
                request.map_or(Self::None, |request| Self::Create(Arc::clone(request)))
            }
            (Method::UpdateContainerResources, ..) => {
                let limits = subject
                    .limits
                    .filter(|limits| *limits != ResourceLimits::default());
                limits.map_or(Self::None, |limits| Self::Limits {
                    cpu_millis: limits.cpu_millis,
                    memory: limits.memory,
                })
            }
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

    /// The sum of the CPU limits of the pod's containers in thousandths of a CPU, if it is the RunPodSandbox of a pod in which some have
    /// limits.
    pub fn pod_cpu_millis(&self) -> Option<u32> {
        match *self {
            Self::Seen { cpu_millis, .. } if cpu_millis > 0 => Some(cpu_millis),
            _ => None,
        }
    }

    /// What the request says of the container, if it is a CreateContainer.
    pub fn container_request(&self) -> Option<&Arc<ContainerRequest>> {
        match self {
            Self::Create(request) => Some(request),
            _ => None,
        }
    }

    /// The limits that change, if it is an UpdateContainerResources that changes any.
    pub fn new_limits(&self) -> Option<ResourceLimits> {
        match *self {
            Self::Limits { cpu_millis, memory } => Some(ResourceLimits { cpu_millis, memory }),
            _ => None,
        }
    }

    /// Returns whether there are none.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}
