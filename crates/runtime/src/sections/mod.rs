//! `[runtime]` and its tables. Keys that containerd also has, have the same names.

mod handlers;
mod networks;
mod nri;
mod programs;
mod shim_type;
mod storage;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use criscope_linux::cgroup::CgroupDriver;
use oci_spec::runtime::{Capability, PosixRlimit};

use criscope_settings::value::{
    BooleanValue, BoundedDuration, BoundedNumber, ByteCount, CapabilitySet,
    DIRECTORIES_DESCRIPTION, DirectoryPath, FilePath, HandlerName, KeywordChoice, ListOf,
    OptionalValue, ResourceLimits, SeccompNotation, SocketPath, SysctlValues, VisibleText,
    default_capabilities, secs,
};
use criscope_settings::{
    ConfigProblem, SeccompProfile, SettingsReader, TableScope, lexical, settings,
};

pub use handlers::{Handler, Misfit, UsualBesides};
pub use networks::Cni;
pub use nri::Nri;
pub use programs::{HandlerPrograms, ProgramError};
pub use storage::Images;

settings! {
    /// The built-in runtime. Checked always, used if a backend has the kind `builtin`. Live keys apply to pods, containers and
    /// calls after a reload; a restart, which the others need, touches no pod.
    pub struct Runtime in "runtime" {
        /// The directory for data that survives a reboot: images, the records of pods and containers, and their writable
        /// layers. A changed value leaves existing data behind.
        root: PathBuf = "/var/lib/criscope".into(), DirectoryPath;
        /// The directory for data that must not survive a reboot: pinned namespaces, the sockets of the shims, the state of
        /// the OCI runtime. It must be on a tmpfs such as `/run`, and survive a restart of the service.
        state: PathBuf = "/run/criscope/runtime".into(), DirectoryPath;
        /// The small process that stays with each pod.
        shim: Option<PathBuf> = None, OptionalValue(FilePath),
            or "`criscope-shim` beside the program itself, else on `PATH`" like "\"/usr/bin/criscope-shim\"";
        /// What manages cgroups. `auto` is `systemd` where systemd runs the node and cgroups are v2, else `cgroupfs`. The
        /// kubelet asks for it (RuntimeConfig); a kubelet older than 1.34 must be configured with the same driver.
        cgroup_driver: Option<CgroupDriver> = None, KeywordChoice(&[
            ("auto", None), ("cgroupfs", Some(CgroupDriver::Cgroupfs)), ("systemd", Some(CgroupDriver::Systemd)),
        ]);
        /// The handler of pods without a RuntimeClass.
        default_handler: Option<String> = None, OptionalValue(HandlerName),
            or "`runc` if there is a handler of that name, else the only one" like "\"runc\"" => live;
        /// A second unix socket, for root only, that serves the CRI and, of containerd's own API, what the cAdvisor in the
        /// kubelet asks for: `/metrics/cadvisor` then has containers and pods by name, and their network. cAdvisor looks at
        /// `/run/containerd/containerd.sock`, or where the kubelet's flag `--containerd` says, once at its start
        /// ([INSTALL.md](INSTALL.md#cadvisor)). Each pod with a network of its own gets a process of about 0.3 MB.
        containerd_socket: Option<PathBuf> = None, OptionalValue(SocketPath),
            or "no such socket" like "\"unix:///run/criscope/containerd.sock\"";
        /// A longer line of a container's log is split into partial lines.
        max_container_log_line_size: usize = 16 << 10, ByteCount::between(1 << 10, 1 << 20) => live;
        /// How long ExecSync and Exec wait for output after their command has exited, while a process it left behind keeps
        /// the output open; `0s` waits until the timeout of ExecSync, or the caller's deadline.
        drain_exec_sync_io_timeout: Duration = secs(5), BoundedDuration::between(Duration::ZERO, secs(3600)) => live;
        /// Answers CheckpointContainer and CheckpointPod, with CRIU through the OCI runtime
        /// ([RUNTIME.md](RUNTIME.md#checkpoints)). An archive holds the memory of the container's processes. Needs `criu` on the `PATH` of criscope, and an OCI runtime with the verb `checkpoint`.
        enable_criu: bool = false, BooleanValue => live;
        /// How often the writable layers of containers are measured in the background; statistics report the last
        /// measurement. All other statistics are read on request.
        stats_collect_period: Duration = secs(10), BoundedDuration::between(secs(1), secs(600));
    }
    parts {
        /// Defaults of pods and containers.
        pods: PodDefaults = PodDefaults::read;
        /// In the order of the file; empty means the default ones that are on `PATH`.
        handlers: Vec<Handler> = handlers::read;
        usual_besides: UsualBesides = UsualBesides::read;
        /// Pod networks.
        cni: Cni = Cni::read;
        /// Plugins that adjust containers.
        nri: Nri = Nri::read;
        /// The image store.
        images: Images = |reader| Images::read(reader, &root);
    }
}

