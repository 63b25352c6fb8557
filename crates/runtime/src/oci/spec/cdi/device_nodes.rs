//! Device nodes of CDI devices: what a file sets, and the rest from the node of the host, as the reference implementation
//! (`tags.cncf.io/container-device-interface`, `DeviceNode.fillMissingInfo`).

use oci_spec::runtime::{LinuxDevice, LinuxDeviceType, Spec, User};

use super::edits::Node;
use crate::oci::spec::devices;
use crate::oci::spec::error::SpecError;
use crate::oci::spec::facts::DeviceNode;
use crate::oci::spec::host::Host;

/// Adds a device node and the rule of the device cgroup, in place of a node of the same path.
pub(super) fn add(host: &dyn Host, spec: &mut Spec, node: &Node) -> Result<(), SpecError> {
    let user = spec
        .process()
        .as_ref()
        .map(|process| process.user().clone());
    let device = complete(host, node, &user.unwrap_or_default())?;
    let Some(linux) = spec.linux_mut() else {
        return Ok(());
    };
    let rule = match device.typ() {
        LinuxDeviceType::P => None,
        _ if node.permissions.is_empty() => None,
        typ => Some(devices::allow(
            typ,
            (device.major(), device.minor()),
            &node.permissions,
        )),
    };
    let all = linux.devices_mut().get_or_insert_with(Vec::new);
    all.retain(|one| one.path() != device.path());
    all.push(device);
    let resources = linux.resources_mut().get_or_insert_default();
    let rules = resources.devices_mut().get_or_insert_with(Vec::new);
    rules.extend(rule);
    Ok(())
}

/// The node, with the values that the file does not set. With a type and a major number, or as a FIFO, it need not exist on the host.
///
/// Nodes without an owner belong to the user of the container, as with the reference implementation, not to the owner on the host.
fn complete(host: &dyn Host, node: &Node, user: &User) -> Result<LinuxDevice, SpecError> {
    let own = match node.typ {
        Some(LinuxDeviceType::P) => Some((LinuxDeviceType::P, 0, 0)),
        Some(typ) if node.major != 0 => Some((typ, node.major.into(), node.minor.into())),
        _ => None,
    };
    let (found, (typ, major, minor)) = match (from_host(host, node), own) {
        (Ok(found), Some(own)) => (Some(found), own),
        (Ok(found), None) => {
            let numbers = numbers(node, &found)?;
            (Some(found), numbers)
        }
        (Err(_), Some(own)) => (None, own),
        (Err(error), None) => return Err(error),
    };
    let mut to = LinuxDevice::default();
    to.set_path(node.path.clone())
        .set_typ(typ)
        .set_major(major)
        .set_minor(minor)
        .set_file_mode(node.file_mode.or(found.map(|found| found.mode)))
        .set_uid(node.uid.or(Some(user.uid()).filter(|uid| *uid > 0)))
        .set_gid(node.gid.or(Some(user.gid()).filter(|gid| *gid > 0)));
    Ok(to)
}

fn from_host(host: &dyn Host, node: &Node) -> Result<DeviceNode, SpecError> {
    let path = node.host_path.as_ref().unwrap_or(&node.path);
    let found = host.devices(path).map_err(|source| SpecError::Io {
        path: path.clone(),
        source,
    })?;
    // The nodes below a directory have other paths.
    let found = found.into_iter().find(|found| found.path == *path);
    found.ok_or_else(|| SpecError::Invalid(format!("{} is not a device", path.display())))
}

/// The type and the numbers of the host's node, whose type must be the wanted one.
fn numbers(node: &Node, found: &DeviceNode) -> Result<(LinuxDeviceType, i64, i64), SpecError> {
    let typ = node.typ.unwrap_or(found.kind);
    let same = match typ {
        LinuxDeviceType::U => LinuxDeviceType::C,
        typ => typ,
    };
    if same != found.kind {
        return Err(SpecError::Invalid(format!(
            "CDI device node {}: the type is {}, and that of {} on the node {}",
            node.path.display(),
            typ.as_str(),
            found.path.display(),
            found.kind.as_str()
        )));
    }
    Ok(match found.kind {
        LinuxDeviceType::P => (typ, 0, 0),
        _ => (typ, found.major, found.minor),
    })
}
