//! The confinement of a container: only the request decides about most of it, and NRI plugins about their explicit requests.

use std::path::{Component, Path};

use oci_spec::runtime::{Linux, LinuxNamespace, LinuxNamespaceType, Spec};
use serde_json::Value;

use super::hooks::is_plain_absolute;
use super::{FinishedSpec, Violation, violation};

/// The fields of a specification that CDI devices, hooks, classes and NRI plugins may change, as JSON pointers (RFC 6901). Each has a
/// rule of its own. All others, among them user, capabilities, labels and `noNewPrivileges`, are those of the request.
const ADJUSTABLE: [&str; 19] = [
    "/annotations",
    "/hooks",
    "/linux/cgroupsPath",
    "/linux/devices",
    "/linux/intelRdt",
    "/linux/memoryPolicy",
    "/linux/namespaces",
    "/linux/netDevices",
    "/linux/resources",
    "/linux/rootfsPropagation",
    "/linux/seccomp",
    "/linux/sysctl",
    "/mounts",
    "/process/args",
    "/process/env",
    "/process/ioPriority",
    "/process/oomScoreAdj",
    "/process/rlimits",
    "/process/scheduler",
];
/// Groups may be added, but none removed.
const GROUPS: &str = "/process/user/additionalGids";

/// The namespaces that a plugin may replace. The others hold the mounts and the ids of the container.
const REPLACEABLE: [LinuxNamespaceType; 6] = [
    LinuxNamespaceType::Cgroup,
    LinuxNamespaceType::Ipc,
    LinuxNamespaceType::Network,
    LinuxNamespaceType::Pid,
    LinuxNamespaceType::Time,
    LinuxNamespaceType::Uts,
];

/// All fields but the adjustable ones are those of the request.
pub(super) fn check_request(finished: &FinishedSpec<'_>) -> Result<(), Violation> {
    let requested = fixed_fields(finished.request.requested)?;
    let changed = fixed_fields(finished.spec)?;
    if let Some(field) = first_difference(&requested, &changed, "") {
        return violation(field, "only the request decides about it");
    }
    let groups = finished
        .process()
        .and_then(|process| process.user().additional_gids().as_ref());
    let requested = finished.requested_process();
    let requested = requested.and_then(|process| process.user().additional_gids().as_ref());
    let has =
        |groups: Option<&Vec<u32>>, group: &u32| groups.is_some_and(|all| all.contains(group));
    if requested
        .into_iter()
        .flatten()
        .any(|group| !has(groups, group))
    {
        return violation(
            "process.user.additionalGids",
            "a group of the request is missing",
        );
    }
    if has(groups, &0) && !has(requested, &0) {
        return violation("process.user.additionalGids", "group 0 was added");
    }
    Ok(())
}

/// A specification without its adjustable fields.
fn fixed_fields(spec: &Spec) -> Result<Value, Violation> {
    let mut fields = serde_json::to_value(spec).map_err(|error| Violation {
        field: "config.json".to_owned(),
        reason: error.to_string(),
    })?;
    for pointer in ADJUSTABLE.into_iter().chain([GROUPS]) {
        let (parent, name) = pointer.rsplit_once('/').unwrap_or_default();
        if let Some(Value::Object(parent)) = fields.pointer_mut(parent) {
            parent.remove(name);
        }
    }
    // Sets of capabilities are written in any order.
    let capabilities = fields.pointer_mut("/process/capabilities");
    let sets = capabilities.and_then(Value::as_object_mut);
    for set in sets.into_iter().flat_map(|sets| sets.values_mut()) {
        if let Value::Array(set) = set {
            set.sort_by(|one, other| one.as_str().cmp(&other.as_str()));
        }
    }
    Ok(fields)
}

/// The path of the first field in which two values differ, such as `process.cwd`.
fn first_difference(one: &Value, other: &Value, at: &str) -> Option<String> {
    if one == other {
        return None;
    }
    let (Value::Object(one), Value::Object(other)) = (one, other) else {
        return Some(at.to_owned());
    };
    let mut names = one.keys().chain(other.keys());
    names.find_map(|name| {
        let value =
            |fields: &serde_json::Map<String, Value>| fields.get(name).cloned().unwrap_or_default();
        let separator = if at.is_empty() { "" } else { "." };
        first_difference(
            &value(one),
            &value(other),
            &format!("{at}{separator}{name}"),
        )
    })
}

/// The entry of a namespace, if the container has one of its own or of its pod.
pub(super) fn namespace(
    linux: Option<&Linux>,
    kind: LinuxNamespaceType,
) -> Option<&LinuxNamespace> {
    let mut all = linux?.namespaces().iter().flatten();
    all.find(|namespace| namespace.typ() == kind)
}

/// The name of a namespace in errors and log lines.
pub(super) fn field_of(kind: LinuxNamespaceType) -> String {
    let name = serde_json::to_value(kind).unwrap_or_default();
    format!("linux.namespaces.{}", name.as_str().unwrap_or_default())
}