settings! {
    /// Defaults of pods and containers.
    pub struct PodDefaults in "runtime" {
        /// Treats the node as if it had no AppArmor: a container that asks for a profile, `RuntimeDefault` included, is
        /// refused, as by containerd; one that asks for none runs unconfined.
        disable_apparmor: bool = false, BooleanValue => live;
        /// The AppArmor profile for `RuntimeDefault` and for containers that ask for none. A profile named here must be
        /// loaded when criscope starts; otherwise an error is logged, containers that ask for `RuntimeDefault` are refused,
        /// and those that ask for none run unconfined. A reload is refused by one that is not loaded.
        apparmor_profile: Option<String> = None, OptionalValue(VisibleText),
            or "`criscope-default`, which criscope makes and loads itself" like "\"my-default\"" => live;
        /// Labels processes and files on nodes with SELinux.
        enable_selinux: bool = false, BooleanValue;
        /// The number of SELinux categories from which each pod gets a unique pair.
        selinux_category_range: usize = 1024, BoundedNumber::between(2, 1024);
        /// Gives no container a lower `oom_score_adj` than that of criscope. For nodes where it may not be lowered (no
        /// CAP_SYS_RESOURCE).
        restrict_oom_score_adj: bool = false, BooleanValue => live;
        /// Ignores limits of huge pages on nodes without the hugetlb controller. With `false` such containers are refused.
        tolerate_missing_hugetlb_controller: bool = true, BooleanValue => live;
        /// Ignores limits of huge pages on every node.
        disable_hugetlb_controller: bool = false, BooleanValue => live;
        /// Devices of a container belong to the user and group of its security context (`runAsUser`, `runAsGroup`), instead
        /// of their owner on the host. Not in a user namespace, where the owner stays that of the host.
        device_ownership_from_security_context: bool = false, BooleanValue => live;
        /// Creates no volumes for the `VOLUME` lines of an image.
        ignore_image_defined_volumes: bool = false, BooleanValue => live;
        /// Lets every user bind every port in pods with their own network (`net.ipv4.ip_unprivileged_port_start=0`), unless
        /// the pod sets the sysctl.
        enable_unprivileged_ports: bool = true, BooleanValue => live;
        /// Lets every group ping in pods with their own network (`net.ipv4.ping_group_range="0 2147483647"`), unless the pod
        /// sets the sysctl or has a user namespace.
        enable_unprivileged_icmp: bool = true, BooleanValue => live;
        /// Sysctls of every pod that has the namespace they belong to, unless the pod sets them.
        sysctls: BTreeMap<String, String> = BTreeMap::new(), SysctlValues => live;
        /// Capabilities of containers that ask for none. `crio` lacks MKNOD, NET_RAW, SETFCAP, SYS_CHROOT and AUDIT_WRITE of
        /// containerd's.
        default_capabilities: Vec<Capability> = default_capabilities(), CapabilitySet => live;
        /// The seccomp profile of containers that ask for none. `seccompDefault` of the kubelet has the same effect.
        unset_seccomp_profile: SeccompProfile = SeccompProfile::Unconfined, SeccompNotation => live;
        /// The most processes of one container; 0 sets no limit besides the kubelet's (`podPidsLimit`).
        pids_limit: usize = 0, BoundedNumber::between(0, 1 << 22) => live;
        /// Resource limits (`ulimit`) of all containers: name, soft and hard limit, as in `"nofile=1024:4096"`; `-1` is unlimited.
        /// Others are those of the unit (`LimitNOFILE=`). Without CAP_SYS_RESOURCE no hard limit can be raised, and containers
        /// cannot be created.
        default_ulimits: Vec<PosixRlimit> = Vec::new(), ResourceLimits => live;
        /// Directories with specifications of the Container Device Interface, in `.json` and `.yaml` files; the last one with
        /// a device wins. Read for each container that asks for a device. `[]` turns CDI off.
        cdi_spec_dirs: Vec<PathBuf> = vec!["/etc/cdi".into(), "/var/run/cdi".into()], ListOf { of: DirectoryPath, words: DIRECTORIES_DESCRIPTION } => live;
        /// Directories of hooks that are added to containers, in `.json` files as of CRI-O and Podman (oci-hooks(5), schema 1.0.0); a
        /// file replaces one of the same name in an earlier directory. The programs run as root on the node. CRI-O's default is
        /// `["/usr/share/containers/oci/hooks.d"]`. Read for each container: while a file is broken, none can be created.
        hooks_dir: Vec<PathBuf> = Vec::new(), ListOf { of: DirectoryPath, words: DIRECTORIES_DESCRIPTION } => live;
        /// Block I/O classes, which pods choose by annotations (`blockio.resources.beta.kubernetes.io/pod`): a YAML file as of containerd
        /// and CRI-O ([RUNTIME.md](RUNTIME.md#classes-of-block-io-and-rdt)). Read, with the devices of the node, for each container that
        /// has a class.
        blockio_config_file: Option<PathBuf> = None, OptionalValue(FilePath),
            or "no classes" like "\"/etc/criscope/blockio.yaml\"" => live;
        /// Creates a container that has a block I/O class without it, instead of refusing it, if `blockio_config_file` is not set.
        ignore_blockio_not_enabled_errors: bool = false, BooleanValue => live;
        /// RDT classes (shares of caches and memory bandwidth), which pods choose by annotations
        /// (`rdt.resources.beta.kubernetes.io/pod`): a YAML file as of containerd and CRI-O. Written into the groups of resctrl when
        /// criscope starts, and by a reload if its classes have changed; if that fails, again for each container that has a class.
        rdt_config_file: Option<PathBuf> = None, OptionalValue(FilePath),
            or "no classes" like "\"/etc/criscope/rdt.yaml\"" => live;
        /// Creates a container that has an RDT class without it, instead of refusing it, if `rdt_config_file` is not set or resctrl is
        /// not mounted.
        ignore_rdt_not_enabled_errors: bool = false, BooleanValue => live;
    }
}

