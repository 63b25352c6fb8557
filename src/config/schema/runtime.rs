//! The keys of the built-in runtime. Where containerd has the same knob, it has the same name here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use oci_spec::runtime::Capability;

use super::super::value::{
    Capabilities, Choice, Count, DirPath, FilePath, HandlerName, List, Profile, Size, Span, Switch,
    Sysctls, Text, default_capabilities,
};
use super::super::{CgroupDriver, SeccompProfile};
use super::{Described, Is, Key, Reload, Unset, table};

const PATHS: &str = "an array of absolute paths of directories";

table! {
    RUNTIME_ROOT: DirPath, Is<PathBuf> = Key {
        section: "runtime",
        name: "root",
        kind: DirPath,
        default: Is(|| PathBuf::from("/var/lib/criscope")),
        reload: Reload::Restart,
        help: "What must survive a reboot: images, the records of pods and containers, their writable layers. Changing it leaves everything behind that is there.",
    };
    RUNTIME_STATE: DirPath, Is<PathBuf> = Key {
        section: "runtime",
        name: "state",
        kind: DirPath,
        default: Is(|| PathBuf::from("/run/criscope/runtime")),
        reload: Reload::Restart,
        help: "What must not survive a reboot: pinned namespaces, the sockets of the shims, the OCI runtime's own state. It must lie on a tmpfs such as `/run`, and survive a restart of the service.",
    };
    SHIM: FilePath, Unset = Key {
        section: "runtime",
        name: "shim",
        kind: FilePath,
        default: Unset("`criscope-shim` beside the program itself, else on `PATH`"),
        reload: Reload::Restart,
        help: "The small process that stays with each pod.",
    };
    CGROUP_DRIVER: Choice<CgroupDriver>, Is<CgroupDriver> = Key {
        section: "runtime",
        name: "cgroup_driver",
        kind: Choice(&[
            ("auto", CgroupDriver::Auto),
            ("cgroupfs", CgroupDriver::Cgroupfs),
            ("systemd", CgroupDriver::Systemd),
        ]),
        default: Is(|| CgroupDriver::Auto),
        reload: Reload::Restart,
        help: "Who makes cgroups. `auto` is `systemd` where systemd runs the node and cgroups are v2, else `cgroupfs`. The kubelet asks for it (RuntimeConfig); one older than 1.34 must be set to the same by hand.",
    };
    DEFAULT_HANDLER: HandlerName, Unset = Key {
        section: "runtime",
        name: "default_handler",
        kind: HandlerName,
        default: Unset("`runc` if there is a handler of that name, else the only one"),
        reload: Reload::Restart,
        help: "The handler of pods whose RuntimeClass names none.",
    };
    MAX_LOG_LINE: Size, Is<usize> = Key {
        section: "runtime",
        name: "max_container_log_line_size",
        kind: Size { least: 1 << 10, most: 1 << 20 },
        default: Is(|| 16 << 10),
        reload: Reload::Restart,
        help: "A longer line of a container's log is split into partial ones.",
    };
    DISABLE_APPARMOR: Switch, Is<bool> = Key {
        section: "runtime",
        name: "disable_apparmor",
        kind: Switch,
        default: Is(|| false),
        reload: Reload::Restart,
        help: "Behaves as if the node had no AppArmor: a container that asks for a profile, `RuntimeDefault` included, is refused, as by containerd; one that says nothing runs without.",
    };
    APPARMOR_PROFILE: Text, Unset = Key {
        section: "runtime",
        name: "apparmor_profile",
        kind: Text,
        default: Unset("`criscope-default`, which criscope makes and loads itself"),
        reload: Reload::Restart,
        help: "The AppArmor profile that `RuntimeDefault` stands for, and that a container gets which says nothing. One that is named must be loaded when criscope starts; if it is not, that is logged, containers that ask for `RuntimeDefault` are refused, and those that say nothing run without one.",
    };
    ENABLE_SELINUX: Switch, Is<bool> = Key {
        section: "runtime",
        name: "enable_selinux",
        kind: Switch,
        default: Is(|| false),
        reload: Reload::Restart,
        help: "Labels processes and files, where the node has SELinux.",
    };
    SELINUX_CATEGORY_RANGE: Count, Is<usize> = Key {
        section: "runtime",
        name: "selinux_category_range",
        kind: Count { least: 2, most: 1024 },
        default: Is(|| 1024),
        reload: Reload::Restart,
        help: "How many categories there are to tell pods apart with; each pod has two.",
    };
    RESTRICT_OOM_SCORE_ADJ: Switch, Is<bool> = Key {
        section: "runtime",
        name: "restrict_oom_score_adj",
        kind: Switch,
        default: Is(|| false),
        reload: Reload::Restart,
        help: "No container gets a lower `oom_score_adj` than criscope has itself. For nodes on which it may not be lowered (no CAP_SYS_RESOURCE).",
    };
    TOLERATE_MISSING_HUGETLB: Switch, Is<bool> = Key {
        section: "runtime",
        name: "tolerate_missing_hugetlb_controller",
        kind: Switch,
        default: Is(|| true),
        reload: Reload::Restart,
        help: "Leaves out limits of huge pages on a node without the controller for them (hugetlb). With `false` such a container is not made.",
    };
    DISABLE_HUGETLB: Switch, Is<bool> = Key {
        section: "runtime",
        name: "disable_hugetlb_controller",
        kind: Switch,
        default: Is(|| false),
        reload: Reload::Restart,
        help: "Leaves out limits of huge pages always.",
    };
    DEVICE_OWNERSHIP: Switch, Is<bool> = Key {
        section: "runtime",
        name: "device_ownership_from_security_context",
        kind: Switch,
        default: Is(|| false),
        reload: Reload::Restart,
        help: "Devices that a container asks for belong to the user and group that its security context names (`runAsUser`, `runAsGroup`), instead of those on the host. Not in a user namespace: there they are the host's.",
    };
    IGNORE_IMAGE_VOLUMES: Switch, Is<bool> = Key {
        section: "runtime",
        name: "ignore_image_defined_volumes",
        kind: Switch,
        default: Is(|| false),
        reload: Reload::Restart,
        help: "Makes no volumes for the `VOLUME` lines of an image.",
    };
    UNPRIVILEGED_PORTS: Switch, Is<bool> = Key {
        section: "runtime",
        name: "enable_unprivileged_ports",
        kind: Switch,
        default: Is(|| true),
        reload: Reload::Restart,
        help: "Every user may bind every port in a pod with a network of its own (`net.ipv4.ip_unprivileged_port_start=0`), unless the pod sets it.",
    };
    UNPRIVILEGED_ICMP: Switch, Is<bool> = Key {
        section: "runtime",
        name: "enable_unprivileged_icmp",
        kind: Switch,
        default: Is(|| true),
        reload: Reload::Restart,
        help: "Every group may ping in a pod with a network of its own (`net.ipv4.ping_group_range=\"0 2147483647\"`), unless the pod sets it or has a user namespace.",
    };
    SYSCTLS: Sysctls, Is<BTreeMap<String, String>> = Key {
        section: "runtime",
        name: "sysctls",
        kind: Sysctls,
        default: Is(BTreeMap::new),
        reload: Reload::Restart,
        help: "Kernel parameters of every pod that has the namespace they live in, unless the pod sets them.",
    };
    DEFAULT_CAPABILITIES: Capabilities, Is<Vec<Capability>> = Key {
        section: "runtime",
        name: "default_capabilities",
        kind: Capabilities,
        default: Is(default_capabilities),
        reload: Reload::Restart,
        help: "What a container may do that asks for nothing. `crio` lacks MKNOD, NET_RAW, SETFCAP, SYS_CHROOT and AUDIT_WRITE of containerd's.",
    };
    UNSET_SECCOMP: Profile, Is<SeccompProfile> = Key {
        section: "runtime",
        name: "unset_seccomp_profile",
        kind: Profile,
        default: Is(|| SeccompProfile::Unconfined),
        reload: Reload::Restart,
        help: "The seccomp profile of a container that says nothing of one. The kubelet's `seccompDefault` does the same from its side.",
    };
    PIDS_LIMIT: Count, Is<usize> = Key {
        section: "runtime",
        name: "pids_limit",
        kind: Count { least: 0, most: 1 << 22 },
        default: Is(|| 0),
        reload: Reload::Restart,
        help: "The most processes of one container; 0 for no limit but that of the kubelet (`podPidsLimit`).",
    };
    CDI_SPEC_DIRS: List<DirPath>, Is<Vec<PathBuf>> = Key {
        section: "runtime",
        name: "cdi_spec_dirs",
        kind: List { of: DirPath, words: PATHS },
        default: Is(|| vec!["/etc/cdi".into(), "/var/run/cdi".into()]),
        reload: Reload::Restart,
        help: "Where devices of the Container Device Interface are described, in `.json` and `.yaml` files; the last that knows a device wins. Read for each container that asks for one. `[]` turns CDI off.",
    };
    DRAIN_EXEC_SYNC: Span, Is<Duration> = Key {
        section: "runtime",
        name: "drain_exec_sync_io_timeout",
        kind: Span { least: Duration::ZERO, most: Duration::from_secs(3600) },
        default: Is(|| Duration::from_secs(5)),
        reload: Reload::Restart,
        help: "How long ExecSync and Exec wait for output after their command has ended, when a process that the command left behind keeps it open; `0s` for no end but the caller's.",
    };
    STATS_PERIOD: Span, Is<Duration> = Key {
        section: "runtime",
        name: "stats_collect_period",
        kind: Span { least: Duration::from_secs(1), most: Duration::from_secs(600) },
        default: Is(|| Duration::from_secs(10)),
        reload: Reload::Restart,
        help: "How often the writable layers of containers are measured, in the background; statistics tell what was measured last. All else is looked at when it is asked for.",
    };
    HANDLER_PATH: FilePath, Unset = Key {
        section: "runtime.handlers.NAME",
        name: "path",
        kind: FilePath,
        default: Unset("the program called NAME on `PATH`"),
        reload: Reload::Restart,
        help: "The OCI runtime.",
    };
    HANDLER_OPTIONS: List<Text>, Is<Vec<String>> = Key {
        section: "runtime.handlers.NAME",
        name: "options",
        kind: List { of: Text, words: "an array of strings" },
        default: Is(Vec::new),
        reload: Reload::Restart,
        help: "More options of the OCI runtime, before its verb: `[\"--debug\"]`.",
    };
    HANDLER_ROOT: DirPath, Unset = Key {
        section: "runtime.handlers.NAME",
        name: "root",
        kind: DirPath,
        default: Unset("`oci/NAME` below `runtime.state`"),
        reload: Reload::Restart,
        help: "Where it keeps its state (`--root`). No other runtime on the node may have the same.",
    };
    HANDLER_SYSTEMD: Switch, Unset = Key {
        section: "runtime.handlers.NAME",
        name: "systemd_cgroup",
        kind: Switch,
        default: Unset("as `runtime.cgroup_driver` says"),
        reload: Reload::Restart,
        help: "Whether it is called with `--systemd-cgroup`. To be set for one that has no such option.",
    };
    HANDLER_NO_PIVOT: Switch, Is<bool> = Key {
        section: "runtime.handlers.NAME",
        name: "no_pivot",
        kind: Switch,
        default: Is(|| false),
        reload: Reload::Restart,
        help: "Does not pivot the root: for nodes that run from a ram disk.",
    };
    HANDLER_NO_KEYRING: Switch, Is<bool> = Key {
        section: "runtime.handlers.NAME",
        name: "no_new_keyring",
        kind: Switch,
        default: Is(|| false),
        reload: Reload::Restart,
        help: "Makes no session keyring for each container.",
    };
    HANDLER_POD_ANNOTATIONS: List<Text>, Is<Vec<String>> = Key {
        section: "runtime.handlers.NAME",
        name: "pod_annotations",
        kind: List { of: Text, words: "an array of annotation keys, of which `*` may end each" },
        default: Is(Vec::new),
        reload: Reload::Restart,
        help: "Annotations of pods that the OCI runtime gets to see. Those that reach the node (`run.oci.`, `org.systemd.property.`, `org.criu.`, `dev.gvisor.`, `io.katacontainers.`) need a key that spells that much of them before its `*`.",
    };
    HANDLER_CONTAINER_ANNOTATIONS: List<Text>, Is<Vec<String>> = Key {
        section: "runtime.handlers.NAME",
        name: "container_annotations",
        kind: List { of: Text, words: "an array of annotation keys, of which `*` may end each" },
        default: Is(Vec::new),
        reload: Reload::Restart,
        help: "The same for annotations of containers, which device plugins make.",
    };
    HANDLER_NO_HOST_DEVICES: Switch, Is<bool> = Key {
        section: "runtime.handlers.NAME",
        name: "privileged_without_host_devices",
        kind: Switch,
        default: Is(|| false),
        reload: Reload::Restart,
        help: "A privileged container gets no devices of the host: for runtimes that make a virtual machine.",
    };
    HANDLER_ALL_DEVICES: Switch, Is<bool> = Key {
        section: "runtime.handlers.NAME",
        name: "privileged_without_host_devices_all_devices_allowed",
        kind: Switch,
        default: Is(|| false),
        reload: Reload::Restart,
        help: "It may use whatever devices it makes itself nevertheless. Only with `privileged_without_host_devices`.",
    };
    HANDLER_CNI_DIR: DirPath, Unset = Key {
        section: "runtime.handlers.NAME",
        name: "cni_conf_dir",
        kind: DirPath,
        default: Unset("that of `runtime.cni`"),
        reload: Reload::Restart,
        help: "Where the networks of its pods are configured.",
    };
    HANDLER_CNI_MAX: Count, Unset = Key {
        section: "runtime.handlers.NAME",
        name: "cni_max_conf_num",
        kind: Count { least: 0, most: 64 },
        default: Unset("that of `runtime.cni`"),
        reload: Reload::Restart,
        help: "How many of them a pod gets; 0 for all.",
    };
    HANDLER_TIMEOUT: Span, Is<Duration> = Key {
        section: "runtime.handlers.NAME",
        name: "timeout",
        kind: Span { least: Duration::from_secs(1), most: Duration::from_secs(600) },
        default: Is(|| Duration::from_secs(60)),
        reload: Reload::Restart,
        help: "How long one call of the OCI runtime may take before it is killed. Virtual machines may need more; the kubelet waits two minutes (`runtimeRequestTimeout`).",
    };
}
