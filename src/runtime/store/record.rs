//! What is written down of each object. A record is JSON that can be read and repaired by hand; fields that an older
//! version did not write have their defaults.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::disk::Written;
use crate::cri::v1;
use crate::runtime::oci::OciRuntime;
use criscope_image::Digest;

/// Version of both records: grows when an older program would misunderstand what a newer one writes. What is older is
/// migrated (see [`super::versions`]), with what is newer the runtime does not start. Fields that are added without a new
/// version have a default, and survive a program that does not know them.
pub const VERSION: u32 = 2;

/// How far a sandbox is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxState {
    /// It is being made. After a restart this means that it never was.
    #[default]
    Making,
    /// All is there.
    Ready,
    /// It was stopped, or lost what it needs: only to be removed.
    Stopped,
}

impl SandboxState {
    /// Every value.
    pub const ALL: [Self; 3] = [Self::Making, Self::Ready, Self::Stopped];

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Making => "making",
            Self::Ready => "ready",
            Self::Stopped => "stopped",
        }
    }
}

/// What is known of a sandbox.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// [`VERSION`].
    pub version: u32,
    /// 64 hexadecimal digits.
    pub id: String,
    /// How far it is.
    pub state: SandboxState,
    /// As the kubelet sent it.
    pub config: v1::PodSandboxConfig,
    /// The runtime handler as it was asked for; empty is the default one.
    pub asked_handler: String,
    /// The handler that serves it.
    pub handler: String,
    /// How that handler called its OCI runtime when the sandbox was made: what it made then is found, and ended, in the
    /// same way, whatever the configuration says by now. None in records of older versions.
    #[serde(default)]
    pub oci: Option<OciRuntime>,
    /// Nanoseconds since 1970.
    pub created_at: i64,
    /// In which life of the machine (`/proc/sys/kernel/random/boot_id`): in another nothing of it runs.
    pub boot: String,
    /// After its state is `stopped`: its network is detached and its namespaces are freed. Until then StopPodSandbox tries.
    #[serde(default)]
    pub network_freed: bool,
    /// Its address; none with host network.
    #[serde(default)]
    pub ip: Option<IpAddr>,
    /// Its other addresses.
    #[serde(default)]
    pub additional_ips: Vec<IpAddr>,
    /// The init of its shared PID namespace, 0 without one.
    #[serde(default)]
    pub pid_namespace: u32,
    /// The SELinux label of its processes.
    #[serde(default)]
    pub process_label: Option<String>,
    /// The SELinux label of its files.
    #[serde(default)]
    pub mount_label: Option<String>,
    /// Resources after the last UpdatePodSandboxResources.
    #[serde(default)]
    pub resources: Option<v1::LinuxContainerResources>,
    /// The pod's overhead after it.
    #[serde(default)]
    pub overhead: Option<v1::LinuxContainerResources>,
    /// Fields that this program does not know.
    #[serde(skip)]
    pub unknown: Option<Value>,
}

/// How far a container is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContainerState {
    /// It is being made. After a restart this means that it never was.
    #[default]
    Making,
    /// Made, not started.
    Created,
    /// It is being started: after a restart the shim knows how far it came.
    Starting,
    /// Its process runs.
    Running,
    /// Its process has ended, or could not be started.
    Exited,
}

impl ContainerState {
    /// Every value.
    pub const ALL: [Self; 5] = [
        Self::Making,
        Self::Created,
        Self::Starting,
        Self::Running,
        Self::Exited,
    ];

    /// In a metric; a sentence has its name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Making => "making",
            Self::Created => "created",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Exited => "exited",
        }
    }
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// 128 + n for signal n.
    pub code: i32,
    /// `Completed`, `Error`, `OOMKilled`, `StartError` or `Unknown`.
    pub reason: String,
    /// In words, if there is more to say.
    #[serde(default)]
    pub message: String,
}

