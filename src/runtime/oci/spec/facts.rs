//! What the caller knows: of the image, of the node, of the sandbox, of the handler.

pub use criscope_linux::cgroup::{CgroupDriver, CgroupVersion};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use oci_spec::runtime::{Capability, LinuxDeviceType};

use super::policy::Policy;

/// What the image's own configuration says of how to run it.
#[derive(Clone, Default)]
pub struct ImageConfig {
    /// `Entrypoint`.
    pub entrypoint: Vec<String>,
    /// `Cmd`.
    pub cmd: Vec<String>,
    /// `Env`, each `NAME=value`.
    pub env: Vec<String>,
    /// `User`: `user`, `uid`, `user:group` or `uid:gid`; empty is root.
    pub user: String,
    /// `WorkingDir`; empty is `/`.
    pub working_dir: String,
}

impl fmt::Debug for ImageConfig {
    /// Without the values of its environment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageConfig")
            .field("user", &self.user)
            .field("working_dir", &self.working_dir)
            .field("env", &self.env.len())
            .finish_non_exhaustive()
    }
}

/// One device node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNode {
    /// Its path, on the host or in the container.
    pub path: PathBuf,
    /// Character, block or fifo.
    pub kind: LinuxDeviceType,
    /// Major number.
    pub major: i64,
    /// Minor number.
    pub minor: i64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// What the node can, found out once at start.
#[derive(Debug, Clone)]
pub struct NodeFacts {
    /// The kind of cgroups.
    pub cgroup_version: CgroupVersion,
    /// Who makes them.
    pub cgroup_driver: CgroupDriver,
    /// The kernel accounts swap per cgroup.
    pub swap_accounting: bool,
    /// The hugetlb controller is there.
    pub hugetlb: bool,
    /// Kernel version, major and minor.
    pub kernel: (u32, u32),
    /// The machine as Rust's `std::env::consts::ARCH` says it.
    pub arch: &'static str,
    /// The kernel filters system calls.
    pub seccomp: bool,
    /// AppArmor is on.
    pub apparmor: bool,
    /// The AppArmor profile `RuntimeDefault` stands for, which is loaded; or why there is none.
    pub apparmor_default: Result<String, String>,
    /// SELinux is on and wanted.
    pub selinux: bool,
    /// The OCI runtime and the kernel (5.12) can mount recursively read-only.
    pub recursive_read_only: bool,
    /// What a container gets that asks for nothing; see [`containerd_capabilities`].
    pub default_capabilities: Vec<Capability>,
    /// What `ALL` means and a privileged container gets: what the daemon itself may pass on.
    pub all_capabilities: Vec<Capability>,
    /// No `oom_score_adj` below this one, the daemon's own: set where the node forbids to go lower.
    pub oom_score_adj_floor: Option<i32>,
    /// The most processes of a container, 0 for no limit of ours.
    pub pids_limit: i64,
    /// What the configuration says of all pods.
    pub policy: Policy,
}

/// What the sandbox has.
#[derive(Debug, Clone, Default)]
pub struct SandboxFacts {
    /// The sandbox's id.
    pub id: String,
    /// The pinned network namespace; `None` with host network.
    pub network: Option<PathBuf>,
    /// The pinned IPC namespace; `None` with host IPC.
    pub ipc: Option<PathBuf>,
    /// The pinned UTS namespace; `None` with host network.
    pub uts: Option<PathBuf>,
    /// The namespace of the pod's init; only where the pod shares its processes.
    pub pid: Option<PathBuf>,
    /// The pinned user namespace; `None` without one.
    pub user: Option<PathBuf>,
    /// The PID namespace of the target container, for mode TARGET. The caller saw that it runs in this pod.
    pub target_pid: Option<PathBuf>,
    /// The sandbox's host name, for `HOSTNAME`.
    pub hostname: String,
    /// The file mounted at `/etc/hostname`.
    pub hostname_path: Option<PathBuf>,
    /// The file mounted at `/etc/hosts`.
    pub hosts_path: Option<PathBuf>,
    /// The file mounted at `/etc/resolv.conf`.
    pub resolv_path: Option<PathBuf>,
    /// The directory mounted at `/dev/shm`.
    pub shm_path: Option<PathBuf>,
    /// The SELinux label of its processes.
    pub process_label: Option<String>,
    /// The SELinux label of its files.
    pub mount_label: Option<String>,
    /// Where the images of image volumes are mounted, by container path.
    pub image_mounts: BTreeMap<String, PathBuf>,
    /// Where mounts with id mappings were mounted, already mapped, by container path. One that is not here is left to the OCI
    /// runtime, which must be able to map it (runc 1.2, crun 1.9).
    pub id_mapped: BTreeMap<String, PathBuf>,
    /// Directories made for the `Volumes` of the image, by container path.
    pub image_volumes: BTreeMap<String, PathBuf>,
}

/// The settings of one runtime handler that change specifications.
#[derive(Debug, Clone, Default)]
pub struct HandlerOptions {
    /// A privileged container gets no host devices.
    pub privileged_without_host_devices: bool,
    /// It may use any device it makes nevertheless.
    pub privileged_without_host_devices_all_allowed: bool,
    /// Keys of pod annotations passed on to the OCI runtime; `*` ends a prefix.
    pub pod_annotations: Vec<String>,
    /// The same for annotations of containers.
    pub container_annotations: Vec<String>,
}

/// The capabilities containerd gives by default.
pub fn containerd_capabilities() -> Vec<Capability> {
    use Capability as C;
    vec![
        C::Chown,
        C::DacOverride,
        C::Fsetid,
        C::Fowner,
        C::Mknod,
        C::NetRaw,
        C::Setgid,
        C::Setuid,
        C::Setfcap,
        C::Setpcap,
        C::NetBindService,
        C::SysChroot,
        C::Kill,
        C::AuditWrite,
    ]
}
