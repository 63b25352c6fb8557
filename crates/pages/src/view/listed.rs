//! Pods as the runtime lists them, for pods whose start criscope has not seen.

use serde::{Deserialize, Serialize};

use super::PodState;
use criscope_cri::units::times::UnixMicros;

/// A pod in the runtime's list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListedPodView {
    /// Pod uid.
    pub uid: String,
    /// The id of its newest sandbox.
    pub sandbox_id: String,
    /// The state of the pod.
    pub state: PodState,
    /// The time at which that sandbox was made.
    pub created_unix_us: UnixMicros,
    /// The newest run of each container, the oldest first.
    pub containers: Vec<ListedContainerView>,
}

/// A container in the runtime's list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedContainerView {
    /// Container name.
    pub name: String,
    /// Restart count.
    pub restarts: u32,
    /// `created`, `running`, `exited` or `unknown`.
    pub state: String,
    /// The time at which it was made.
    pub created_unix_us: UnixMicros,
    /// Exit code, if it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// `completed`, `error`, `oom_killed`, `evicted`, `unknown` or `other`, if it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_reason: Option<String>,
    /// The end of its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_unix_us: Option<UnixMicros>,
}