/// What is known of a container.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// [`VERSION`].
    pub version: u32,
    /// 64 hexadecimal digits.
    pub id: String,
    /// The id of its sandbox.
    pub sandbox: String,
    /// How far it is.
    pub state: ContainerState,
    /// As the kubelet sent it. Its environment may hold secrets: the file is for root only.
    pub config: v1::ContainerConfig,
    /// The image's id.
    pub image_id: String,
    /// The image by a name with a digest where it has one, else its id.
    pub image_ref: String,
    /// The image by the name that users know: the kubelet makes containers by its id. Empty in older records.
    #[serde(default)]
    pub image_name: String,
    /// The image's layers, from the bottom up.
    pub layers: Vec<Digest>,
    /// The handler that serves it.
    pub handler: String,
    /// Nanoseconds since 1970, as all times; 0 is not yet.
    pub created_at: i64,
    /// When it was started.
    #[serde(default)]
    pub started_at: i64,
    /// When it ended.
    #[serde(default)]
    pub finished_at: i64,
    /// How it ended.
    #[serde(default)]
    pub exit: Option<Exit>,
    /// Absolute path of its log; empty without one.
    #[serde(default)]
    pub log: PathBuf,
    /// The signal StopContainer sends first.
    pub stop_signal: i32,
    /// Its first process as the node sees it, 0 before it was started.
    #[serde(default)]
    pub pid: u32,
    /// User, group, and all groups.
    #[serde(default)]
    pub user: (u32, u32, Vec<u32>),
    /// Resources as they are after the last update.
    #[serde(default)]
    pub resources: v1::LinuxContainerResources,
    /// Images mounted as volumes: container path to image id and its layers.
    #[serde(default)]
    pub image_volumes: BTreeMap<String, ImageVolume>,
    /// Fields that this program does not know.
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

/// An image mounted as a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageVolume {
    /// The image's id.
    pub image_id: String,
    /// The image as ContainerStatus names it.
    pub image_ref: String,
    /// Its layers, from the bottom up.
    pub layers: Vec<Digest>,
}

impl std::fmt::Debug for SandboxRecord {
    /// Without the configuration.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SandboxRecord")
            .field("id", &self.id)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ContainerRecord {
    /// Without the configuration.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContainerRecord")
            .field("id", &self.id)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl SandboxRecord {
    /// Its name, which no other sandbox has (containerd and CRI-O put it together the same way).
    pub fn name(&self) -> String {
        sandbox_name(self.config.metadata.as_ref())
    }

    /// Namespace options of the request; all POD if it has none.
    pub fn namespaces(&self) -> v1::NamespaceOption {
        let linux = self.config.linux.as_ref();
        let context = linux.and_then(|linux| linux.security_context.as_ref());
        context
            .and_then(|context| context.namespace_options.clone())
            .unwrap_or_default()
    }

    /// Whether it stopped because the init of its shared PID namespace had ended.
    pub fn lost_processes(&self) -> bool {
        self.state == SandboxState::Stopped
            && self.pid_namespace == 0
            && self.namespaces().pid == v1::NamespaceMode::Pod as i32
    }

    /// Whether it uses the node's network.
    pub fn host_network(&self) -> bool {
        self.namespaces().network == v1::NamespaceMode::Node as i32
    }

    /// The cgroup its containers lie in, as the kubelet names it.
    pub fn cgroup_parent(&self) -> &str {
        self.config
            .linux
            .as_ref()
            .map_or("", |linux| &linux.cgroup_parent)
    }
}

/// `name_namespace_uid_attempt`.
pub fn sandbox_name(metadata: Option<&v1::PodSandboxMetadata>) -> String {
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
    /// Its name, which no other container has: `name_pod_namespace_uid_attempt`.
    pub fn name(&self, sandbox: &SandboxRecord) -> String {
        container_name(
            self.config.metadata.as_ref(),
            sandbox.config.metadata.as_ref(),
        )
    }
}

/// `name_pod_namespace_uid_attempt`.
pub fn container_name(
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
