//! What the request for a container says about its limits, its mounts and its rights: evidence for the diagnosis. Bounded and small,
//! since each record of a CreateContainer keeps it. Values of environments, arguments, labels and annotations are not copied.

mod volumes;

use prost::Message;
use serde::{Deserialize, Serialize};

pub use self::volumes::{MountedVolume, VolumeKind};
use crate::annotations::{self, fields};
use crate::serde_by_name;

/// The kernel keeps the ports below this one for processes with `CAP_NET_BIND_SERVICE`, unless a sysctl lowers it.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

/// What CreateContainer says of a container. The serde form is part of the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerRequest {
    /// The pod's `terminationGracePeriodSeconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_grace: Option<u32>,
    /// The CPU limit in thousandths of a CPU; 0 for none. `None` in journals of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    /// The memory limit in bytes; 0 for none. `None` in journals of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// `runAsUser`; `None` for the user of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<i64>,
    /// The seccomp profile, if the request has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp: Option<SeccompKind>,
    /// `readOnlyRootFilesystem`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only_root: bool,
    /// All capabilities are dropped.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub drops_all_capabilities: bool,
    /// The lowest port that the container declares and may not open, unless the runtime lets every user open all ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forbidden_port: Option<u16>,
    /// The handler of the preStop hook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre_stop: Option<HookHandler>,
    /// The mounts that may hide or hold programs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountedVolume>,
}

crate::named! {
    /// The kind of a seccomp profile.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum SeccompKind {
        /// The profile of the runtime.
        RuntimeDefault = "runtime_default",
        /// No profile.
        Unconfined = "unconfined",
        /// A profile of the node.
        Localhost = "localhost",
    }
}

crate::named! {
    /// The handler of a hook.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum HookHandler {
        /// A command, which is an ExecSync.
        Exec = "exec",
        /// A request of the kubelet by HTTP, which makes no call of the CRI.
        HttpGet = "http_get",
        /// A pause of the kubelet, which makes no call of the CRI.
        Sleep = "sleep",
        /// A connection of the kubelet by TCP, which makes no call of the CRI.
        TcpSocket = "tcp_socket",
    }
}

serde_by_name!(SeccompKind, HookHandler);

/// The new limits in UpdateContainerResources; 0 for a limit that does not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceLimits {
    /// The CPU limit in thousandths of a CPU.
    pub cpu_millis: u32,
    /// The memory limit in bytes.
    pub memory: u64,
}

#[derive(Clone, PartialEq, Message)]
struct LinuxResources {
    #[prost(int64, tag = "1")]
    cpu_period: i64,
    #[prost(int64, tag = "2")]
    cpu_quota: i64,
    #[prost(int64, tag = "4")]
    memory_limit_in_bytes: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(int64, tag = "1")]
    value: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(int32, tag = "1")]
    profile_type: i32,
}

#[derive(Clone, PartialEq, Message)]
struct SecurityContext {
    #[prost(bool, tag = "2")]
    privileged: bool,
    #[prost(message, optional, tag = "5")]
    run_as_user: Option<Number>,
    #[prost(bool, tag = "7")]
    readonly_rootfs: bool,
    #[prost(message, optional, tag = "15")]
    seccomp: Option<Profile>,
}

impl LinuxResources {
    fn limits(&self) -> ResourceLimits {
        let millis = match (self.cpu_quota, self.cpu_period) {
            (quota @ 1.., period @ 1..) => quota.saturating_mul(1000) / period,
            _ => 0,
        };
        ResourceLimits {
            cpu_millis: u32::try_from(millis).unwrap_or(u32::MAX),
            memory: u64::try_from(self.memory_limit_in_bytes).unwrap_or(0),
        }
    }
}

/// The limits in an UpdateContainerResources request.
pub(super) fn updated_limits(request: &[u8]) -> ResourceLimits {
    resources(fields(request, 2).last())
}

/// The limits of a pod's containers together, in a request that has the configuration of its sandbox in this field; `None` if it has none.
pub(super) fn sandbox_limits(request: &[u8], config_field: u32) -> Option<ResourceLimits> {
    let config = fields(request, config_field).last()?;
    let linux = fields(config, 8).last()?;
    let limits = resources(fields(linux, 5).last());
    (limits != ResourceLimits::default()).then_some(limits)
}

fn resources(message: Option<&[u8]>) -> ResourceLimits {
    let message = message.unwrap_or_default();
    let decoded = LinuxResources::decode(message).unwrap_or_default();
    decoded.limits()
}

