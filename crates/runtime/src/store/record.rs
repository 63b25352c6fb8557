//! The records of sandboxes and containers: JSON that can be read and repaired by hand. Fields that older versions did not
//! write have defaults.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::disk::Written;
use crate::oci::OciRuntime;
use criscope_cni::AttachedNetwork;
use criscope_cri::v1;
use criscope_image::Digest;

/// Version of both records, incremented when an older program would misinterpret a new record. Older records are migrated (see
/// [`super::versions`]); with newer ones the runtime does not start. Fields added without a new version have a default and are
/// preserved by programs that do not know them.
pub(crate) const VERSION: u32 = 2;

criscope_cri::named! {
    /// The state of a sandbox.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum SandboxState {
        /// Being created. An object that is found in this state after a restart is removed.
        #[default]
        Making = "making",
        /// All its parts exist.
        Ready = "ready",
        /// Stopped, or without a required part. It can only be removed.
        Stopped = "stopped",
    }
}

/// The record of a sandbox.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    /// [`VERSION`].
    pub version: u32,
    /// 64 hexadecimal digits.
    pub id: String,
    /// The state.
    pub state: SandboxState,
    /// The configuration as the kubelet sent it.
    pub config: v1::PodSandboxConfig,
    /// The runtime handler of the request; empty for the default handler.
    pub asked_handler: String,
    /// The name of the handler that serves it.
    pub handler: String,
    /// The OCI runtime of that handler when the sandbox was created: its containers are found and stopped with it even if the
    /// configuration has changed. `None` in older records.
    #[serde(default)]
    pub oci: Option<OciRuntime>,
    /// Nanoseconds since 1970.
    pub created_at: i64,
    /// The boot id (`/proc/sys/kernel/random/boot_id`) at its creation: after a reboot none of its processes are running.
    pub boot: String,
    /// True if, in state `stopped`, its network is detached and its namespaces are removed. Until then StopPodSandbox retries.
    #[serde(default)]
    pub network_freed: bool,
    /// The primary address; `None` with the host network.
    #[serde(default)]
    pub ip: Option<IpAddr>,
    /// The additional addresses.
    #[serde(default)]
    pub additional_ips: Vec<IpAddr>,
    /// The networks that it was attached to: it is detached from them even if the cache of CNI and the configuration have lost them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<AttachedNetwork>,
    /// The pid of the init of its shared PID namespace, or that of its sandbox container; 0 without one.
    #[serde(default)]
    pub pid_namespace: u32,
    /// The log directory without links, as it was found before a container could change it. `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_directory: Option<PathBuf>,
    /// The SELinux label of its processes.
    #[serde(default)]
    pub process_label: Option<String>,
    /// The SELinux label of its files.
    #[serde(default)]
    pub mount_label: Option<String>,
    /// Resources after the last UpdatePodSandboxResources.
    #[serde(default)]
    pub resources: Option<v1::LinuxContainerResources>,
    /// The overhead after the last UpdatePodSandboxResources.
    #[serde(default)]
    pub overhead: Option<v1::LinuxContainerResources>,
    /// Fields unknown to this version.
    #[serde(skip)]
    pub unknown: Option<Value>,
}

criscope_cri::named! {
    /// The state of a container.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum ContainerState {
        /// Being created. An object that is found in this state after a restart is removed.
        #[default]
        Making = "making",
        /// Created, but not started.
        Created = "created",
        /// Being started. After a restart the shim knows whether the start succeeded.
        Starting = "starting",
        /// The process is running.
        Running = "running",
        /// The process has exited, or could not be started.
        Exited = "exited",
    }
}

/// The exit of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Exit {
    /// 128 + n for signal n.
    pub code: i32,
    /// `Completed`, `Error`, `OOMKilled`, `Evicted`, `StartError` or `Unknown`.
    pub reason: String,
    /// A message with details; may be empty.
    #[serde(default)]
    pub message: String,
    /// The signal that ended it, 0 if it exited by itself; `None` if only the code is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// The record of a container.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    /// [`VERSION`].
    pub version: u32,
    /// 64 hexadecimal digits.
    pub id: String,
    /// The id of its sandbox.
    pub sandbox: String,
    /// The state.
    pub state: ContainerState,
    /// The configuration as the kubelet sent it. Its environment may contain secrets: the file has mode 0600.
    pub config: v1::ContainerConfig,
    /// The image's id.
    pub image_id: String,
    /// A name of the image with a digest, else its id.
    pub image_ref: String,
    /// The display name of the image, because the kubelet creates containers with the image id. Empty in older records.
    #[serde(default)]
    pub image_name: String,
    /// The image's layers, from the bottom up.
    pub layers: Vec<Digest>,
    /// The name of the handler that serves it.
    pub handler: String,
    /// Nanoseconds since 1970, like all times; 0 if not yet set.
    pub created_at: i64,
    /// When it was started.
    #[serde(default)]
    pub started_at: i64,
    /// When it exited.
    #[serde(default)]
    pub finished_at: i64,
    /// The exit.
    #[serde(default)]
    pub exit: Option<Exit>,
    /// Absolute path of its log; empty without one.
    #[serde(default)]
    pub log: PathBuf,
    /// The signal that StopContainer sends first.
    pub stop_signal: i32,
    /// The pid of its init process on the node; 0 before it is started.
    #[serde(default)]
    pub pid: u32,
    /// User id, group id, and all group ids of its process.
    #[serde(default)]
    pub user: (u32, u32, Vec<u32>),
    /// Resources after the last update.
    #[serde(default)]
    pub resources: v1::LinuxContainerResources,
    /// The cgroup, as in the specification, if NRI plugins adjusted it; otherwise that follows from the pod's cgroup and the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup_path: Option<PathBuf>,
    /// Image volumes by container path.
    #[serde(default)]
    pub image_volumes: BTreeMap<String, ImageVolume>,
    /// Set if an NRI plugin evicts the container: the message of the exit that follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted: Option<String>,
    /// The checkpoint that is being made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointAttempt>,
    /// Fields unknown to this version.
    #[serde(skip)]
    pub unknown: Option<Value>,
}

