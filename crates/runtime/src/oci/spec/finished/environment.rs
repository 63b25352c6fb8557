//! Fields that OCI runtimes read in addition to the container itself: sysctls, annotations, network devices and classes of RDT.

use std::collections::HashSet;

use oci_spec::runtime::LinuxNamespaceType;

use super::confinement::namespace;
use super::{FinishedSpec, Violation, violation};
use crate::oci::spec::annotations::{is_allowed_for, is_own};
use crate::oci::spec::cdi::{is_class_name, is_interface_name};
use crate::oci::spec::sysctl::{Own, dotted};

/// Sysctls belong to a namespace of the container or its pod. Others would change the node.
pub(super) fn check_sysctls(finished: &FinishedSpec<'_>) -> Result<(), Violation> {
    let own = Own {
        network: has_own_namespace(finished, LinuxNamespaceType::Network),
        uts: has_own_namespace(finished, LinuxNamespaceType::Uts),
        ipc: has_own_namespace(finished, LinuxNamespaceType::Ipc),
        users: has_own_namespace(finished, LinuxNamespaceType::User),
    };
    let sysctls = finished.linux().and_then(|linux| linux.sysctl().as_ref());
    for (name, value) in sysctls.into_iter().flatten() {
        let field = format!("linux.sysctl.{name}");
        if !own.has(&dotted(name)) {
            return violation(field, "not of a namespace of this container");
        }
        if value.contains(['\0', '\n']) {
            return violation(field, "the value has a zero byte or a line break");
        }
    }
    Ok(())
}

fn has_own_namespace(finished: &FinishedSpec<'_>, kind: LinuxNamespaceType) -> bool {
    let now = namespace(finished.linux(), kind);
    let requested = namespace(finished.requested_linux(), kind);
    // One that a plugin names by its path may be the node's.
    now.is_some_and(|namespace| namespace.path().is_none() || Some(namespace) == requested)
}

/// Annotations with which an OCI runtime reaches the node are the ones that the handler allows, no matter who sets them, and the ones that the
/// runtime sets itself are unchanged.
pub(super) fn check_annotations(finished: &FinishedSpec<'_>) -> Result<(), Violation> {
    let now = finished.spec.annotations().as_ref();
    let requested = finished.request.requested.annotations().as_ref();
    for (key, value) in now.into_iter().flatten() {
        if requested.and_then(|all| all.get(key)) == Some(value) {
            continue;
        }
        let field = format!("annotations.{key}");
        if is_own(key) {
            return violation(field, "only the runtime sets it");
        }
        if key.contains('\0') || value.contains('\0') {
            return violation(field, "it has a zero byte");
        }
        if !is_allowed_for(key, finished.request.handler) {
            let reason = "it changes the node, and the handler does not allow it";
            return violation(field, reason);
        }
    }
    let mut own = requested
        .into_iter()
        .flat_map(|all| all.keys())
        .filter(|key| is_own(key));
    match own.find(|key| now.is_none_or(|all| !all.contains_key(*key))) {
        Some(key) => violation(format!("annotations.{key}"), "it is missing"),
        None => Ok(()),
    }
}

/// Network devices have names that an interface can have, and no two have the same in the container.
pub(super) fn check_net_devices(finished: &FinishedSpec<'_>) -> Result<(), Violation> {
    let devices = finished
        .linux()
        .and_then(|linux| linux.net_devices().as_ref());
    let mut names = HashSet::new();
    for (host, device) in devices.into_iter().flatten() {
        let field = format!("linux.netDevices.{host}");
        // Without a name it keeps the node's.
        let name = device
            .name()
            .as_ref()
            .filter(|name| !name.is_empty())
            .unwrap_or(host);
        if !is_interface_name(host) || !is_interface_name(name) {
            return violation(field, "not the name of an interface");
        }
        if !names.insert(name) {
            return violation(field, format!("two devices are {name} in the container"));
        }
    }
    Ok(())
}

/// The class of RDT is the name of a directory of resctrl.
pub(super) fn check_rdt(finished: &FinishedSpec<'_>) -> Result<(), Violation> {
    let rdt = finished
        .linux()
        .and_then(|linux| linux.intel_rdt().as_ref());
    match rdt.and_then(|rdt| rdt.clos_id().as_deref()) {
        Some(class) if !is_class_name(class) => {
            violation("linux.intelRdt.closID", "not the name of a class")
        }
        _ => Ok(()),
    }
}
