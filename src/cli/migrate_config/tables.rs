//! What each key of containerd and CRI-O becomes. docs/MIGRATION.md has the same tables for readers; a test compares them.

use super::convert::{
    Convert, capabilities, driver, duration, ignored, level, limit, listed, pairs, same, seccomp,
    seconds, split,
};

/// One key, or several with `*` in the place of a part or of a piece of one.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) from: &'static str,
    pub(super) to: To,
}

/// What becomes of a key. The part that the first `*` stands for is `NAME` in the key of criscope.
#[derive(Debug)]
pub(super) enum To {
    /// A key of criscope.
    Key(&'static str, Convert),
    /// The same, with what a reader must know.
    Noted(&'static str, Convert, &'static str),
    /// A file for the registry: `hosts.toml` below this key's registry.
    Hosts,
    /// Credentials, which are never shown.
    Secret,
    /// A runtime that is a shim, if it is none of those for runc.
    RuntimeType,
    /// Nothing: the reason. The last are values with which it is not worth mentioning.
    None(&'static str, &'static [&'static str]),
    /// Nothing, and nothing is lost.
    Quiet,
}

use To::{Hosts, Key, None, Noted, Quiet, RuntimeType, Secret};

const fn row(from: &'static str, to: To) -> Row {
    Row { from, to }
}

const NO_PAUSE: &str = "there is no pause container";
const NO_SNAPSHOTTERS: &str =
    "layers are stacked by overlayfs; for other snapshotters keep containerd as a second backend";
const NO_SHIM: &str = "a handler is an OCI runtime with runc's command line";
const POD_SPEC: &str =
    "it belongs in the specification of pods; an admission policy can set it for all";
const ONE_RUNTIME: &str = "the key is for one handler here: `runtime.handlers.NAME.no_pivot`";

/// containerd's keys; those of the CRI plugin begin with `cri`.
pub(super) const CONTAINERD: &[Row] = &[
    row(
        "root",
        None(
            "`runtime.root` has its own default: containerd's directory stays as it is",
            &["/var/lib/containerd"],
        ),
    ),
    row(
        "state",
        None("`runtime.state` has its own default", &["/run/containerd"]),
    ),
    row(
        "grpc.address",
        None(
            "the kubelet gets criscope's `server.listen`",
            &["/run/containerd/containerd.sock"],
        ),
    ),
    row(
        "grpc.max_recv_message_size",
        Noted(
            "server.max_message_bytes",
            same,
            "it limits what is inspected, not what may pass",
        ),
    ),
    row("grpc.max_send_message_size", Quiet),
    row("grpc.uid", None("see `server.owner`", &[])),
    row("grpc.gid", None("see `server.owner`", &[])),
    row("oom_score", None("`OOMScoreAdjust=` of the unit", &[])),
    row(
        "metrics.address",
        None(
            "metrics are always on, at `admin.listen`; beyond the node see `[metrics]`",
            &[],
        ),
    ),
    row("debug.level", Key("telemetry.log.level", level)),
    row("debug.format", Key("telemetry.log.format", same)),
    row(
        "cri.containerd.default_runtime_name",
        Key("runtime.default_handler", same),
    ),
    row("cri.containerd.runtimes.*.runtime_type", RuntimeType),
    row(
        "cri.containerd.runtimes.*.options.BinaryName",
        Key("runtime.handlers.NAME.path", same),
    ),
    row(
        "cri.containerd.runtimes.*.options.Root",
        Key("runtime.handlers.NAME.root", same),
    ),
    row(
        "cri.containerd.runtimes.*.options.SystemdCgroup",
        Key("runtime.handlers.NAME.systemd_cgroup", same),
    ),
    row(
        "cri.containerd.runtimes.*.options.NoPivotRoot",
        Key("runtime.handlers.NAME.no_pivot", same),
    ),
    row(
        "cri.containerd.runtimes.*.options.NoNewKeyring",
        Key("runtime.handlers.NAME.no_new_keyring", same),
    ),
    row("cri.containerd.runtimes.*.options.*", None(NO_SHIM, &[])),
    row(
        "cri.containerd.runtimes.*.pod_annotations",
        Key("runtime.handlers.NAME.pod_annotations", same),
    ),
    row(
        "cri.containerd.runtimes.*.container_annotations",
        Key("runtime.handlers.NAME.container_annotations", same),
    ),
    row(
        "cri.containerd.runtimes.*.privileged_without_host_devices",
        Key(
            "runtime.handlers.NAME.privileged_without_host_devices",
            same,
        ),
    ),
    row(
        "cri.containerd.runtimes.*.privileged_without_host_devices_all_devices_allowed",
        Key(
            "runtime.handlers.NAME.privileged_without_host_devices_all_devices_allowed",
            same,
        ),
    ),
    row(
        "cri.containerd.runtimes.*.cni_conf_dir",
        Key("runtime.handlers.NAME.cni_conf_dir", same),
    ),
    row(
        "cri.containerd.runtimes.*.cni_max_conf_num",
        Key("runtime.handlers.NAME.cni_max_conf_num", same),
    ),
    row(
        "cri.containerd.runtimes.*.snapshotter",
        None(NO_SNAPSHOTTERS, &["overlayfs"]),
    ),
    row(
        "cri.containerd.runtimes.*.sandboxer",
        None(NO_SHIM, &["podsandbox"]),
    ),
    row(
        "cri.containerd.runtimes.*.io_type",
        None(NO_SHIM, &["fifo"]),
    ),
    row(
        "cri.containerd.runtimes.*.cgroup_writable",
        None(
            "a container that writes cgroups changes its own limits; use a user namespace",
            &[],
        ),
    ),
    row(
        "cri.containerd.runtimes.*.base_runtime_spec",
        None(
            "see `runtime.default_capabilities`, `runtime.sysctls` and `runtime.pids_limit` for what it is used for",
            &[],
        ),
    ),
    row("cri.containerd.runtimes.*.*", None(NO_SHIM, &[])),
    row("cri.containerd.discard_unpacked_layers", Quiet),
    row("cri.discard_unpacked_layers", Quiet),
    row(
        "cri.containerd.snapshotter",
        None(NO_SNAPSHOTTERS, &["overlayfs"]),
    ),
    row("cri.snapshotter", None(NO_SNAPSHOTTERS, &["overlayfs"])),
    row("cri.disable_snapshot_annotations", Quiet),
    row("cri.containerd.disable_snapshot_annotations", Quiet),
    row("cri.sandbox_image", Quiet),
    row("cri.pinned_images.sandbox", Quiet),
    row(
        "cri.pinned_images.*",
        None("add it to `runtime.images.pinned_images`", &[]),
    ),
    row(
        "cri.registry.config_path",
        Key("runtime.images.certs_dirs", split),
    ),
    row("cri.registry.mirrors.*.endpoint", Hosts),
    row("cri.registry.configs.*.tls.*", Hosts),
    row("cri.registry.configs.*.auth.*", Secret),
    row("cri.registry.auths.*.*", Secret),
    row(
        "cri.registry.headers.*",
        None(
            "`header` in `hosts.toml`, for the registry that it is for",
            &[],
        ),
    ),
    row(
        "cri.image_decryption.key_model",
        None("encrypted images are not decrypted", &["node"]),
    ),
    row(
        "stream_processors.*.*",
        None("encrypted images are not decrypted", &["*"]),
    ),
    row(
        "cri.max_concurrent_downloads",
        Noted(
            "runtime.images.max_concurrent_downloads",
            same,
            "it applies to all pulls together, not to each",
        ),
    ),
    row(
        "cri.image_pull_progress_timeout",
        Noted(
            "runtime.images.image_pull_progress_timeout",
            duration,
            "the request is then resumed before the pull fails",
        ),
    ),
    row(
        "cri.image_pull_with_sync_fs",
        Key("runtime.images.wait_for_disk", same),
    ),
    row(
        "cri.stats_collect_period",
        Key("runtime.stats_collect_period", seconds),
    ),
    row("cri.cni.bin_dir", Key("runtime.cni.bin_dirs", listed)),
    row("cri.cni.bin_dirs", Key("runtime.cni.bin_dirs", same)),
    row("cri.cni.conf_dir", Key("runtime.cni.conf_dir", same)),
    row(
        "cri.cni.max_conf_num",
        Key("runtime.cni.max_conf_num", same),
    ),
    row("cri.cni.ip_pref", Key("runtime.cni.ip_pref", same)),
    row(
        "cri.cni.conf_template",
        Key("runtime.cni.conf_template", same),
    ),
    row("cri.cni.setup_serially", Quiet),
    row("cri.cni.use_internal_loopback", Quiet),
    row("cri.enable_selinux", Key("runtime.enable_selinux", same)),
    row(
        "cri.selinux_category_range",
        Key("runtime.selinux_category_range", same),
    ),
    row(
        "cri.max_container_log_line_size",
        Noted(
            "runtime.max_container_log_line_size",
            same,
            "there is always a limit",
        ),
    ),
    row(
        "cri.disable_apparmor",
        Key("runtime.disable_apparmor", same),
    ),
    row(
        "cri.restrict_oom_score_adj",
        Key("runtime.restrict_oom_score_adj", same),
    ),
    row(
        "cri.unset_seccomp_profile",
        Key("runtime.unset_seccomp_profile", seccomp),
    ),
    row(
        "cri.tolerate_missing_hugetlb_controller",
        Key("runtime.tolerate_missing_hugetlb_controller", same),
    ),
    row(
        "cri.disable_hugetlb_controller",
        Key("runtime.disable_hugetlb_controller", same),
    ),
    row(
        "cri.device_ownership_from_security_context",
        Key("runtime.device_ownership_from_security_context", same),
    ),
    row(
        "cri.ignore_image_defined_volumes",
        Key("runtime.ignore_image_defined_volumes", same),
    ),
    row(
        "cri.enable_unprivileged_ports",
        Key("runtime.enable_unprivileged_ports", same),
    ),
    row(
        "cri.enable_unprivileged_icmp",
        Key("runtime.enable_unprivileged_icmp", same),
    ),
    row("cri.cdi_spec_dirs", Key("runtime.cdi_spec_dirs", same)),
    row(
        "cri.enable_cdi",
        None(
            "CDI is on; `runtime.cdi_spec_dirs = []` turns it off",
            &["true"],
        ),
    ),
    row(
        "cri.drain_exec_sync_io_timeout",
        Key("runtime.drain_exec_sync_io_timeout", duration),
    ),
    row(
        "cri.stream_server_address",
        None("`streaming.listen`", &["127.0.0.1"]),
    ),
    row("cri.stream_server_port", None("`streaming.listen`", &["0"])),
    row(
        "cri.stream_idle_timeout",
        Key("streaming.idle_timeout", duration),
    ),
    row(
        "cri.x509_key_pair_streaming.tls_cert_file",
        Key("streaming.tls_cert", same),
    ),
    row(
        "cri.x509_key_pair_streaming.tls_key_file",
        Key("streaming.tls_key", same),
    ),
    row(
        "cri.enable_tls_streaming",
        None(
            "TLS is on with `streaming.tls_cert` and `streaming.tls_key`; no certificate is generated",
            &[],
        ),
    ),
    row("cri.disable_tcp_service", Quiet),
    row("cri.netns_mounts_under_state_dir", Quiet),
    row("cri.ignore_deprecation_warnings", Quiet),
    row(
        "nri.disable",
        None("NRI plugins: see docs/RUNTIME.md", &["true"]),
    ),
    row("nri.*", Quiet),
];

/// CRI-O's keys.
pub(super) const CRIO: &[Row] = &[
    row(
        "crio.root",
        None(
            "`runtime.root` has its own default: CRI-O's directory stays as it is",
            &["/var/lib/containers/storage"],
        ),
    ),
    row(
        "crio.runroot",
        None(
            "`runtime.state` has its own default",
            &["/run/containers/storage"],
        ),
    ),
    row("crio.imagestore", None("`runtime.images.root`", &[])),
    row("crio.storage_driver", None(NO_SNAPSHOTTERS, &["overlay"])),
    row("crio.storage_option", None(NO_SNAPSHOTTERS, &[])),
    row("crio.log_dir", Quiet),
    row("crio.version_file*", Quiet),
    row("crio.clean_shutdown_file", Quiet),
    row("crio.internal_*", Quiet),
    row(
        "crio.api.listen",
        None(
            "the kubelet gets criscope's `server.listen`",
            &["/var/run/crio/crio.sock", "/run/crio/crio.sock"],
        ),
    ),
    row(
        "crio.api.grpc_max_recv_msg_size",
        Noted(
            "server.max_message_bytes",
            same,
            "it limits what is inspected, not what may pass",
        ),
    ),
    row("crio.api.grpc_max_send_msg_size", Quiet),
    row(
        "crio.api.stream_idle_timeout",
        Key("streaming.idle_timeout", duration),
    ),
    row("crio.api.stream_tls_cert", Key("streaming.tls_cert", same)),
    row("crio.api.stream_tls_key", Key("streaming.tls_key", same)),
    row(
        "crio.api.stream_address",
        None("`streaming.listen`", &["127.0.0.1"]),
    ),
    row("crio.api.stream_port", None("`streaming.listen`", &["0"])),
    row("crio.api.stream_enable_tls", Quiet),
    row(
        "crio.api.*",
        None(
            "client certificates are not requested: a session is authorized by its token",
            &[],
        ),
    ),
    row(
        "crio.runtime.default_runtime",
        Key("runtime.default_handler", same),
    ),
    row(
        "crio.runtime.runtimes.*.runtime_path",
        Key("runtime.handlers.NAME.path", same),
    ),
    row(
        "crio.runtime.runtimes.*.runtime_root",
        Key("runtime.handlers.NAME.root", same),
    ),
    row("crio.runtime.runtimes.*.runtime_type", RuntimeType),
    row(
        "crio.runtime.runtimes.*.privileged_without_host_devices",
        Key(
            "runtime.handlers.NAME.privileged_without_host_devices",
            same,
        ),
    ),
    row(
        "crio.runtime.runtimes.*.allowed_annotations",
        None(
            "`*.crio.io` annotations have no effect; `runtime.handlers.NAME.pod_annotations` passes others to the OCI runtime",
            &[],
        ),
    ),
    row(
        "crio.runtime.runtimes.*.container_create_timeout",
        Key("runtime.handlers.NAME.timeout", seconds),
    ),
    row(
        "crio.runtime.runtimes.*.monitor_*",
        None("the shim has no settings", &["*"]),
    ),
    row("crio.runtime.runtimes.*.*", None(NO_SHIM, &[])),
    row("crio.runtime.monitor_*", Quiet),
    row("crio.runtime.conmon*", Quiet),
    row("crio.runtime.pinns_path", Quiet),
    row(
        "crio.runtime.cgroup_manager",
        Key("runtime.cgroup_driver", driver),
    ),
    row("crio.runtime.no_pivot", None(ONE_RUNTIME, &[])),
    row(
        "crio.runtime.default_capabilities",
        Key("runtime.default_capabilities", capabilities),
    ),
    row(
        "crio.runtime.default_sysctls",
        Key("runtime.sysctls", pairs),
    ),
    row(
        "crio.runtime.default_ulimits",
        None(
            "containers inherit the limits of the unit (`LimitNOFILE=`)",
            &[],
        ),
    ),
    row("crio.runtime.default_env", None(POD_SPEC, &[])),
    row("crio.runtime.default_mounts*", None(POD_SPEC, &[])),
    row("crio.runtime.timezone", None(POD_SPEC, &[])),
    row("crio.runtime.read_only", None(POD_SPEC, &[])),
    row(
        "crio.runtime.absent_mount_sources_to_reject",
        None("use `type` of a `hostPath`", &[]),
    ),
    row(
        "crio.runtime.allowed_devices",
        None("use device plugins or CDI", &[]),
    ),
    row(
        "crio.runtime.additional_devices",
        None("use device plugins or CDI", &[]),
    ),
    row(
        "crio.runtime.hooks_dir",
        None("CDI adds hooks where devices need them", &[]),
    ),
    row(
        "crio.runtime.cdi_spec_dirs",
        Key("runtime.cdi_spec_dirs", same),
    ),
    row(
        "crio.runtime.device_ownership_from_security_context",
        Key("runtime.device_ownership_from_security_context", same),
    ),
    row(
        "crio.runtime.seccomp_profile",
        None(
            "`RuntimeDefault` is the built-in profile; see `runtime.unset_seccomp_profile`",
            &[],
        ),
    ),
    row(
        "crio.runtime.privileged_seccomp_profile",
        None("privileged containers have no filter", &[]),
    ),
    row(
        "crio.runtime.apparmor_profile",
        Key("runtime.apparmor_profile", same),
    ),
    row("crio.runtime.selinux", Key("runtime.enable_selinux", same)),
    row("crio.runtime.pids_limit", Key("runtime.pids_limit", limit)),
    row("crio.runtime.ctr_stop_timeout", Quiet),
    row("crio.runtime.drop_infra_ctr", Quiet),
    row("crio.runtime.infra_ctr_cpuset", None(NO_PAUSE, &[])),
    row("crio.runtime.namespaces_dir", Quiet),
    row("crio.runtime.container_exits_dir", Quiet),
    row("crio.runtime.container_attach_socket_dir", Quiet),
    row("crio.runtime.enable_pod_events", Quiet),
    row("crio.runtime.minimum_mappable_*", Quiet),
    row(
        "crio.runtime.bind_mount_prefix",
        None("use user namespaces of pods (`hostUsers: false`)", &[]),
    ),
    row(
        "crio.runtime.uid_mappings",
        None("use user namespaces of pods (`hostUsers: false`)", &[]),
    ),
    row(
        "crio.runtime.gid_mappings",
        None("use user namespaces of pods (`hostUsers: false`)", &[]),
    ),
    row("crio.runtime.log_level", Key("telemetry.log.level", level)),
    row(
        "crio.runtime.log_size_max",
        None("the kubelet rotates logs", &["-1"]),
    ),
    row(
        "crio.image.global_auth_file",
        Key("runtime.images.docker_config", same),
    ),
    row(
        "crio.image.pinned_images",
        Key("runtime.images.pinned_images", same),
    ),
    row(
        "crio.image.image_volumes",
        Key("runtime.ignore_image_defined_volumes", ignored),
    ),
    row(
        "crio.image.pull_progress_timeout",
        Key("runtime.images.image_pull_progress_timeout", duration),
    ),
    row(
        "crio.image.insecure_registries",
        None(
            "`skip_verify = true` in `hosts.toml` of each, in `runtime.images.certs_dirs`",
            &[],
        ),
    ),
    row(
        "crio.image.signature_policy*",
        None(
            "signatures are not verified: use an admission controller",
            &[],
        ),
    ),
    row("crio.image.pause_*", Quiet),
    row(
        "crio.image.default_transport",
        None("images are pulled from registries", &["docker://"]),
    ),
    row(
        "crio.network.network_dir",
        Key("runtime.cni.conf_dir", same),
    ),
    row(
        "crio.network.plugin_dir",
        Key("runtime.cni.bin_dirs", listed),
    ),
    row(
        "crio.network.plugin_dirs",
        Key("runtime.cni.bin_dirs", same),
    ),
    row(
        "crio.network.cni_default_network",
        None(
            "it is the first file in `runtime.cni.conf_dir`, by name",
            &[],
        ),
    ),
    row(
        "crio.metrics.*",
        None(
            "metrics are always on, at `admin.listen`; beyond the node see `[metrics]`",
            &["*"],
        ),
    ),
    row(
        "crio.tracing.tracing_endpoint",
        None("`telemetry.otlp.endpoint`", &["127.0.0.1:4317"]),
    ),
    row("crio.stats.collection_period", Quiet),
    row(
        "crio.stats.stats_collection_period",
        Key("runtime.stats_collect_period", seconds),
    ),
    row(
        "crio.nri.enable_nri",
        None("NRI plugins: see docs/RUNTIME.md", &[]),
    ),
    row("crio.nri.*", Quiet),
];

/// Settings that the other runtime has by default and criscope has not: its key, and what to know. Not mentioned if it is set.
pub(super) const DEFAULTS_OF_CONTAINERD: &[(&str, &str)] = &[
    (
        "runtime.drain_exec_sync_io_timeout",
        "5s here; unlimited (0s) there",
    ),
    (
        "runtime.disable_hugetlb_controller",
        "false here, so that limits of huge pages apply; true there",
    ),
    (
        "runtime.images.image_pull_progress_timeout",
        "1m here, after which the request is resumed; 5m there, after which the pull fails",
    ),
    (
        "runtime.cgroup_driver",
        "`auto` here: systemd where it runs the node and cgroups are v2; cgroupfs there",
    ),
];

/// As [`DEFAULTS_OF_CONTAINERD`].
pub(super) const DEFAULTS_OF_CRIO: &[(&str, &str)] = &[
    (
        "runtime.default_capabilities",
        "containerd's list here; \"crio\" is CRI-O's, which has no MKNOD, NET_RAW, SETFCAP, SYS_CHROOT and AUDIT_WRITE",
    ),
    ("runtime.cgroup_driver", "`auto` here; systemd there"),
    (
        "runtime.images.image_pull_progress_timeout",
        "1m here; 10s there",
    ),
    ("runtime.default_handler", "`runc` here; crun there"),
];