impl Default for PodDefaults {
    fn default() -> Self {
        Self::read(&mut SettingsReader::empty())
    }
}

impl Runtime {
    /// Reads `[runtime]` and its tables, and checks that they fit together. `sockets` are those of other keys.
    pub fn checked(reader: &mut SettingsReader<'_>, sockets: &[(String, &Path)]) -> Self {
        let scope = reader.section("runtime");
        let runtime = Self::read_at(reader, &scope);
        runtime.check_apart(reader, &scope);
        runtime.check_socket(reader, &scope, sockets);
        handlers::check_default(reader, &scope, &runtime);
        runtime
    }

    /// A reboot removes one directory and must keep the other, so neither may contain the other.
    fn check_apart(&self, reader: &mut SettingsReader<'_>, scope: &TableScope<'_>) {
        let (root, state) = (lexical(&self.root), lexical(&self.state));
        let (key, path, other) = if state.starts_with(&root) {
            (&Self::state, &self.state, "runtime.root")
        } else if root.starts_with(&state) {
            (&Self::root, &self.root, "runtime.state")
        } else {
            return;
        };
        let problem = format!(
            "{} lies in {other}; what survives a reboot and what must not cannot be in one place",
            path.display()
        );
        reader.fail_at(scope, key, ConfigProblem::Conflict(problem));
    }

    /// The second socket needs a path of its own, and calls to a backend that is criscope itself would loop.
    fn check_socket(
        &self,
        reader: &mut SettingsReader<'_>,
        scope: &TableScope<'_>,
        sockets: &[(String, &Path)],
    ) {
        let Some(path) = &self.containerd_socket else {
            return;
        };
        let nri = ("runtime.nri.socket_path", self.nri.socket_path.as_path());
        let nri = Some(nri).filter(|_| self.nri.enable && !self.nri.disable_connections);
        let others = sockets.iter().map(|(key, other)| (key.as_str(), *other));
        let mut others = others.chain(nri);
        if let Some((key, _)) = others.find(|(_, other)| lexical(other) == lexical(path)) {
            let problem = format!("{} is {key} already; use another socket", path.display());
            let key = &Self::containerd_socket;
            reader.fail_at(scope, key, ConfigProblem::Conflict(problem));
        }
    }
}
