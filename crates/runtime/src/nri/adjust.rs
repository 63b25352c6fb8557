//! The adjustments of a container, applied to its specification in the order of the reference (containerd/nri,
//! `pkg/runtime-tools/generate`).

use criscope_nri::api::{
    ContainerAdjustment, IoPrioClass, LinuxContainerAdjustment, LinuxMemoryPolicy, LinuxRdt,
    LinuxScheduler, LinuxSchedulerFlag, LinuxSchedulerPolicy, MpolFlag, MpolMode,
};
use criscope_nri::removed_key;
use oci_spec::runtime::Spec;
use serde_json::{Map, Value, json};

use super::apply::{array, devices, environment, hooks, merge, mounts, object, resources, texts};
use crate::classes::Classes;
use crate::error::{Error, Result};
use crate::oci::spec::{Action, Host, NodeFacts, PluginChanges, cdi};

/// The facts of the node that adjustments depend on.
#[derive(Clone, Copy, Default)]
struct Facts {
    swap_accounting: bool,
    oom_score_adj_floor: Option<i32>,
}

/// Applies adjustments. Returns what must be checked on the node before the container is created.
///
/// # Errors
/// If a CDI device is not there, or what plugins set is no valid specification, or cannot be carried out on this node.
pub(crate) fn adjust(
    spec: &mut Spec,
    adjusted: &ContainerAdjustment,
    node: &NodeFacts,
    host: &dyn Host,
    registry: &cdi::Registry,
    classes: &Classes,
) -> Result<Vec<Action>> {
    let linux = adjusted.linux.clone().unwrap_or_default();
    let devices = adjusted.cdi_devices.iter().map(|device| &*device.name);
    cdi::inject(host, registry, devices, spec)?;
    let mut edited = serde_json::to_value(&*spec).map_err(|error| invalid(&error))?;
    let facts = Facts {
        swap_accounting: node.swap_accounting,
        oom_score_adj_floor: node.oom_score_adj_floor,
    };
    let actions = edit(&mut edited, adjusted, &linux, facts);
    if let Some(class) = linux.resources.and_then(|wanted| wanted.blockio_class) {
        let limits = match class.value.as_str() {
            "" => Value::Null,
            class => {
                serde_json::to_value(classes.blockio(class)?).map_err(|error| invalid(&error))?
            }
        };
        object(&mut edited, &["linux", "resources"]).insert("blockIO".to_owned(), limits);
    }
    *spec = serde_json::from_value(edited).map_err(|error| invalid(&error))?;
    Ok(actions)
}

fn invalid(error: &serde_json::Error) -> Error {
    Error::invalid(format!(
        "NRI plugins ask for what is no specification: {error}"
    ))
}

/// The changes of a container's confinement that adjustments ask for.
pub(crate) fn confinement_changes(adjusted: &ContainerAdjustment) -> PluginChanges {
    let Some(linux) = &adjusted.linux else {
        return PluginChanges::default();
    };
    PluginChanges {
        namespaces: !linux.namespaces.is_empty(),
        seccomp: linux.seccomp_policy.is_some(),
        cgroup: !linux.cgroups_path.is_empty(),
    }
}

