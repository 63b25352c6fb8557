//! Settings of criscope for CRI-O's keys.

use super::super::convert::{
    capabilities, driver, duration, ignored, level, limit, listed, pairs, same, seconds,
};
use super::KeyConversion::{Key, None, Noted, Quiet, RuntimeType};
use super::{
    CLASSES, HOOKS, KeyMapping, NO_PAUSE, NO_PRIVATE_KEYS, NO_SHIM, NO_SNAPSHOTTERS, NO_VALIDATOR,
    NRI, ONE_RUNTIME, POD_SPEC, row,
};

/// CRI-O's keys.
pub(crate) const CRIO: &[KeyMapping] = &[
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
        "crio.runtime.runtimes.*.runtime_config_path",
        Key("runtime.handlers.NAME.config_path", same),
    ),
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
            "annotations of CRI-O have no effect: for `cgroup2-mount-hierarchy-rw` give a handler `cgroup_writable`; `runtime.handlers.NAME.pod_annotations` passes others to the OCI runtime",
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
        Key("runtime.default_ulimits", same),
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
        Noted("runtime.hooks_dir", same, HOOKS),
    ),
    row(
        "crio.runtime.blockio_config_file",
        Noted("runtime.blockio_config_file", same, CLASSES),
    ),
    row("crio.runtime.blockio_reload", Quiet),
    row(
        "crio.runtime.rdt_config_file",
        Noted("runtime.rdt_config_file", same, CLASSES),
    ),
    row(
        "crio.runtime.cdi_spec_dirs",
        Key("runtime.cdi_spec_dirs", same),
    ),
    row(
        "crio.runtime.decryption_keys_path",
        None(NO_PRIVATE_KEYS, &[]),
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
        "crio.runtime.enable_criu_support",
        Key("runtime.enable_criu", same),
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
        "crio.image.signature_policy",
        Key("runtime.images.signature_policy", same),
    ),
    row(
        "crio.image.signature_policy_dir",
        Key("runtime.images.signature_policy_dir", same),
    ),
    row(
        "crio.image.short_name_mode",
        None(
            "`short-name-mode` in the file of `runtime.images.registries_conf`",
            &["enforcing"],
        ),
    ),
    row(
        "crio.image.namespaced_auth_dir",
        None(
            "credentials are those that the kubelet sends, or of `runtime.images.docker_config`",
            &["/etc/crio/auth"],
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
        Noted("runtime.nri.enable", same, NRI),
    ),
    row("crio.nri.nri_listen", Key("runtime.nri.socket_path", same)),
    row(
        "crio.nri.nri_plugin_dir",
        Key("runtime.nri.plugin_path", same),
    ),
    row(
        "crio.nri.nri_plugin_config_dir",
        Key("runtime.nri.plugin_config_path", same),
    ),
    row(
        "crio.nri.nri_plugin_registration_timeout",
        Key("runtime.nri.plugin_registration_timeout", duration),
    ),
    row(
        "crio.nri.nri_plugin_request_timeout",
        Key("runtime.nri.plugin_request_timeout", duration),
    ),
    row(
        "crio.nri.nri_disable_connections",
        Key("runtime.nri.disable_connections", same),
    ),
    row(
        "crio.nri.default_validator.nri_enable_default_validator",
        None(NO_VALIDATOR, &["false"]),
    ),
    row("crio.nri.*", Quiet),
];

/// Defaults that differ from CRI-O's: a key of criscope, and CRI-O's default.
pub(crate) const DEFAULTS_OF_CRIO: &[(&str, &str)] = &[
    (
        "runtime.default_capabilities",
        "containerd's list here; \"crio\" is CRI-O's, which has no MKNOD, NET_RAW, SETFCAP, SYS_CHROOT and AUDIT_WRITE",
    ),
    ("runtime.cgroup_driver", "`auto` here; systemd there"),
    (
        "runtime.images.keyprovider_config",
        "none here; private keys in /etc/crio/keys there, which are not supported",
    ),
    (
        "runtime.images.image_pull_progress_timeout",
        "1m here; 10s there",
    ),
    (
        "runtime.images.registries_conf",
        "none here; /etc/containers/registries.conf there: mirrors, blocked registries and short names are those of `hosts.toml` and Docker Hub until it is named",
    ),
    (
        "runtime.images.signature_policy",
        "none here; /etc/containers/policy.json there: what it requires is not required until it is named",
    ),
    ("runtime.default_handler", "`runc` here; crun there"),
    (
        "runtime.hooks_dir",
        "none here; /usr/share/containers/oci/hooks.d there, where packages of devices and tracers may have hooks",
    ),
    (
        "runtime.ignore_blockio_not_enabled_errors",
        "false here: without classes a container that names one is refused; CRI-O starts it without limits",
    ),
    (
        "runtime.nri.enable",
        "false here; true there since 1.26, where plugins of the Node Resource Interface may be in use",
    ),
];
