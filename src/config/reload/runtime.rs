//! The values of the built-in runtime that are in effect.

use super::Listing;
use crate::config::schema as keys;
use crate::config::{Cni, Handler, Images, PodDefaults, Runtime};

pub(super) fn list_runtime(list: &mut Listing, runtime: &Runtime) {
    let Runtime {
        root,
        state,
        shim,
        cgroup_driver,
        default_handler,
        max_log_line,
        pods,
        drain_exec_sync,
        stats_period,
        handlers,
        cni,
        images,
    } = runtime;
    list.add(&keys::RUNTIME_ROOT, root);
    list.add(&keys::RUNTIME_STATE, state);
    list.add_if(&keys::SHIM, shim.as_ref());
    list.add(&keys::CGROUP_DRIVER, cgroup_driver);
    list.add_if(&keys::DEFAULT_HANDLER, default_handler.as_ref());
    list.add(&keys::MAX_LOG_LINE, max_log_line);
    list_pods(list, pods);
    list.add(&keys::DRAIN_EXEC_SYNC, drain_exec_sync);
    list.add(&keys::STATS_PERIOD, stats_period);
    for handler in handlers {
        list_handler(list, handler);
    }
    list_cni(list, cni);
    list_images(list, images);
}

fn list_pods(list: &mut Listing, pods: &PodDefaults) {
    let PodDefaults {
        disable_apparmor,
        apparmor_profile,
        enable_selinux,
        selinux_category_range,
        restrict_oom_score_adj,
        tolerate_missing_hugetlb,
        disable_hugetlb,
        device_ownership_from_security_context,
        ignore_image_volumes,
        unprivileged_ports,
        unprivileged_icmp,
        sysctls,
        capabilities,
        unset_seccomp,
        pids_limit,
        cdi_spec_dirs,
    } = pods;
    list.add(&keys::DISABLE_APPARMOR, disable_apparmor);
    list.add_if(&keys::APPARMOR_PROFILE, apparmor_profile.as_ref());
    list.add(&keys::ENABLE_SELINUX, enable_selinux);
    list.add(&keys::SELINUX_CATEGORY_RANGE, selinux_category_range);
    list.add(&keys::RESTRICT_OOM_SCORE_ADJ, restrict_oom_score_adj);
    list.add(&keys::TOLERATE_MISSING_HUGETLB, tolerate_missing_hugetlb);
    list.add(&keys::DISABLE_HUGETLB, disable_hugetlb);
    list.add(
        &keys::DEVICE_OWNERSHIP,
        device_ownership_from_security_context,
    );
    list.add(&keys::IGNORE_IMAGE_VOLUMES, ignore_image_volumes);
    list.add(&keys::UNPRIVILEGED_PORTS, unprivileged_ports);
    list.add(&keys::UNPRIVILEGED_ICMP, unprivileged_icmp);
    list.add(&keys::SYSCTLS, sysctls);
    list.add(&keys::DEFAULT_CAPABILITIES, capabilities);
    list.add(&keys::UNSET_SECCOMP, unset_seccomp);
    list.add(&keys::PIDS_LIMIT, pids_limit);
    list.add(&keys::CDI_SPEC_DIRS, cdi_spec_dirs);
}