fn edit(
    spec: &mut Value,
    adjusted: &ContainerAdjustment,
    linux: &LinuxContainerAdjustment,
    facts: Facts,
) -> Vec<Action> {
    texts(object(spec, &["annotations"]), &adjusted.annotations);
    environment(spec, &adjusted.env);
    if !adjusted.args.is_empty() {
        object(spec, &["process"]).insert("args".to_owned(), json!(adjusted.args));
    }
    hooks(spec, adjusted);
    devices(spec, &linux.devices);
    edit_linux(spec, linux, facts);
    let actions = mounts(spec, &adjusted.mounts);
    for limit in &adjusted.rlimits {
        let limits = array(spec, &["process"], "rlimits");
        limits.retain(|other| other["type"] != *limit.r#type);
        limits.push(json!(limit));
    }
    actions
}

fn edit_linux(spec: &mut Value, linux: &LinuxContainerAdjustment, facts: Facts) {
    if !linux.cgroups_path.is_empty() {
        object(spec, &["linux"]).insert("cgroupsPath".to_owned(), json!(linux.cgroups_path));
    }
    let process = object(spec, &["process"]);
    if let Some(score) = &linux.oom_score_adj {
        let floor = facts.oom_score_adj_floor.map_or(i64::MIN, i64::from);
        process.insert("oomScoreAdj".to_owned(), json!(score.value.max(floor)));
    }
    if let Some(priority) = &linux.io_priority {
        match IoPrioClass::try_from(priority.class) {
            Ok(IoPrioClass::IoprioClassNone) => drop(process.remove("ioPriority")),
            class => {
                let class = class.map_or("", |class| class.as_str_name());
                let to = json!({"class": class, "priority": priority.priority});
                process.insert("ioPriority".to_owned(), to);
            }
        }
    }
    if let Some(scheduler) = &linux.scheduler {
        process.insert("scheduler".to_owned(), scheduling(scheduler));
    }
    if let Some(policy) = &linux.seccomp_policy {
        object(spec, &["linux"]).insert("seccomp".to_owned(), json!(policy));
    }
    for namespace in &linux.namespaces {
        let removed = removed_key(&namespace.r#type);
        let typ = removed.unwrap_or(&namespace.r#type);
        let namespaces = array(spec, &["linux"], "namespaces");
        namespaces.retain(|other| other["type"] != typ);
        if removed.is_none() {
            namespaces.push(match namespace.path.as_str() {
                "" => json!({"type": typ}),
                path => json!({"type": typ, "path": path}),
            });
        }
    }
    texts(object(spec, &["linux", "sysctl"]), &linux.sysctl);
    let net_devices = object(spec, &["linux", "netDevices"]);
    for (name, device) in &linux.net_devices {
        match removed_key(name) {
            Some(name) => drop(net_devices.remove(name)),
            None => drop(net_devices.insert(name.clone(), json!(device))),
        }
    }
    if net_devices.is_empty() {
        object(spec, &["linux"]).remove("netDevices");
    }
    if let Some(policy) = &linux.memory_policy {
        object(spec, &["linux"]).insert("memoryPolicy".to_owned(), memory_policy(policy));
    }
    if let Some(wanted) = &linux.resources {
        resources(spec, wanted, facts.swap_accounting);
        if let Some(class) = &wanted.rdt_class {
            rdt_class(object(spec, &["linux"]), &class.value);
        }
    }
    if let Some(rdt) = &linux.rdt {
        edit_rdt(spec, rdt);
    }
}

fn rdt_class(linux: &mut Map<String, Value>, class: &str) {
    match rdt_group(class) {
        None => drop(linux.remove("intelRdt")),
        Some(group) => drop(linux.insert("intelRdt".to_owned(), json!({"closID": group}))),
    }
}

/// The group of an RDT class, if it is one.
pub(super) fn rdt_group(class: &str) -> Option<&str> {
    // CRI-O has the same condition.
    Some(class).filter(|class| !matches!(*class, "" | "/PodQos"))
}

fn edit_rdt(spec: &mut Value, rdt: &LinuxRdt) {
    if rdt.remove {
        object(spec, &["linux"]).remove("intelRdt");
    }
    merge(spec, &["linux", "intelRdt"], json!(rdt));
}

fn scheduling(from: &LinuxScheduler) -> Value {
    let policy = LinuxSchedulerPolicy::try_from(from.policy);
    let mut to = Map::new();
    let policy = match policy {
        Ok(LinuxSchedulerPolicy::SchedNone) => return Value::Null,
        Ok(policy) => policy.as_str_name(),
        Err(_) => "",
    };
    to.insert("policy".to_owned(), json!(policy));
    for (name, value) in [
        ("nice", json!(from.nice)),
        ("priority", json!(from.priority)),
        ("runtime", json!(from.runtime)),
        ("deadline", json!(from.deadline)),
        ("period", json!(from.period)),
    ] {
        if value != 0 {
            to.insert(name.to_owned(), value);
        }
    }
    let flags: Vec<_> = from
        .flags
        .iter()
        .map(|flag| LinuxSchedulerFlag::try_from(*flag).map_or("", |flag| flag.as_str_name()))
        .collect();
    if !flags.is_empty() {
        to.insert("flags".to_owned(), json!(flags));
    }
    Value::Object(to)
}

fn memory_policy(from: &LinuxMemoryPolicy) -> Value {
    let mode = MpolMode::try_from(from.mode).map_or("", |mode| mode.as_str_name());
    let flags = from.flags.iter();
    let flags: Vec<_> = flags
        .map(|flag| MpolFlag::try_from(*flag).map_or("", |flag| flag.as_str_name()))
        .collect();
    json!({"mode": mode, "nodes": from.nodes, "flags": flags})
}

#[cfg(test)]
mod tests;
