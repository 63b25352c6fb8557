//! The settings of the built-in runtime.

use std::path::{Path, PathBuf};

use crate::config::document::{Given, Reader, Scope, path_of};
use crate::config::error::{Hint, Place, Problem};
use crate::config::schema as keys;
use crate::config::suggest::nearest;
use crate::config::value::lexical;
use crate::config::{Cni, Handler, Images, PodDefaults, Runtime};

/// The handler that is the default wherever it is there.
const RUNC: &str = "runc";

/// Reads `[runtime]` and all that stands below it.
pub(in crate::config) fn runtime(reader: &mut Reader<'_>) -> Runtime {
    let scope = reader.section(keys::RUNTIME_ROOT.section);
    let root = reader.value(&scope, &keys::RUNTIME_ROOT);
    let state = reader.value(&scope, &keys::RUNTIME_STATE);
    check_apart(reader, &scope, &root, &state);
    let handlers = handlers(reader);
    Runtime {
        shim: optional(reader.given(&scope, &keys::SHIM)),
        cgroup_driver: reader.value(&scope, &keys::CGROUP_DRIVER),
        default_handler: default_handler(reader, &scope, &handlers),
        max_log_line: reader.value(&scope, &keys::MAX_LOG_LINE),
        pods: pods(reader, &scope),
        drain_exec_sync: reader.value(&scope, &keys::DRAIN_EXEC_SYNC),
        stats_period: reader.value(&scope, &keys::STATS_PERIOD),
        cni: cni(reader),
        images: images(reader, &root),
        handlers,
        root,
        state,
    }
}

fn optional<T>(given: Option<Given<T>>) -> Option<T> {
    given.map(|given| given.value)
}

/// What a reboot must take away cannot lie in what it must leave, nor the other way round.
fn check_apart(reader: &mut Reader<'_>, scope: &Scope<'_>, root: &Path, state: &Path) {
    let (plain_root, plain_state) = (lexical(root), lexical(state));
    let (key, path, other) = if plain_state.starts_with(&plain_root) {
        (&keys::RUNTIME_STATE, state, "runtime.root")
    } else if plain_root.starts_with(&plain_state) {
        (&keys::RUNTIME_ROOT, root, "runtime.state")
    } else {
        return;
    };
    let problem = Problem::OneInTheOther {
        path: path.to_owned(),
        other,
    };
    let place = reader.place_of(scope, key);
    reader.fail(place, path_of(scope, key), problem);
}

fn pods<'d>(reader: &mut Reader<'d>, scope: &Scope<'d>) -> PodDefaults {
    PodDefaults {
        disable_apparmor: reader.value(scope, &keys::DISABLE_APPARMOR),
        apparmor_profile: optional(reader.given(scope, &keys::APPARMOR_PROFILE)),
        enable_selinux: reader.value(scope, &keys::ENABLE_SELINUX),
        selinux_category_range: reader.value(scope, &keys::SELINUX_CATEGORY_RANGE),
        restrict_oom_score_adj: reader.value(scope, &keys::RESTRICT_OOM_SCORE_ADJ),
        tolerate_missing_hugetlb: reader.value(scope, &keys::TOLERATE_MISSING_HUGETLB),
        disable_hugetlb: reader.value(scope, &keys::DISABLE_HUGETLB),
        device_ownership_from_security_context: reader.value(scope, &keys::DEVICE_OWNERSHIP),
        ignore_image_volumes: reader.value(scope, &keys::IGNORE_IMAGE_VOLUMES),
        unprivileged_ports: reader.value(scope, &keys::UNPRIVILEGED_PORTS),
        unprivileged_icmp: reader.value(scope, &keys::UNPRIVILEGED_ICMP),
        sysctls: reader.value(scope, &keys::SYSCTLS),
        capabilities: reader.value(scope, &keys::DEFAULT_CAPABILITIES),
        unset_seccomp: reader.value(scope, &keys::UNSET_SECCOMP),
        pids_limit: reader.value(scope, &keys::PIDS_LIMIT),
        cdi_spec_dirs: reader.value(scope, &keys::CDI_SPEC_DIRS),
    }
}

fn handlers(reader: &mut Reader<'_>) -> Vec<Handler> {
    let tables = reader.tables("runtime.handlers");
    tables
        .into_iter()
        .map(|(name, scope)| handler_in(reader, &scope, name))
        .collect()
}

/// A handler of which nothing but its name is said.
pub(in crate::config) fn handler(name: &str) -> Handler {
    let mut nothing = Reader::empty();
    let scope = nothing.section(keys::HANDLER_PATH.section);
    handler_in(&mut nothing, &scope, name.to_owned())
}

fn handler_in<'d>(reader: &mut Reader<'d>, scope: &Scope<'d>, name: String) -> Handler {
    let handler = Handler {
        name,
        path: optional(reader.given(scope, &keys::HANDLER_PATH)),
        options: reader.value(scope, &keys::HANDLER_OPTIONS),
        root: optional(reader.given(scope, &keys::HANDLER_ROOT)),
        systemd_cgroup: optional(reader.given(scope, &keys::HANDLER_SYSTEMD)),
        no_pivot: reader.value(scope, &keys::HANDLER_NO_PIVOT),
        no_new_keyring: reader.value(scope, &keys::HANDLER_NO_KEYRING),
        pod_annotations: reader.value(scope, &keys::HANDLER_POD_ANNOTATIONS),
        container_annotations: reader.value(scope, &keys::HANDLER_CONTAINER_ANNOTATIONS),
        privileged_without_host_devices: reader.value(scope, &keys::HANDLER_NO_HOST_DEVICES),
        privileged_without_host_devices_all_allowed: reader
            .value(scope, &keys::HANDLER_ALL_DEVICES),
        cni_conf_dir: optional(reader.given(scope, &keys::HANDLER_CNI_DIR)),
        cni_max_conf_num: optional(reader.given(scope, &keys::HANDLER_CNI_MAX)),
        timeout: reader.value(scope, &keys::HANDLER_TIMEOUT),
    };
    if handler.privileged_without_host_devices_all_allowed
        && !handler.privileged_without_host_devices
    {
        let place = reader.place_of(scope, &keys::HANDLER_ALL_DEVICES);
        let problem = Problem::Without(keys::HANDLER_NO_HOST_DEVICES.name);
        reader.fail(place, path_of(scope, &keys::HANDLER_ALL_DEVICES), problem);
    }
    handler
}