/// The namespaces of a container that are not those of the request.
pub(super) fn changed_namespaces(finished: &FinishedSpec<'_>) -> Vec<LinuxNamespaceType> {
    let (now, requested) = (finished.linux(), finished.requested_linux());
    let changed = REPLACEABLE.into_iter();
    changed
        .filter(|kind| namespace(now, *kind) != namespace(requested, *kind))
        .collect()
}

/// A container has a mount namespace of its own and the user namespace of its pod. It has the others of the request, unless an NRI
/// plugin asks for another one.
pub(super) fn check_namespaces(finished: &FinishedSpec<'_>) -> Result<(), Violation> {
    let linux = finished.linux();
    let all = linux
        .and_then(|linux| linux.namespaces().as_deref())
        .unwrap_or_default();
    for (number, one) in all.iter().enumerate() {
        let field = field_of(one.typ());
        if all[..number].iter().any(|other| other.typ() == one.typ()) {
            return violation(field, "it is there twice");
        }
        if one
            .path()
            .as_ref()
            .is_some_and(|path| !is_plain_absolute(path))
        {
            return violation(
                field,
                "its path is not absolute, or has `..` or control characters",
            );
        }
    }
    // Without one of its own the OCI runtime would mount the container's file systems on the node.
    let mount = namespace(linux, LinuxNamespaceType::Mount);
    if mount.is_none_or(|namespace| namespace.path().is_some()) {
        return violation(
            field_of(LinuxNamespaceType::Mount),
            "the container needs a new one",
        );
    }
    let user = LinuxNamespaceType::User;
    if namespace(linux, user) != namespace(finished.requested_linux(), user) {
        let reason = "the container needs that of its pod, to which its ids belong";
        return violation(field_of(user), reason);
    }
    match changed_namespaces(finished).first() {
        Some(kind) if !finished.request.plugins.namespaces => violation(
            field_of(*kind),
            "only the request and NRI plugins decide about it",
        ),
        _ => Ok(()),
    }
}

/// Returns whether the seccomp profile is the request's.
pub(super) fn has_requested_seccomp(finished: &FinishedSpec<'_>) -> bool {
    let profile = finished.linux().and_then(|linux| linux.seccomp().as_ref());
    let requested = finished.requested_linux();
    profile == requested.and_then(|linux| linux.seccomp().as_ref())
}

/// The seccomp profile comes from the request or from an NRI plugin.
pub(super) fn check_seccomp(finished: &FinishedSpec<'_>) -> Result<(), Violation> {
    if has_requested_seccomp(finished) {
        return Ok(());
    }
    if !finished.request.plugins.seccomp {
        return violation(
            "linux.seccomp",
            "only the request and NRI plugins decide about it",
        );
    }
    let profile = finished.linux().and_then(|linux| linux.seccomp().as_ref());
    let listener = profile.and_then(|profile| profile.listener_path().as_ref());
    match listener {
        Some(path) if !is_plain_absolute(path) => violation(
            "linux.seccomp.listenerPath",
            "not an absolute path without `..`",
        ),
        _ => Ok(()),
    }
}

fn cgroups_path(linux: Option<&Linux>) -> Option<&Path> {
    linux?.cgroups_path().as_deref()
}

/// Returns whether the cgroup is the request's.
pub(super) fn has_requested_cgroup(finished: &FinishedSpec<'_>) -> bool {
    cgroups_path(finished.linux()) == cgroups_path(finished.requested_linux())
}

/// The cgroup is the request's, or one that an NRI plugin asks for, for this container alone: the runtime sets its limits, kills
/// its contents, and removes it.
pub(super) fn check_cgroup(finished: &FinishedSpec<'_>) -> Result<(), Violation> {
    const FIELD: &str = "linux.cgroupsPath";
    if has_requested_cgroup(finished) {
        return Ok(());
    }
    let requested = cgroups_path(finished.requested_linux()).unwrap_or(Path::new(""));
    let path = cgroups_path(finished.linux()).unwrap_or(Path::new(""));
    if !finished.request.plugins.cgroup {
        return violation(FIELD, "only the request and NRI plugins decide about it");
    }
    let text = path.to_string_lossy();
    // The form follows the cgroup driver of the node: `slice:prefix:name` with systemd.
    let fits = if requested.to_string_lossy().contains(':') {
        is_scope(&text)
    } else {
        let has_name = path
            .components()
            .any(|part| matches!(part, Component::Normal(_)));
        is_plain_absolute(path) && has_name && !text.contains(':')
    };
    if !fits {
        let reason =
            format!("{path:?} is no cgroup for a container with the cgroup driver of this node");
        return violation(FIELD, reason);
    }
    if requested.starts_with(path) {
        let reason = format!("{path:?} is not for this container alone: that of its pod is in it");
        return violation(FIELD, reason);
    }
    Ok(())
}

/// Returns whether a text names a scope of systemd: `slice:prefix:name`. With a name that ends in `.slice` it would be a slice.
fn is_scope(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    let [slice, _, name] = parts.as_slice() else {
        return false;
    };
    !text.contains(|c: char| c == '/' || c.is_control())
        && slice.ends_with(".slice")
        && !name.is_empty()
        && !name.ends_with(".slice")
}
