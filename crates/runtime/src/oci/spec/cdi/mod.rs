//! Container Device Interface (CDI): devices that vendors describe in files, by qualified name `vendor/class=device`.
//!
//! All edits of CDI 1.1.0 are applied. Network devices and `intelRdt` need support of the OCI runtime, which
//! [`RuntimeSupport`](super::RuntimeSupport) checks.

mod device_nodes;
mod edits;
mod files;

use std::collections::HashSet;

use oci_spec::runtime::{Hook, Hooks, LinuxNamespaceType, LinuxNetDevice, Mount, Spec};

use self::edits::{CdiHook, Edits, HookName, IntelRdt, NetDevice};
pub(super) use self::edits::{is_class_name, is_interface_name};
pub use self::files::Registry;
#[cfg(any(test, fuzzing))]
pub(crate) use self::files::fuzz;
use super::build::Request;
use super::error::SpecError;
use super::host::Host;
use criscope_cri::v1::ContainerConfig;

/// The prefix of annotations of containers that name devices, separated by commas (CDI, "Annotations").
const ANNOTATION: &str = "cdi.k8s.io/";

/// Returns whether a container asks for devices.
#[must_use]
pub fn is_asked(container: &ContainerConfig) -> bool {
    let mut keys = container.annotations.keys();
    !container.cdi_devices.is_empty() || keys.any(|key| key.starts_with(ANNOTATION))
}

/// The devices that a container asks for, each once: those of the request's field first, then those of annotations, which
/// device plugins for kubelets before 1.28 set, in the order of their keys.
fn asked(container: &ContainerConfig) -> Result<Vec<&str>, SpecError> {
    let fields = container.cdi_devices.iter();
    let mut names: Vec<_> = fields.map(|device| device.name.as_str()).collect();
    let mut annotations: Vec<_> = container
        .annotations
        .iter()
        .filter(|(key, _)| key.starts_with(ANNOTATION))
        .collect();
    annotations.sort();
    for (key, value) in annotations {
        for name in value.split(',').map(str::trim) {
            if !is_qualified(name) {
                let text =
                    format!("annotation {key}: not a list of CDI devices vendor/class=device");
                return Err(SpecError::Invalid(text));
            }
            names.push(name);
        }
    }
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(*name));
    Ok(names)
}

/// Returns whether a name has the form `vendor/class=device`.
fn is_qualified(name: &str) -> bool {
    let Some((kind, device)) = name.split_once('=') else {
        return false;
    };
    let Some((vendor, class)) = kind.split_once('/') else {
        return false;
    };
    [vendor, class, device].into_iter().all(|part| {
        let mut bytes = part.bytes();
        !part.is_empty()
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte))
    })
}

/// Applies the CDI devices of a request to its specification.
pub(super) fn apply(request: &Request<'_>, spec: &mut Spec) -> Result<(), SpecError> {
    inject(request.host, request.cdi, asked(request.container)?, spec)
}

/// Applies CDI devices, by their qualified names, to a specification.
///
/// # Errors
/// If a device is not known, or what stands for it on the node cannot be read.
pub fn inject<'a>(
    host: &dyn Host,
    registry: &Registry,
    names: impl IntoIterator<Item = &'a str>,
    spec: &mut Spec,
) -> Result<(), SpecError> {
    let mut kinds = HashSet::new();
    for name in names {
        let (common, own) = registry.device(name)?;
        // The common edits of a file are applied once.
        if kinds.insert(name.split('=').next().unwrap_or("")) {
            edit(host, spec, common)?;
        }
        edit(host, spec, own)?;
    }
    Ok(())
}