/// What a CreateContainer request says of its container; `None` if it has no configuration.
pub(super) fn container_request(request: &[u8]) -> Option<ContainerRequest> {
    let config = fields(request, 2).last()?;
    let linux = fields(config, 15).last().unwrap_or_default();
    let limits = resources(fields(linux, 1).last());
    let security_bytes = fields(linux, 2).last().unwrap_or_default();
    let security = SecurityContext::decode(security_bytes).unwrap_or_default();
    let capabilities = fields(security_bytes, 1).last().unwrap_or_default();
    let user = security.run_as_user.as_ref().map(|user| user.value);
    let annotations = annotations::ContainerAnnotations::read(config);
    let may_bind = security.privileged || may_bind_low_ports(capabilities, user);
    let port = annotations.lowest_port;
    Some(ContainerRequest {
        pod_grace: annotations.pod_grace,
        cpu_millis: Some(limits.cpu_millis),
        memory: Some(limits.memory),
        user,
        seccomp: security
            .seccomp
            .filter(|_| !security.privileged)
            .and_then(|profile| SeccompKind::from_number(profile.profile_type)),
        read_only_root: security.readonly_rootfs,
        drops_all_capabilities: !security.privileged && has_name(capabilities, 2, b"ALL"),
        forbidden_port: port.filter(|port| *port < FIRST_UNPRIVILEGED_PORT && !may_bind),
        pre_stop: annotations.pre_stop,
        mounts: volumes::mounts(config),
    })
}

impl SeccompKind {
    /// `SecurityProfile.ProfileType`
    fn from_number(number: i32) -> Option<Self> {
        let place = usize::try_from(number).ok()?;
        Self::ALL.get(place).copied()
    }
}

/// Returns whether a list of capabilities has this one.
fn has_name(capabilities: &[u8], field: u32, name: &[u8]) -> bool {
    fields(capabilities, field).any(|value| value.eq_ignore_ascii_case(name))
}

/// Returns whether a container may open ports below 1024. A user other than root needs an ambient capability; root has it unless it is
/// dropped.
fn may_bind_low_ports(capabilities: &[u8], user: Option<i64>) -> bool {
    if matches!(user, Some(1..)) {
        return has_net_bind(capabilities, 3);
    }
    !has_net_bind(capabilities, 2) || has_net_bind(capabilities, 1)
}

fn has_net_bind(capabilities: &[u8], field: u32) -> bool {
    has_name(capabilities, field, b"NET_BIND_SERVICE") || has_name(capabilities, field, b"ALL")
}

impl ContainerRequest {
    /// The volume with a file that is mounted at this path, or, for a program that is looked up in the directories of programs, in one of
    /// them.
    pub fn file_at(&self, program: &str) -> Option<&MountedVolume> {
        let mut mounts = self.mounts.iter();
        mounts.find(|mount| mount.is_program(program))
    }

    /// The volume over a directory in which this program lies. A file that is mounted itself hides nothing.
    pub fn volume_over(&self, program: &str) -> Option<&MountedVolume> {
        let over = self.mounts.iter().filter(|mount| mount.is_over(program));
        // The innermost one decides what is there.
        over.max_by_key(|mount| mount.path.len())
    }

    /// The volume over a directory with programs and libraries of the image.
    pub fn system_volume(&self) -> Option<&MountedVolume> {
        let mut mounts = self.mounts.iter();
        mounts.find(|mount| mount.is_over_system_directory())
    }

    /// The volume over the directory of `command`, unless it was made to hold it, or over a directory with programs and libraries of the
    /// image.
    pub fn hiding_volume(&self) -> Option<&MountedVolume> {
        let mut mounts = self.mounts.iter();
        let own = mounts.find(|mount| mount.holds_command && !mount.kind.has_files_of_author());
        own.or_else(|| self.system_volume())
    }

    /// Returns whether the container runs with fewer rights than root has by default.
    pub fn restricts(&self) -> bool {
        let has_profile = self
            .seccomp
            .is_some_and(|profile| profile != SeccompKind::Unconfined);
        let is_user = self.user.is_some_and(|user| user > 0);
        is_user || self.drops_all_capabilities || self.read_only_root || has_profile
    }

    /// Returns whether it says whether there is a preStop hook. Journals of earlier versions do not.
    pub fn knows_pre_stop(&self) -> bool {
        self.memory.is_some() && self.pod_grace.is_some()
    }

    /// Returns whether the kubelet may run a preStop hook that makes no call.
    pub fn may_have_unseen_pre_stop(&self) -> bool {
        let is_exec = self.pre_stop.is_none_or(|hook| hook == HookHandler::Exec);
        !self.knows_pre_stop() || !is_exec
    }

    /// Takes over the limits that a later request changes.
    pub fn update(&mut self, limits: ResourceLimits) {
        if limits.cpu_millis > 0 {
            self.cpu_millis = Some(limits.cpu_millis);
        }
        if limits.memory > 0 {
            self.memory = Some(limits.memory);
        }
    }

    /// The memory limit, if there is one.
    pub fn memory_limit(&self) -> Option<u64> {
        self.memory.filter(|bytes| *bytes > 0)
    }

    /// The CPU limit in thousandths of a CPU, if there is one.
    pub fn cpu_limit(&self) -> Option<u32> {
        self.cpu_millis.filter(|millis| *millis > 0)
    }
}

#[cfg(test)]
mod tests;
