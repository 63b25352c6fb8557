//! The subject of a call: pod, container and image from its request, ids and exit codes from its response.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::annotations::PodOrigin;
use super::container_request::{ContainerRequest, ResourceLimits};
use crate::serde_by_name;

/// A pod's identity in the kubelet's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodIdentity {
    /// Kubernetes namespace.
    pub namespace: Box<str>,
    /// Pod name.
    pub name: Box<str>,
    /// Pod uid; a UUID, or a hash for static pods.
    pub uid: Box<str>,
    /// Sandbox attempt: the number of earlier sandboxes of this pod.
    pub attempt: u32,
}

/// A container's identity within its pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "(Box<str>, u32)", into = "(Box<str>, u32)")]
pub struct ContainerIdentity {
    /// Container name.
    pub name: Box<str>,
    /// Restart count.
    pub attempt: u32,
}

impl From<(Box<str>, u32)> for ContainerIdentity {
    fn from((name, attempt): (Box<str>, u32)) -> Self {
        Self { name, attempt }
    }
}

impl From<ContainerIdentity> for (Box<str>, u32) {
    fn from(container: ContainerIdentity) -> Self {
        (container.name, container.attempt)
    }
}

/// The subject of a call: the fields that may be shown (see [`super::identity`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The pod, from the request or the pod index.
    pub pod: Option<Arc<PodIdentity>>,
    /// The sandbox id.
    pub sandbox_id: Option<Arc<str>>,
    /// The container, from the request or the pod index.
    pub container: Option<Arc<ContainerIdentity>>,
    /// The container id.
    pub container_id: Option<Arc<str>>,
    /// The image reference, without user, password and query.
    pub image: Option<Arc<str>>,
    /// The requested runtime handler; empty means the default.
    pub handler: Option<Arc<str>>,
    /// When the kubelet first saw the pod (RunPodSandbox, RestorePod).
    pub origin: Option<PodOrigin>,
    /// The timeout in the request, in seconds: of the command (ExecSync, 0 for none), or until the container is killed
    /// (StopContainer).
    pub timeout: Option<i64>,
    /// Limits, mounts and rights of the container (CreateContainer).
    pub request: Option<Arc<ContainerRequest>>,
    /// The limits that change (UpdateContainerResources).
    pub limits: Option<ResourceLimits>,
}

/// Fields of the response, for the few methods whose response is decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseDetails {
    /// The new sandbox (RunPodSandbox, RestorePod).
    pub sandbox_id: Option<Arc<str>>,
    /// The new container (CreateContainer).
    pub container_id: Option<Arc<str>>,
    /// The new containers (RestorePod).
    pub restored: Vec<RestoredContainer>,
    /// Exit code of the command (ExecSync).
    pub exit_code: Option<i32>,
    /// State of the container (ContainerStatus).
    pub state: Option<ContainerState>,
    /// The conditions of the runtime (Status).
    pub conditions: Option<Arc<[RuntimeCondition]>>,
    /// The mount point of the filesystem of images (ImageFsInfo).
    pub image_fs: Option<Unseen>,
}

/// A container that a RestorePod has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredContainer {
    /// Its id.
    pub id: Arc<str>,
    /// Its name in the pod.
    pub name: Box<str>,
}

/// The conditions without which the kubelet starts no pod (`cri-api`, `RuntimeCondition`). Others, such as containerd's
/// `ContainerdHasNoDeprecationWarnings`, are remarks of the runtime.
pub const REQUIRED_CONDITIONS: [&str; 2] = ["RuntimeReady", "NetworkReady"];

/// A condition of a runtime, as it reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeCondition {
    /// `RuntimeReady`, `NetworkReady`, ...
    pub kind: Arc<str>,
    /// Whether it holds.
    pub status: bool,
    /// One word.
    pub reason: Arc<str>,
    /// A sentence, to be redacted before it is shown.
    pub message: Unseen,
}

/// Text that may hold a secret, which `Debug` does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct Unseen(Arc<str>);

impl Unseen {
    /// Wraps a text.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text, which is not for logs and pages.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Unseen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// The state of a container, from its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerState {
    /// When it was started, in nanoseconds since 1970; 0 if it was not.
    pub started_at: i64,
    /// How it ended; `None` while it has not.
    pub exit: Option<ContainerExit>,
}

/// The exit of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerExit {
    /// When, in nanoseconds since 1970.
    pub at: i64,
    /// Exit code; 128 plus the number of the signal that killed it.
    pub code: i32,
    /// Reason.
    pub reason: ExitReason,
}

crate::named! {
    /// Why a container exited: the reasons that runtimes use, and one for all others.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum ExitReason {
        /// With exit code 0.
        Completed = "completed",
        /// With another exit code.
        Error = "error",
        /// Killed by the kernel's OOM killer.
        OomKilled = "oom_killed",
        /// The runtime does not know how: the container's shim died, or the exit was lost with the runtime or the node.
        Unknown = "unknown",
        /// The built-in runtime killed it because a plugin wanted that.
        Evicted = "evicted",
        /// Another reason.
        Other = "other",
    }
}

serde_by_name!(ExitReason);