fn edit(host: &dyn Host, spec: &mut Spec, edits: &Edits) -> Result<(), SpecError> {
    if let Some(process) = spec.process_mut() {
        let env = process.env_mut().get_or_insert_with(Vec::new);
        for pair in &edits.env {
            let name = pair.split('=').next().unwrap_or("");
            env.retain(|one| one.split('=').next() != Some(name));
            env.push(pair.clone());
        }
        let mut user = process.user().clone();
        let mut groups = user.additional_gids().clone().unwrap_or_default();
        for group in &edits.additional_gids {
            if *group != 0 && !groups.contains(group) {
                groups.push(*group);
            }
        }
        user.set_additional_gids(Some(groups));
        process.set_user(user);
    }
    for node in &edits.device_nodes {
        device_nodes::add(host, spec, node)?;
    }
    for device in &edits.net_devices {
        net_device(spec, device)?;
    }
    if let Some(rdt) = &edits.intel_rdt {
        set_rdt(spec, rdt)?;
    }
    let is_mapped = has_user_namespace(spec);
    let mounts = spec.mounts_mut().get_or_insert_with(Vec::new);
    for mount in &edits.mounts {
        let typ = mount.typ.as_deref().unwrap_or("bind");
        let mut options = mount.options.clone();
        if is_mapped {
            options.extend(id_mapping(typ, &options).map(str::to_owned));
        }
        let mut to = Mount::default();
        to.set_destination(mount.container_path.clone())
            .set_source(Some(mount.host_path.clone()))
            .set_typ(Some(typ.to_owned()))
            .set_options(Some(options));
        mounts.retain(|one| *one.destination() != mount.container_path);
        mounts.push(to);
    }
    mounts.sort_by_key(|mount| mount.destination().components().count());
    for hook in &edits.hooks {
        add_hook(spec, hook);
    }
    Ok(())
}

fn has_user_namespace(spec: &Spec) -> bool {
    let linux = spec.linux().as_ref();
    let namespaces = linux.and_then(|linux| linux.namespaces().as_ref());
    let mut namespaces = namespaces.into_iter().flatten();
    namespaces.any(|namespace| namespace.typ() == LinuxNamespaceType::User)
}

/// The option by which the files of a bind mount belong to the users of the pod's user namespace, unless the mount has it: as
/// the reference implementation after 1.1.0, which containerd 2.4 uses.
fn id_mapping(typ: &str, options: &[String]) -> Option<&'static str> {
    let mut mapping = (typ == "bind").then_some("idmap");
    for option in options {
        match option.as_str() {
            "idmap" | "ridmap" => return None,
            "bind" => mapping = Some("idmap"),
            "rbind" => mapping = Some("ridmap"),
            _ => {}
        }
    }
    mapping
}

/// Two devices of the node cannot have the same name in the container.
fn net_device(spec: &mut Spec, device: &NetDevice) -> Result<(), SpecError> {
    let Some(linux) = spec.linux_mut() else {
        return Ok(());
    };
    let all = linux.net_devices_mut().get_or_insert_default();
    let name = Some(&device.name);
    let mut others = all
        .iter()
        .filter(|(host, _)| **host != device.host_interface_name);
    if others.any(|(_, other)| other.name().as_ref() == name) {
        return Err(SpecError::Invalid(format!(
            "CDI devices: two network devices are {} in the container",
            device.name
        )));
    }
    let mut to = LinuxNetDevice::default();
    to.set_name(name.cloned());
    all.insert(device.host_interface_name.clone(), to);
    Ok(())
}

/// Like in the reference implementation, the last device of a container that has `intelRdt` replaces that of others.
fn set_rdt(spec: &mut Spec, rdt: &IntelRdt) -> Result<(), SpecError> {
    let to = serde_json::to_value(rdt).and_then(serde_json::from_value);
    let to = to.map_err(|error| SpecError::Invalid(format!("CDI intelRdt: {error}")))?;
    if let Some(linux) = spec.linux_mut() {
        linux.set_intel_rdt(Some(to));
    }
    Ok(())
}

fn add_hook(spec: &mut Spec, hook: &CdiHook) {
    let mut to = Hook::default();
    to.set_path(hook.path.clone())
        .set_args(hook.args.clone())
        .set_env(hook.env.clone())
        .set_timeout(hook.timeout);
    let hooks = spec.hooks_mut().get_or_insert_with(Hooks::default);
    let list = match hook.hook_name {
        HookName::Prestart => hooks.prestart_mut(),
        HookName::CreateRuntime => hooks.create_runtime_mut(),
        HookName::CreateContainer => hooks.create_container_mut(),
        HookName::StartContainer => hooks.start_container_mut(),
        HookName::Poststart => hooks.poststart_mut(),
        HookName::Poststop => hooks.poststop_mut(),
    };
    list.get_or_insert_with(Vec::new).push(to);
}
