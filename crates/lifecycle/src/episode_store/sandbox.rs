//! Ends of sandboxes without a request to stop them, from the events of the runtime.

use serde::{Deserialize, Serialize};

use super::EpisodeStore;
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::UnixMicros;

/// A limit of a cgroup that was reached before a sandbox ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReachedLimit {
    /// The kernel killed a process for lack of memory.
    Memory,
    /// The kernel refused to create a process or thread.
    Processes,
}

/// The end of the first process of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SandboxEnd {
    /// The end of the first process.
    pub(crate) at: UnixMicros,
    /// Exit code of pause; 128 plus the number of the signal that killed it. A sandbox of the built-in runtime has no pause: it
    /// ends with the init of its shared PID namespace, which has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<i32>,
    /// True if the first process belonged to a sandbox container, which a sandbox of the built-in runtime has with a shim of
    /// containerd.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_container: bool,
    /// The limit that the cgroup of that container, or of the pod, had reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<ReachedLimit>,
    /// True if a StopPodSandbox or RemovePodSandbox was received before it.
    #[serde(
        rename = "ordered",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub(crate) stop_requested: bool,
}

impl SandboxEnd {
    pub(crate) fn new(at: UnixMicros, code: Option<i32>) -> Self {
        Self {
            at,
            code,
            is_container: false,
            limit: None,
            stop_requested: false,
        }
    }

    pub(crate) fn from_container(at: UnixMicros, limit: Option<ReachedLimit>) -> Self {
        Self {
            is_container: true,
            limit,
            ..Self::new(at, None)
        }
    }
}

impl EpisodeStore {
    /// Records the end of a sandbox, if its start is known.
    pub(crate) fn note_sandbox_end(&mut self, pod: &PodIdentity, mut end: SandboxEnd) {
        self.listed.note_sandbox_end(pod, &end);
        let Some(began) = self.start_mut(pod).map(|start| start.began) else {
            return;
        };
        end.stop_requested |= self.stop_requests.have_ended_sandbox(pod, began, &end);
        if let Some(start) = self.start_mut(pod) {
            start.sandbox_end = Some(end);
        }
    }
}