/// The name that `default_handler` gives, which must be a handler; it is missing if there are several and none is `runc`.
fn default_handler<'d>(
    reader: &mut Reader<'d>,
    scope: &Scope<'d>,
    handlers: &[Handler],
) -> Option<String> {
    let key = &keys::DEFAULT_HANDLER;
    let names: Vec<_> = handlers
        .iter()
        .map(|handler| handler.name.as_str())
        .collect();
    let written = scope
        .table
        .is_some_and(|table| table.contains_key(key.name));
    let Some(Given { value: name, place }) = reader.given(scope, key) else {
        if names.len() > 1 && !names.contains(&RUNC) && !written {
            let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
            let problem = Problem::NoDefaultHandler(quoted.join(", "));
            let place = reader.place(&scope.span);
            reader.fail(place, path_of(scope, key), problem);
        }
        return None;
    };
    // Without any handler the usual ones are there.
    let names = if names.is_empty() {
        crate::config::programs::USUAL.to_vec()
    } else {
        names
    };
    if !names.contains(&name.as_str()) {
        let hint = match nearest(&name, names.iter().copied()) {
            Some(near) => Hint::Nearest(near.to_owned()),
            None => Hint::Known(names.iter().map(|&name| name.to_owned()).collect()),
        };
        unknown_handler(reader, scope, place, name, hint);
        return None;
    }
    Some(name)
}

fn unknown_handler(
    reader: &mut Reader<'_>,
    scope: &Scope<'_>,
    place: Place,
    name: String,
    hint: Hint,
) {
    let key = path_of(scope, &keys::DEFAULT_HANDLER);
    reader.fail(place, key, Problem::UnknownHandler { name, hint });
}

/// The default of handlers that are configured, if the file does not say which it is: there is one that is it.
pub(in crate::config) fn implied_handler(handlers: &[Handler]) -> &str {
    let runc = handlers.iter().find(|handler| handler.name == RUNC);
    let handler = runc.or(handlers.first());
    handler.map_or(RUNC, |handler| handler.name.as_str())
}

fn cni(reader: &mut Reader<'_>) -> Cni {
    let scope = reader.section(keys::CNI_CONF_DIR.section);
    Cni {
        conf_dir: reader.value(&scope, &keys::CNI_CONF_DIR),
        max_conf_num: reader.value(&scope, &keys::CNI_MAX_CONF_NUM),
        bin_dirs: reader.value(&scope, &keys::CNI_BIN_DIRS),
        cache_dir: reader.value(&scope, &keys::CNI_CACHE_DIR),
        conf_template: optional(reader.given(&scope, &keys::CNI_CONF_TEMPLATE)),
        ip_preference: reader.value(&scope, &keys::CNI_IP_PREF),
        interface_prefix: reader.value(&scope, &keys::CNI_INTERFACE_PREFIX),
        loopback: reader.value(&scope, &keys::CNI_LOOPBACK),
        add_timeout: reader.value(&scope, &keys::CNI_ADD_TIMEOUT),
        del_timeout: reader.value(&scope, &keys::CNI_DEL_TIMEOUT),
        query_timeout: reader.value(&scope, &keys::CNI_QUERY_TIMEOUT),
    }
}

fn images(reader: &mut Reader<'_>, root: &Path) -> Images {
    let scope = reader.section(keys::IMAGES_ROOT.section);
    let below = |given: Option<Given<PathBuf>>, name| {
        given.map_or_else(|| root.join(name), |given| given.value)
    };
    Images {
        root: below(reader.given(&scope, &keys::IMAGES_ROOT), "images"),
        certs_dirs: reader.value(&scope, &keys::IMAGES_CERTS_DIRS),
        docker_config: optional(reader.given(&scope, &keys::IMAGES_DOCKER_CONFIG)),
        max_concurrent_downloads: reader.value(&scope, &keys::IMAGES_DOWNLOADS),
        progress_timeout: reader.value(&scope, &keys::IMAGES_PROGRESS_TIMEOUT),
        connect_timeout: reader.value(&scope, &keys::IMAGES_CONNECT_TIMEOUT),
        retries: reader.value(&scope, &keys::IMAGES_RETRIES),
        max_layer_bytes: reader.value(&scope, &keys::IMAGES_MAX_LAYER),
        max_unpacked_bytes: reader.value(&scope, &keys::IMAGES_MAX_UNPACKED),
        max_layer_entries: reader.value(&scope, &keys::IMAGES_MAX_ENTRIES),
        max_layer_ratio: reader.value(&scope, &keys::IMAGES_MAX_RATIO),
        min_free_bytes: reader.value(&scope, &keys::IMAGES_MIN_FREE),
        keep_unused: reader.value(&scope, &keys::IMAGES_KEEP_UNUSED),
        import_dir: below(reader.given(&scope, &keys::IMAGES_IMPORT_DIR), "import"),
        pinned: reader.value(&scope, &keys::IMAGES_PINNED),
        platform: optional(reader.given(&scope, &keys::IMAGES_PLATFORM)),
    }
}
