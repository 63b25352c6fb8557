//! Facts of the image, the node and the sandbox.

pub use criscope_linux::cgroup::{CgroupDriver, CgroupVersion};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use oci_spec::runtime::{Capability, LinuxDeviceType};

use crate::sections::PodDefaults;

/// The configuration of the image (OCI image specification).
#[derive(Clone, Default)]
pub struct ImageConfig {
    /// The name of the image, for errors.
    pub name: String,
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
    /// Omits the values of the environment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageConfig")
            .field("name", &self.name)
            .field("user", &self.user)
            .field("working_dir", &self.working_dir)
            .field("env", &self.env.len())
            .finish_non_exhaustive()
    }
}

/// One device node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNode {
    /// The path, on the host or in the container.
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

/// Facts of the node, detected once at start.
#[derive(Debug, Clone)]
pub struct NodeFacts {
    /// The cgroup version.
    pub cgroup_version: CgroupVersion,
    /// The cgroup driver.
    pub cgroup_driver: CgroupDriver,
    /// True if the kernel accounts swap per cgroup.
    pub swap_accounting: bool,
    /// True if the hugetlb controller is available.
    pub hugetlb: bool,
    /// Kernel version, major and minor.
    pub kernel: (u32, u32),
    /// The architecture, as in Rust's `std::env::consts::ARCH`.
    pub arch: &'static str,
    /// True if the kernel and the OCI runtime support seccomp.
    pub seccomp: bool,
    /// True if AppArmor is enabled.
    pub apparmor: bool,
    /// The loaded AppArmor profile for `RuntimeDefault`, or the reason why there is none.
    pub apparmor_default: Result<String, String>,
    /// True if SELinux is enabled on the node and in the settings.
    pub selinux: bool,
    /// True if the OCI runtime and the kernel (5.12) support recursive read-only mounts.
    pub recursive_read_only: bool,
    /// The default capabilities of a container; see `runtime.default_capabilities`.
    pub default_capabilities: Vec<Capability>,
    /// The capabilities that `ALL` and privileged containers get: the ones that the daemon itself can pass on.
    pub all_capabilities: Vec<Capability>,
    /// The minimum of `oom_score_adj`, which is the daemon's, if the node forbids lower ones.
    pub oom_score_adj_floor: Option<i32>,
    /// The pids limit of a container; 0 for none.
    pub pids_limit: i64,
    /// The configured policy for all pods.
    pub policy: PodDefaults,
}

/// Facts of the sandbox.
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
    /// The shared PID namespace of the pod, if it has one.
    pub pid: Option<PathBuf>,
    /// The pinned user namespace; `None` without one.
    pub user: Option<PathBuf>,
    /// The PID namespace of the target container (mode TARGET), which the caller has checked to run in this pod.
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
    /// The mounted images of image volumes, by container path.
    pub image_mounts: BTreeMap<String, PathBuf>,
    /// Mounts with id mappings that the caller has created, by container path. Others are left to the OCI runtime, which must
    /// support id-mapped mounts (runc 1.2, crun 1.9).
    pub id_mapped: BTreeMap<String, PathBuf>,
    /// The directories of the `Volumes` of the image, by container path.
    pub image_volumes: BTreeMap<String, PathBuf>,
}
