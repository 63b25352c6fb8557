//! Applying adjustments to a specification: the environment, arguments, mounts, devices and resources.
//!
//! The specification is edited in the form of JSON, whose names are the OCI runtime specification's. Read back, anything that is not a
//! valid specification is refused.

use std::path::{Path, PathBuf};

use criscope_nri::api::{ContainerAdjustment, Hook, KeyValue, LinuxDevice, LinuxResources, Mount};
use criscope_nri::removed_key;
use serde_json::{Map, Value, json};

use crate::runtime::oci::spec::{Action, Propagation};

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
            array(spec, &["hooks"], name).extend(list.iter().map(hook));
        }
    }
}

fn hook(from: &Hook) -> Value {
    let mut to = Map::new();
    to.insert("path".to_owned(), json!(from.path));
    if !from.args.is_empty() {
        to.insert("args".to_owned(), json!(from.args));
    }
    if !from.env.is_empty() {
        to.insert("env".to_owned(), json!(from.env));
    }
    if let Some(timeout) = &from.timeout {
        to.insert("timeout".to_owned(), json!(timeout.value));
    }
    Value::Object(to)
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
        mounts.push(json!({
            "destination": destination,
            "type": mount.r#type,
            "source": mount.source,
            "options": mount.options,
        }));
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
        let mut to = Map::new();
        to.insert("path".to_owned(), json!(device.path));
        to.insert("type".to_owned(), json!(device.r#type));
        to.insert("major".to_owned(), json!(device.major));
        to.insert("minor".to_owned(), json!(device.minor));
        if let Some(mode) = &device.file_mode {
            to.insert("fileMode".to_owned(), json!(mode.value));
        }
        if let Some(uid) = &device.uid {
            to.insert("uid".to_owned(), json!(uid.value));
        }
        if let Some(gid) = &device.gid {
            to.insert("gid".to_owned(), json!(gid.value));
        }
        devices.push(Value::Object(to));
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
    macro_rules! set {
        ($group:literal, $from:expr, $($field:ident = $name:literal),* $(,)?) => {$(
            if let Some(value) = &$from.$field {
                object(spec, &["linux", "resources", $group])
                    .insert($name.to_owned(), json!(value.value));
            }
        )*};
    }
    if let Some(cpu) = &wanted.cpu {
        set!(
            "cpu",
            cpu,
            shares = "shares",
            quota = "quota",
            period = "period",
            realtime_runtime = "realtimeRuntime",
            realtime_period = "realtimePeriod"
        );
        for (name, value) in [("cpus", &cpu.cpus), ("mems", &cpu.mems)] {
            if !value.is_empty() {
                object(spec, &["linux", "resources", "cpu"]).insert(name.to_owned(), json!(value));
            }
        }
    }
    if let Some(memory) = &wanted.memory {
        // A limit alone applies to memory and swap together, if the kernel accounts swap.
        if let Some(limit) = memory.limit.as_ref().filter(|_| swap) {
            object(spec, &["linux", "resources", "memory"])
                .insert("swap".to_owned(), json!(limit.value));
        }
        set!(
            "memory",
            memory,
            limit = "limit",
            reservation = "reservation",
            swap = "swap",
            kernel = "kernel",
            kernel_tcp = "kernelTCP",
            swappiness = "swappiness",
            disable_oom_killer = "disableOOMKiller",
            use_hierarchy = "useHierarchy"
        );
    }
    for limit in &wanted.hugepage_limits {
        let limits = array(spec, &path, "hugepageLimits");
        limits.retain(|other| other["pageSize"] != *limit.page_size);
        limits.push(json!({"pageSize": limit.page_size, "limit": limit.limit}));
    }
    if let Some(pids) = &wanted.pids {
        object(spec, &["linux", "resources", "pids"]).insert("limit".to_owned(), json!(pids.limit));
    }
    if !wanted.unified.is_empty() {
        let unified = object(spec, &["linux", "resources", "unified"]);
        for (key, value) in &wanted.unified {
            unified.insert(key.clone(), json!(value));
        }
    }
    for rule in &wanted.devices {
        let mut to = Map::new();
        to.insert("allow".to_owned(), json!(rule.allow));
        to.insert("type".to_owned(), json!(rule.r#type));
        for (name, number) in [("major", &rule.major), ("minor", &rule.minor)] {
            if let Some(number) = number {
                to.insert(name.to_owned(), json!(number.value));
            }
        }
        to.insert("access".to_owned(), json!(rule.access));
        array(spec, &path, "devices").push(Value::Object(to));
    }
}
