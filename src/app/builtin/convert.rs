//! Converts the configuration of the node, the pod defaults and the handlers.

use std::path::Path;

use super::handlers::UsableHandlers;
use crate::config;
use crate::runtime::classes::ClassSettings;
use crate::runtime::node::NodeOptions;
use crate::runtime::oci::spec::{
    CgroupDriver, HandlerOptions, HugePages, Policy, RuntimeSupport, UnsetSeccomp,
};
use crate::runtime::oci::{OciRuntime, ShimOptions};
use crate::runtime::sections;
use crate::runtime::{HandlerSettings, LiveSettings, Shown};
use crate::settings::{EffectiveSettings, SeccompProfile, SettingsSection as _};

/// The options of the node, without the features of the OCI runtime.
pub(super) fn node_options(config: &config::Runtime) -> NodeOptions {
    let pods = &config.pods;
    NodeOptions {
        cgroup_driver: match config.cgroup_driver {
            sections::CgroupDriver::Auto => None,
            sections::CgroupDriver::Cgroupfs => Some(CgroupDriver::Cgroupfs),
            sections::CgroupDriver::Systemd => Some(CgroupDriver::Systemd),
        },
        disable_cgroup: false,
        disable_apparmor: pods.disable_apparmor,
        apparmor_profile: pods.apparmor_profile.clone(),
        enable_selinux: pods.enable_selinux,
        restrict_oom_score_adj: pods.restrict_oom_score_adj,
        default_capabilities: Some(pods.default_capabilities.clone()),
        pids_limit: pids_limit(pods),
        policy: policy(pods),
        runtime_features: None,
        runtime_version: None,
    }
}

/// The settings that a reload changes.
pub(super) fn live(config: &config::Runtime, found: UsableHandlers) -> LiveSettings {
    let pods = &config.pods;
    let max_log_line = config.max_container_log_line_size;
    let mut in_effect = EffectiveSettings::new();
    config.list(config::Runtime::PATH, &mut in_effect);
    LiveSettings {
        default_handler: found.default,
        handlers: found.handlers,
        node: found.node,
        classes: ClassSettings {
            blockio_file: pods.blockio_config_file.clone(),
            ignore_blockio: pods.ignore_blockio_not_enabled_errors,
            rdt_file: pods.rdt_config_file.clone(),
            ignore_rdt: pods.ignore_rdt_not_enabled_errors,
        },
        images: super::images(&config.images),
        pinned_images: config.images.pinned_images.clone(),
        cdi_dirs: pods.cdi_spec_dirs.clone(),
        hooks_dirs: pods.hooks_dir.clone(),
        max_log_line: max_log_line.try_into().unwrap_or(u32::MAX),
        drain_exec: Some(config.drain_exec_sync_io_timeout).filter(|drain| !drain.is_zero()),
        ignore_image_volumes: pods.ignore_image_defined_volumes,
        criu: config.enable_criu,
        in_effect: Shown(in_effect),
    }
}

fn pids_limit(pods: &sections::PodDefaults) -> i64 {
    pods.pids_limit.try_into().unwrap_or(i64::MAX)
}

fn policy(pods: &sections::PodDefaults) -> Policy {
    Policy {
        unset_seccomp: match &pods.unset_seccomp_profile {
            SeccompProfile::Unconfined => UnsetSeccomp::Unconfined,
            SeccompProfile::RuntimeDefault => UnsetSeccomp::RuntimeDefault,
            SeccompProfile::Localhost(path) => UnsetSeccomp::Localhost(path.clone()),
        },
        huge_pages: match (
            pods.disable_hugetlb_controller,
            pods.tolerate_missing_hugetlb_controller,
        ) {
            (true, _) => HugePages::Ignored,
            (false, true) => HugePages::IfPossible,
            (false, false) => HugePages::Required,
        },
        own_devices: pods.device_ownership_from_security_context,
        unprivileged_ports: pods.enable_unprivileged_ports,
        unprivileged_icmp: pods.enable_unprivileged_icmp,
        sysctls: pods.sysctls.clone(),
        ulimits: pods.default_ulimits.clone(),
        selinux_categories: pods.selinux_category_range.try_into().unwrap_or(u16::MAX),
    }
}

/// The OCI runtime of a handler with its options.
pub(super) fn oci_runtime(
    config: &config::Runtime,
    handler: &config::Handler,
    program: &Path,
) -> OciRuntime {
    let mut oci = OciRuntime::new(program, config.handler_root(handler));
    oci.options.clone_from(&handler.options);
    oci.limit = handler.timeout;
    oci.systemd_cgroup = handler.systemd_cgroup.unwrap_or_default();
    oci.shim = handler.containerd_shim().map(|_| shim_options(handler));
    oci
}

fn shim_options(handler: &config::Handler) -> ShimOptions {
    if handler.has_runc_shim() {
        ShimOptions::Runc {
            binary: handler.path.clone(),
            no_pivot: handler.no_pivot,
            no_new_keyring: handler.no_new_keyring,
        }
    } else {
        ShimOptions::Other {
            config_path: handler.config_path.clone(),
            type_url: handler.type_url.clone(),
        }
    }
}

/// The OCI runtime that can be asked for its features: the one that runc's shim calls, and none of another shim.
pub(super) fn asked(handler: &config::Handler, oci: &OciRuntime) -> Option<OciRuntime> {
    match oci.shim {
        None => Some(oci.clone()),
        Some(ShimOptions::Runc { .. }) => {
            let mut called = OciRuntime::new(handler.called_by_shim(), oci.root.clone());
            called.limit = oci.limit;
            Some(called)
        }
        Some(ShimOptions::Other { .. }) => None,
    }
}

/// A handler, whose features are not detected yet.
pub(super) fn handler(
    config: &config::Runtime,
    handler: &config::Handler,
    oci: OciRuntime,
) -> HandlerSettings {
    let has_own_networks = handler.cni_conf_dir.is_some() || handler.cni_max_conf_num.is_some();
    let dir = handler.cni_conf_dir.as_ref();
    let max = handler.cni_max_conf_num;
    let networks = (
        dir.unwrap_or(&config.cni.conf_dir).clone(),
        max.unwrap_or(config.cni.max_conf_num),
    );
    HandlerSettings {
        name: handler.name.clone(),
        oci,
        options: HandlerOptions {
            privileged_without_host_devices: handler.privileged_without_host_devices,
            privileged_without_host_devices_all_allowed: handler
                .privileged_without_host_devices_all_devices_allowed,
            cgroup_writable: handler.cgroup_writable,
            pod_annotations: handler.pod_annotations.clone(),
            container_annotations: handler.container_annotations.clone(),
        },
        no_pivot: handler.no_pivot,
        no_new_keyring: handler.no_new_keyring,
        cni: has_own_networks.then_some(networks),
        recursive_read_only: false,
        support: RuntimeSupport::default(),
        user_namespaces: false,
        takes_filters: false,
    }
}

#[cfg(test)]
mod tests;