impl Written for SandboxRecord {
    fn unknown(&self) -> Option<&Value> {
        self.unknown.as_ref()
    }
}

impl Written for ContainerRecord {
    fn unknown(&self) -> Option<&Value> {
        self.unknown.as_ref()
    }
}

/// A checkpoint that is being made: the steps to undo if the daemon is killed meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CheckpointAttempt {
    /// The unfinished archive.
    pub draft: PathBuf,
    /// True if the container is paused for it.
    pub resume: bool,
}

/// An image volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImageVolume {
    /// The image's id.
    pub image_id: String,
    /// The image reference in ContainerStatus.
    pub image_ref: String,
    /// The layers, from the bottom up.
    pub layers: Vec<Digest>,
}

impl std::fmt::Debug for SandboxRecord {
    /// Omits the configuration.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SandboxRecord")
            .field("id", &self.id)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ContainerRecord {
    /// Omits the configuration.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContainerRecord")
            .field("id", &self.id)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl SandboxRecord {
    /// The unique name, composed as in containerd and CRI-O.
    pub(crate) fn name(&self) -> String {
        sandbox_name(self.config.metadata.as_ref())
    }

    /// The requested namespace options; all POD if the request has none.
    pub(crate) fn namespaces(&self) -> v1::NamespaceOption {
        self.config.namespace_options().cloned().unwrap_or_default()
    }

    /// Returns whether a shim of containerd runs its containers, one of them for the sandbox.
    pub(crate) fn has_containerd_shim(&self) -> bool {
        self.oci.as_ref().is_some_and(|oci| oci.shim.is_some())
    }

    /// The process whose exit stopped it.
    pub(crate) fn lost_init(&self) -> Option<&'static str> {
        if self.state != SandboxState::Stopped || self.pid_namespace != 0 {
            return None;
        }
        if self.has_containerd_shim() {
            return Some("its sandbox container");
        }
        (self.namespaces().pid == v1::NamespaceMode::Pod as i32)
            .then_some("the init of its shared PID namespace")
    }

    /// Returns whether it uses the node's network.
    pub(crate) fn host_network(&self) -> bool {
        self.namespaces().network == v1::NamespaceMode::Node as i32
    }

    /// Returns whether it has a UTS namespace. With the node's network only if the request names a host name, which is then set
    /// next to the node's, as in CRI-O; the kubelet names none.
    pub(crate) fn own_host_name(&self) -> bool {
        !self.host_network() || !self.config.hostname.is_empty()
    }

    /// The parent cgroup of its containers, in the kubelet's notation.
    pub(crate) fn cgroup_parent(&self) -> &str {
        self.config
            .linux
            .as_ref()
            .map_or("", |linux| &linux.cgroup_parent)
    }
}

/// `name_namespace_uid_attempt`.
pub(crate) fn sandbox_name(metadata: Option<&v1::PodSandboxMetadata>) -> String {
    let metadata = metadata.cloned().unwrap_or_default();
    [
        metadata.name,
        metadata.namespace,
        metadata.uid,
        metadata.attempt.to_string(),
    ]
    .join("_")
}

impl ContainerRecord {
    /// The unique name: `name_pod_namespace_uid_attempt`.
    pub(crate) fn name(&self, sandbox: &SandboxRecord) -> String {
        container_name(
            self.config.metadata.as_ref(),
            sandbox.config.metadata.as_ref(),
        )
    }
}

/// `name_pod_namespace_uid_attempt`.
pub(crate) fn container_name(
    container: Option<&v1::ContainerMetadata>,
    pod: Option<&v1::PodSandboxMetadata>,
) -> String {
    let container = container.cloned().unwrap_or_default();
    let pod = pod.cloned().unwrap_or_default();
    [
        container.name,
        pod.name,
        pod.namespace,
        pod.uid,
        container.attempt.to_string(),
    ]
    .join("_")
}
