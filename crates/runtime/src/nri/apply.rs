//! Applying adjustments to a specification: the environment, arguments, mounts, devices and resources.
//!
//! The specification is edited in the form of JSON, whose names are the OCI runtime specification's. Read back, anything that is not a
//! valid specification is refused.

use std::path::{Path, PathBuf};

use criscope_nri::api::{ContainerAdjustment, KeyValue, LinuxDevice, LinuxResources, Mount};
use criscope_nri::removed_key;
use serde_json::{Map, Value, json};

use crate::oci::spec::{Action, Propagation};

/// The object at a path, which is made if there is none.
pub(super) fn object<'a>(spec: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let mut at = spec;
    for name in path {
        at = as_object(at).entry(*name).or_insert(Value::Null);
    }
    as_object(at)
}

fn as_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made above"),
    }
}

/// The list at a path, which is made if there is none.
pub(super) fn array<'a>(spec: &'a mut Value, path: &[&str], name: &str) -> &'a mut Vec<Value> {
    let value = object(spec, path).entry(name).or_insert(Value::Null);
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    match value {
        Value::Array(list) => list,
        _ => unreachable!("made above"),
    }
}

/// Sets the fields of the object at a path that have a value.
pub(super) fn merge(spec: &mut Value, path: &[&str], fields: Value) {
    let Value::Object(mut fields) = fields else {
        return;
    };
    fields.retain(|_, value| !value.is_null());
    if !fields.is_empty() {
        object(spec, path).extend(fields);
    }
}

/// Sets the entries of a map and removes the ones that are marked.
pub(super) fn texts<'a>(
    to: &mut Map<String, Value>,
    from: impl IntoIterator<Item = (&'a String, &'a String)>,
) {
    // Removals sort before new values.
    for (key, value) in from {
        match removed_key(key) {
            Some(key) => drop(to.remove(key)),
            None => drop(to.insert(key.clone(), json!(value))),
        }
    }
}

/// Changes variables in their place and appends new ones.
pub(super) fn environment(spec: &mut Value, wanted: &[KeyValue]) {
    let env = array(spec, &["process"], "env");
    for one in wanted {
        let pair = json!(format!("{}={}", one.key, one.value));
        if let Some(key) = removed_key(&one.key) {
            env.retain(|pair| variable_name(pair) != key);
        } else if let Some(at) = env.iter().position(|pair| variable_name(pair) == one.key) {
            env[at] = pair;
        } else {
            env.push(pair);
        }
    }
}

fn variable_name(pair: &Value) -> &str {
    let pair = pair.as_str().unwrap_or_default();
    pair.split('=').next().unwrap_or_default()
}

/// Adds hooks after the ones that are there.
pub(super) fn hooks(spec: &mut Value, adjusted: &ContainerAdjustment) {
    let Some(hooks) = &adjusted.hooks else { return };
    for (name, list) in [
        ("prestart", &hooks.prestart),
        ("createRuntime", &hooks.create_runtime),
        ("createContainer", &hooks.create_container),
        ("startContainer", &hooks.start_container),
        ("poststart", &hooks.poststart),
        ("poststop", &hooks.poststop),
    ] {
        if !list.is_empty() {
            array(spec, &["hooks"], name).extend(list.iter().map(|hook| json!(hook)));
        }
    }
}

/// Returns whether a mount is at a path, which may be spelt in another way, such as `/data/`.
fn is_at(mount: &Value, destination: &str) -> bool {
    let other = mount["destination"].as_str().map(Path::new);
    other == Some(Path::new(destination))
}

/// Replaces and adds mounts, parents before children. Returns what the propagation of sources must be.
pub(super) fn mounts(spec: &mut Value, wanted: &[Mount]) -> Vec<Action> {
    let mut actions = Vec::new();
    if wanted.is_empty() {
        return actions;
    }
    let mut root = None;
    let mounts = array(spec, &[], "mounts");
    for mount in wanted {
        let removed = removed_key(&mount.destination);
        let destination = removed.unwrap_or(&mount.destination);
        mounts.retain(|other| !is_at(other, destination));
        if removed.is_some() {
            continue;
        }
        let at_least = source_propagation(&mount.options);
        if at_least != Propagation::Private {
            root = match (root, at_least) {
                (Some(Propagation::Shared), _) => root,
                _ => Some(at_least),
            };
            actions.push(Action::RequirePropagation {
                path: PathBuf::from(&mount.source),
                at_least,
            });
        }
        mounts.push(json!(mount));
    }
    mounts.sort_by_key(|mount| {
        let destination = mount["destination"].as_str().unwrap_or_default();
        Path::new(destination).components().count()
    });
    let linux = object(spec, &["linux"]);
    let now = linux.get("rootfsPropagation").and_then(Value::as_str);
    let to = match (root, now) {
        (Some(Propagation::Shared), _) => Some("rshared"),
        (Some(_), None | Some("private" | "rprivate")) => Some("rslave"),
        _ => None,
    };
    if let Some(to) = to {
        linux.insert("rootfsPropagation".to_owned(), json!(to));
    }
    actions
}

/// The propagation that the source of a mount with these options must have at least.
fn source_propagation(options: &[String]) -> Propagation {
    if options.iter().any(|option| option == "rshared") {
        Propagation::Shared
    } else if options.iter().any(|option| option == "rslave") {
        Propagation::Slave
    } else {
        Propagation::Private
    }
}

/// Replaces and adds devices, and allows the added ones.
pub(super) fn devices(spec: &mut Value, wanted: &[LinuxDevice]) {
    for device in wanted {
        let removed = removed_key(&device.path);
        let path = removed.unwrap_or(&device.path);
        let devices = array(spec, &["linux"], "devices");
        devices.retain(|other| other["path"] != path);
        if removed.is_some() {
            continue;
        }
        devices.push(json!(device));
        // No rule, like containerd, which also makes no nodes of character devices. The device cgroup knows no FIFOs, and one type of character devices.
        let (typ, access) = match device.r#type.as_str() {
            "p" => continue,
            "b" => ("b", "rwm"),
            "u" => ("c", "rw"),
            other => (other, "rw"),
        };
        array(spec, &["linux", "resources"], "devices").push(json!({
            "allow": true,
            "type": typ,
            "major": device.major,
            "minor": device.minor,
            "access": access,
        }));
    }
}

/// Sets the resources that plugins want.
pub(super) fn resources(spec: &mut Value, wanted: &LinuxResources, swap: bool) {
    let path = ["linux", "resources"];
    // A limit alone applies to memory and swap together, if the kernel accounts swap.
    let memory = wanted.memory.as_ref().filter(|_| swap);
    if let Some(limit) = memory.and_then(|memory| memory.limit.as_ref()) {
        object(spec, &["linux", "resources", "memory"]).insert("swap".to_owned(), json!(limit));
    }
    for (group, fields) in [
        ("cpu", json!(wanted.cpu)),
        ("memory", json!(wanted.memory)),
        ("pids", json!(wanted.pids)),
        ("unified", json!(wanted.unified)),
    ] {
        merge(spec, &["linux", "resources", group], fields);
    }
    for limit in &wanted.hugepage_limits {
        let limits = array(spec, &path, "hugepageLimits");
        limits.retain(|other| other["pageSize"] != *limit.page_size);
        limits.push(json!(limit));
    }
    for rule in &wanted.devices {
        array(spec, &path, "devices").push(json!(rule));
    }
}
