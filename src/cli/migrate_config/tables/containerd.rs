//! Settings of criscope for containerd's keys.

use super::super::convert::{
    decoder_providers, duration, level, listed, negated, same, seccomp, seconds, split,
};
use super::KeyConversion::{Hosts, Key, None, Noted, Quiet, RuntimeType, Secret, ShimPath};
use super::{
    CLASSES, KeyMapping, NO_PRIVATE_KEYS, NO_SHIM, NO_SNAPSHOTTERS, NO_VALIDATOR, NRI, row,
};

/// containerd's keys; those of the CRI plugin begin with `cri`.
pub(crate) const CONTAINERD: &[KeyMapping] = &[
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
            "the kubelet gets criscope's `server.listen`; for its cAdvisor see `runtime.containerd_socket`",
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
    row("cri.containerd.runtimes.*.runtime_path", ShimPath),
    row(
        "cri.containerd.runtimes.*.options.ConfigPath",
        Key("runtime.handlers.NAME.config_path", same),
    ),
    row(
        "cri.containerd.runtimes.*.options.TypeUrl",
        Key("runtime.handlers.NAME.type_url", same),
    ),
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
        Key("runtime.handlers.NAME.cgroup_writable", same),
    ),
    row(
        "cri.containerd.runtimes.*.base_runtime_spec",
        None(
            "see `runtime.default_capabilities`, `runtime.sysctls`, `runtime.default_ulimits` and `runtime.pids_limit` for what it is used for",
            &[],
        ),
    ),
    row("cri.containerd.runtimes.*.*", None(NO_SHIM, &[])),
    row(
        "tasks.blockio_config_file",
        Noted("runtime.blockio_config_file", same, CLASSES),
    ),
    row(
        "tasks.rdt_config_file",
        Noted("runtime.rdt_config_file", same, CLASSES),
    ),
    row(
        "cri.containerd.ignore_blockio_not_enabled_errors",
        Key("runtime.ignore_blockio_not_enabled_errors", same),
    ),
    row(
        "cri.containerd.ignore_rdt_not_enabled_errors",
        Key("runtime.ignore_rdt_not_enabled_errors", same),
    ),
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
        None(
            "the keys of encrypted images are unwrapped by key providers of the node",
            &["node"],
        ),
    ),
    row("stream_processors.*.args", None(NO_PRIVATE_KEYS, &[])),
    row(
        "stream_processors.*.env",
        Key("runtime.images.keyprovider_config", decoder_providers),
    ),
    row("stream_processors.*.accepts", Quiet),
    row("stream_processors.*.returns", Quiet),
    row(
        "stream_processors.*.path",
        None(
            "encrypted layers are decrypted by criscope itself; other formats of layers are not converted",
            &["ctd-decoder"],
        ),
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
    row("cri.enable_criu", Key("runtime.enable_criu", same)),
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
    row("nri.disable", Noted("runtime.nri.enable", negated, NRI)),
    row("nri.socket_path", Key("runtime.nri.socket_path", same)),
    row("nri.plugin_path", Key("runtime.nri.plugin_path", same)),
    row(
        "nri.plugin_config_path",
        Key("runtime.nri.plugin_config_path", same),
    ),
    row(
        "nri.plugin_registration_timeout",
        Key("runtime.nri.plugin_registration_timeout", duration),
    ),
    row(
        "nri.plugin_request_timeout",
        Key("runtime.nri.plugin_request_timeout", duration),
    ),
    row(
        "nri.disable_connections",
        Key("runtime.nri.disable_connections", same),
    ),
    row(
        "nri.default_validator.enable",
        None(NO_VALIDATOR, &["false"]),
    ),
    row("nri.*", Quiet),
];

/// Settings that the other runtime has by default and criscope has not: its key, and what to know. Not mentioned if it is set.
pub(crate) const DEFAULTS_OF_CONTAINERD: &[(&str, &str)] = &[
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
    (
        "runtime.nri.enable",
        "false here; true in containerd 2, where plugins of the Node Resource Interface may be in use",
    ),
];
