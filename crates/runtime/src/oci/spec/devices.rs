//! Device nodes and device cgroup rules.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use oci_spec::runtime::{LinuxDevice, LinuxDeviceCgroup, LinuxDeviceType};

use super::build::Request;
use super::error::SpecError;
use super::facts::DeviceNode;
use criscope_cri::v1::Int64Value;

/// Device nodes, and the rules of the device cgroup.
#[derive(Debug, Default)]
pub(super) struct Devices {
    pub(super) nodes: Vec<LinuxDevice>,
    pub(super) rules: Vec<LinuxDeviceCgroup>,
}

fn rule(
    allow: bool,
    typ: Option<LinuxDeviceType>,
    numbers: (Option<i64>, Option<i64>),
    access: &str,
) -> LinuxDeviceCgroup {
    let mut to = LinuxDeviceCgroup::default();
    to.set_allow(allow)
        .set_typ(typ)
        .set_major(numbers.0)
        .set_minor(numbers.1)
        .set_access(Some(access.to_owned()));
    to
}

/// The devices available to every container: null, zero, full, random, urandom, tty, ptmx, the terminals.
const COMMON: [(i64, Option<i64>); 8] = [
    (1, Some(3)),
    (1, Some(5)),
    (1, Some(7)),
    (1, Some(8)),
    (1, Some(9)),
    (5, Some(0)),
    (5, Some(2)),
    (136, None),
];

/// The devices of a container: those of the request; if privileged, the host's, unless its handler opts out.
pub(super) fn devices(request: &Request<'_>) -> Result<Devices, SpecError> {
    let handler = request.handler;
    let privileged = request.context().privileged;
    let host_devices = privileged && !handler.privileged_without_host_devices;
    let mut nodes: BTreeMap<PathBuf, LinuxDevice> = BTreeMap::new();
    let mut rules = vec![rule(false, None, (None, None), "rwm")];
    if host_devices {
        // Read for every container, because devices come and go.
        let dev = Path::new("/dev");
        let found = request.host.devices(dev);
        for node in found.map_err(|source| SpecError::Io {
            path: dev.to_owned(),
            source,
        })? {
            nodes.insert(node.path.clone(), linux_device(&node, node.path.clone()));
        }
    }
    if host_devices || (privileged && handler.privileged_without_host_devices_all_devices_allowed) {
        rules.push(rule(true, None, (None, None), "rwm"));
    } else {
        // Creating any device node is allowed: using it is subject to the other rules.
        for kind in [LinuxDeviceType::C, LinuxDeviceType::B] {
            rules.push(rule(true, Some(kind), (None, None), "m"));
        }
        for (major, minor) in COMMON {
            rules.push(rule(
                true,
                Some(LinuxDeviceType::C),
                (Some(major), minor),
                "rwm",
            ));
        }
    }
    for device in &request.container.devices {
        let access = checked_access(&device.permissions)?;
        let source = Path::new(&device.host_path);
        let target = Path::new(&device.container_path);
        for (node, target) in requested_nodes(request, source, target)? {
            let node = owned(request, node);
            rules.push(rule(
                true,
                Some(node.kind),
                (Some(node.major), Some(node.minor)),
                access,
            ));
            nodes.insert(target.clone(), linux_device(&node, target));
        }
    }
    Ok(Devices {
        nodes: nodes.into_values().collect(),
        rules,
    })
}

/// Sets the owner of a device to the user and group of the security context, if the node's policy requires this, so that
/// an unprivileged process can use it. In a user namespace the OCI runtime mounts the host's node, which keeps its owner.
fn owned(request: &Request<'_>, mut node: DeviceNode) -> DeviceNode {
    if !request.node.policy.device_ownership_from_security_context {
        return node;
    }
    let context = request.context();
    node.uid = requested_id(context.run_as_user.as_ref()).unwrap_or(node.uid);
    node.gid = requested_id(context.run_as_group.as_ref()).unwrap_or(node.gid);
    node
}

fn requested_id(id: Option<&Int64Value>) -> Option<u32> {
    u32::try_from(id?.value).ok()
}

fn checked_access(access: &str) -> Result<&str, SpecError> {
    if access.is_empty() {
        return Ok("rwm");
    }
    if access.chars().any(|letter| !"rwm".contains(letter)) {
        return Err(SpecError::Invalid(format!(
            "device permissions {access} are not a subset of rwm"
        )));
    }
    Ok(access)
}

/// Returns the device nodes of a host path with their paths in the container; for a directory all nodes below it.
fn requested_nodes(
    request: &Request<'_>,
    source: &Path,
    target: &Path,
) -> Result<Vec<(DeviceNode, PathBuf)>, SpecError> {
    if !is_plain_absolute(source) || !is_plain_absolute(target) {
        return Err(SpecError::Invalid(format!(
            "device {source:?} at {target:?}: both paths must be absolute, without `..` and control characters"
        )));
    }
    let resolved = request.host.resolve(source);
    let resolved = resolved
        .map_err(|error| io_error(source, error))?
        .ok_or_else(|| {
            SpecError::NotFound(format!("device {} does not exist", source.display()))
        })?;
    let found = request.host.devices(&resolved);
    let found = found.map_err(|error| io_error(source, error))?;
    if found.is_empty() {
        return Err(SpecError::Invalid(format!(
            "{} is not a device",
            source.display()
        )));
    }
    let placed = found.into_iter().map(|node| {
        let target = match node.path.strip_prefix(&resolved) {
            Ok(rest) if !rest.as_os_str().is_empty() => target.join(rest),
            _ => target.to_owned(),
        };
        (node, target)
    });
    Ok(placed.collect())
}

fn is_plain_absolute(path: &Path) -> bool {
    let text = path.to_string_lossy();
    let up = path.components().any(|part| part == Component::ParentDir);
    path.is_absolute() && !up && !text.contains(char::is_control)
}

fn io_error(path: &Path, source: std::io::Error) -> SpecError {
    SpecError::Io {
        path: path.to_owned(),
        source,
    }
}

pub(super) fn linux_device(node: &DeviceNode, path: PathBuf) -> LinuxDevice {
    let mut to = LinuxDevice::default();
    to.set_path(path)
        .set_typ(node.kind)
        .set_major(node.major)
        .set_minor(node.minor)
        .set_file_mode(Some(node.mode))
        .set_uid(Some(node.uid))
        .set_gid(Some(node.gid));
    to
}

/// The rule that allows a container to use a device.
pub(super) fn allow(
    typ: LinuxDeviceType,
    (major, minor): (i64, i64),
    access: &str,
) -> LinuxDeviceCgroup {
    // The device cgroup has one type of character devices.
    let typ = match typ {
        LinuxDeviceType::U => LinuxDeviceType::C,
        typ => typ,
    };
    rule(true, Some(typ), (Some(major), Some(minor)), access)
}
