//! The settings of the built-in runtime: `[runtime]` and what stands below it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use oci_spec::runtime::Capability;

pub use crate::cri::image_pattern::ImagePattern;

/// `[runtime]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// What survives a reboot.
    pub root: PathBuf,
    /// What must not.
    pub state: PathBuf,
    /// `criscope-shim`; see [`Runtime::shim_program`].
    pub shim: Option<PathBuf>,
    /// Who makes cgroups.
    pub cgroup_driver: CgroupDriver,
    /// The handler of pods that name none; see [`Runtime::handler_programs`].
    pub default_handler: Option<String>,
    /// Bytes of a line in a container's log.
    pub max_log_line: usize,
    /// What pods may do and get.
    pub pods: PodDefaults,
    /// How long ExecSync waits for output after the end of its command.
    pub drain_exec_sync: Duration,
    /// How often writable layers are measured.
    pub stats_period: Duration,
    /// `[runtime.handlers.NAME]` in the order of the file; empty means those that are found on `PATH`.
    pub handlers: Vec<Handler>,
    /// `[runtime.cni]`
    pub cni: Cni,
    /// `[runtime.images]`
    pub images: Images,
}

/// What pods and containers get, and may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDefaults {
    /// AppArmor counts as missing.
    pub disable_apparmor: bool,
    /// The profile that `RuntimeDefault` stands for.
    pub apparmor_profile: Option<String>,
    /// Processes and files are labelled.
    pub enable_selinux: bool,
    /// Categories to tell pods apart with.
    pub selinux_category_range: usize,
    /// No container goes below our own `oom_score_adj`.
    pub restrict_oom_score_adj: bool,
    /// No error for limits of huge pages without their controller.
    pub tolerate_missing_hugetlb: bool,
    /// No limits of huge pages at all.
    pub disable_hugetlb: bool,
    /// Devices belong to the user of the container.
    pub device_ownership_from_security_context: bool,
    /// `VOLUME` of images counts for nothing.
    pub ignore_image_volumes: bool,
    /// Ports below 1024 are for all.
    pub unprivileged_ports: bool,
    /// Ping is for all.
    pub unprivileged_icmp: bool,
    /// Kernel parameters by name.
    pub sysctls: BTreeMap<String, String>,
    /// Of containers that ask for nothing.
    pub capabilities: Vec<Capability>,
    /// Of containers that say nothing of seccomp.
    pub unset_seccomp: SeccompProfile,
    /// Processes of a container; 0 is no limit.
    pub pids_limit: usize,
    /// Where CDI devices are described; empty turns CDI off.
    pub cdi_spec_dirs: Vec<PathBuf>,
}

/// Who makes cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// systemd where it runs the node and cgroups are v2.
    Auto,
    /// The OCI runtime, by directories.
    Cgroupfs,
    /// The service manager.
    Systemd,
}

/// A seccomp profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeccompProfile {
    /// None.
    Unconfined,
    /// Our own.
    RuntimeDefault,
    /// A file of this node.
    Localhost(PathBuf),
}

/// `[runtime.handlers.NAME]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handler {
    /// What a RuntimeClass calls it.
    pub name: String,
    /// The program; see [`Runtime::handler_programs`].
    pub path: Option<PathBuf>,
    /// More global options.
    pub options: Vec<String>,
    /// Its `--root`; see [`Runtime::handler_root`].
    pub root: Option<PathBuf>,
    /// `--systemd-cgroup`, if that is not what the driver says.
    pub systemd_cgroup: Option<bool>,
    /// `--no-pivot`.
    pub no_pivot: bool,
    /// `--no-new-keyring`.
    pub no_new_keyring: bool,
    /// Annotations of pods that it sees.
    pub pod_annotations: Vec<String>,
    /// Annotations of containers that it sees.
    pub container_annotations: Vec<String>,
    /// A privileged container gets no host devices.
    pub privileged_without_host_devices: bool,
    /// It may use all that it makes.
    pub privileged_without_host_devices_all_allowed: bool,
    /// Networks of its own.
    pub cni_conf_dir: Option<PathBuf>,
    /// How many of them.
    pub cni_max_conf_num: Option<usize>,
    /// Of one call of the program.
    pub timeout: Duration,
}

/// `[runtime.cni]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cni {
    /// Where networks are configured.
    pub conf_dir: PathBuf,
    /// How many of them a pod gets; 0: all.
    pub max_conf_num: usize,
    /// Where plugins are.
    pub bin_dirs: Vec<PathBuf>,
    /// Where results are kept.
    pub cache_dir: PathBuf,
    /// What becomes a network when the pod CIDR is known.
    pub conf_template: Option<PathBuf>,
    /// Which address is the first.
    pub ip_preference: IpPreference,
    /// What interfaces are called.
    pub interface_prefix: String,
    /// Who sets `lo` up.
    pub loopback: Loopback,
    /// Deadline of ADD.
    pub add_timeout: Duration,
    /// Deadline of DEL.
    pub del_timeout: Duration,
    /// Deadline of CHECK, STATUS and GC.
    pub query_timeout: Duration,
}

/// Which address of a pod is its first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpPreference {
    /// The first IPv4 address.
    Ipv4,
    /// The first IPv6 address.
    Ipv6,
    /// The first that the plugins gave.
    Cni,
}

/// Who sets `lo` up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loopback {
    /// We do.
    Builtin,
    /// The CNI plugin does.
    Plugin,
}

/// `[runtime.images]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// Where they lie.
    pub root: PathBuf,
    /// Settings of registries.
    pub certs_dirs: Vec<PathBuf>,
    /// Credentials.
    pub docker_config: Option<PathBuf>,
    /// Layers at the same time.
    pub max_concurrent_downloads: usize,
    /// Silence of a registry.
    pub progress_timeout: Duration,
    /// Until a connection stands.
    pub connect_timeout: Duration,
    /// Without progress in between.
    pub retries: usize,
    /// Bytes of a layer as it is fetched.
    pub max_layer_bytes: usize,
    /// Bytes of a layer when it is unpacked.
    pub max_unpacked_bytes: usize,
    /// Files of a layer.
    pub max_layer_entries: usize,
    /// Unpacked bytes for each that was fetched.
    pub max_layer_ratio: usize,
    /// Bytes that stay free.
    pub min_free_bytes: usize,
    /// How long layers stay that nobody needs.
    pub keep_unused: Duration,
    /// Archives that are taken in.
    pub import_dir: PathBuf,
    /// What is not collected.
    pub pinned: Vec<ImagePattern>,
    /// Which of the images behind a name; `None`: that of this machine.
    pub platform: Option<Platform>,
}

/// Operating system, architecture and its variant, in the words of Go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Such as `linux`.
    pub os: String,
    /// Such as `arm64`.
    pub architecture: String,
    /// Such as `v8`, or nothing.
    pub variant: String,
}