fn list_handler(list: &mut Listing, handler: &Handler) {
    let Handler {
        name,
        path,
        options,
        root,
        systemd_cgroup,
        no_pivot,
        no_new_keyring,
        pod_annotations,
        container_annotations,
        privileged_without_host_devices,
        privileged_without_host_devices_all_allowed,
        cni_conf_dir,
        cni_max_conf_num,
        timeout,
    } = handler;
    let table = format!("runtime.handlers.{name}");
    list.add_at_if(&table, &keys::HANDLER_PATH, path.as_ref());
    list.add_at(&table, &keys::HANDLER_OPTIONS, options);
    list.add_at_if(&table, &keys::HANDLER_ROOT, root.as_ref());
    list.add_at_if(&table, &keys::HANDLER_SYSTEMD, systemd_cgroup.as_ref());
    list.add_at(&table, &keys::HANDLER_NO_PIVOT, no_pivot);
    list.add_at(&table, &keys::HANDLER_NO_KEYRING, no_new_keyring);
    list.add_at(&table, &keys::HANDLER_POD_ANNOTATIONS, pod_annotations);
    list.add_at(
        &table,
        &keys::HANDLER_CONTAINER_ANNOTATIONS,
        container_annotations,
    );
    list.add_at(
        &table,
        &keys::HANDLER_NO_HOST_DEVICES,
        privileged_without_host_devices,
    );
    list.add_at(
        &table,
        &keys::HANDLER_ALL_DEVICES,
        privileged_without_host_devices_all_allowed,
    );
    list.add_at_if(&table, &keys::HANDLER_CNI_DIR, cni_conf_dir.as_ref());
    list.add_at_if(&table, &keys::HANDLER_CNI_MAX, cni_max_conf_num.as_ref());
    list.add_at(&table, &keys::HANDLER_TIMEOUT, timeout);
}

fn list_cni(list: &mut Listing, cni: &Cni) {
    let Cni {
        conf_dir,
        max_conf_num,
        bin_dirs,
        cache_dir,
        conf_template,
        ip_preference,
        interface_prefix,
        loopback,
        add_timeout,
        del_timeout,
        query_timeout,
    } = cni;
    list.add(&keys::CNI_CONF_DIR, conf_dir);
    list.add(&keys::CNI_MAX_CONF_NUM, max_conf_num);
    list.add(&keys::CNI_BIN_DIRS, bin_dirs);
    list.add(&keys::CNI_CACHE_DIR, cache_dir);
    list.add_if(&keys::CNI_CONF_TEMPLATE, conf_template.as_ref());
    list.add(&keys::CNI_IP_PREF, ip_preference);
    list.add(&keys::CNI_INTERFACE_PREFIX, interface_prefix);
    list.add(&keys::CNI_LOOPBACK, loopback);
    list.add(&keys::CNI_ADD_TIMEOUT, add_timeout);
    list.add(&keys::CNI_DEL_TIMEOUT, del_timeout);
    list.add(&keys::CNI_QUERY_TIMEOUT, query_timeout);
}

fn list_images(list: &mut Listing, images: &Images) {
    let Images {
        root,
        certs_dirs,
        docker_config,
        max_concurrent_downloads,
        progress_timeout,
        connect_timeout,
        retries,
        max_layer_bytes,
        max_unpacked_bytes,
        max_layer_entries,
        max_layer_ratio,
        min_free_bytes,
        keep_unused,
        import_dir,
        pinned,
        platform,
    } = images;
    list.add(&keys::IMAGES_ROOT, root);
    list.add(&keys::IMAGES_CERTS_DIRS, certs_dirs);
    list.add_if(&keys::IMAGES_DOCKER_CONFIG, docker_config.as_ref());
    list.add(&keys::IMAGES_DOWNLOADS, max_concurrent_downloads);
    list.add(&keys::IMAGES_PROGRESS_TIMEOUT, progress_timeout);
    list.add(&keys::IMAGES_CONNECT_TIMEOUT, connect_timeout);
    list.add(&keys::IMAGES_RETRIES, retries);
    list.add(&keys::IMAGES_MAX_LAYER, max_layer_bytes);
    list.add(&keys::IMAGES_MAX_UNPACKED, max_unpacked_bytes);
    list.add(&keys::IMAGES_MAX_ENTRIES, max_layer_entries);
    list.add(&keys::IMAGES_MAX_RATIO, max_layer_ratio);
    list.add(&keys::IMAGES_MIN_FREE, min_free_bytes);
    list.add(&keys::IMAGES_KEEP_UNUSED, keep_unused);
    list.add(&keys::IMAGES_IMPORT_DIR, import_dir);
    list.add(&keys::IMAGES_PINNED, pinned);
    list.add_if(&keys::IMAGES_PLATFORM, platform.as_ref());
}
