//! Device nodes, and the resources of the cgroup.

use std::path::Path;

use oci_spec::runtime::{LinuxDevice, LinuxDeviceType};

use super::hooks::is_plain_absolute;
use super::{FinishedSpec, Violation, violation};
use crate::oci::spec::resources::check_strings;

/// The highest numbers of a device that the kernel can store (`MINORBITS` is 20).
const MAX_MAJOR: i64 = (1 << 12) - 1;
const MAX_MINOR: i64 = (1 << 20) - 1;

/// Device nodes have a type, numbers and a path at which one can be made.
pub(super) fn check_devices(finished: &FinishedSpec<'_>) -> Result<(), Violation> {
    let devices = finished
        .linux()
        .and_then(|linux| linux.devices().as_deref());
    let devices = devices.unwrap_or_default();
    for (number, device) in devices.iter().enumerate() {
        let field = format!("linux.devices[{number}]");
        check_device(&field, device)?;
        if devices[..number]
            .iter()
            .any(|other| other.path() == device.path())
        {
            let reason = format!("{} is there twice", device.path().display());
            return violation(field, reason);
        }
    }
    Ok(())
}

fn check_device(field: &str, device: &LinuxDevice) -> Result<(), Violation> {
    let path = device.path();
    let special = ["/", "/dev", "/proc", "/sys"].map(Path::new);
    let is_special = special.into_iter().any(|dir| path == dir)
        || path.starts_with("/proc")
        || path.starts_with("/sys");
    if !is_plain_absolute(path) || is_special {
        return violation(
            format!("{field}.path"),
            format!("{path:?} cannot be a device node"),
        );
    }
    let numbered = match device.typ() {
        LinuxDeviceType::A => {
            let reason = format!(
                "{} is no block or character device and no pipe",
                path.display()
            );
            return violation(format!("{field}.type"), reason);
        }
        LinuxDeviceType::P => false,
        LinuxDeviceType::B | LinuxDeviceType::C | LinuxDeviceType::U => true,
    };
    let valid =
        (0..=MAX_MAJOR).contains(&device.major()) && (0..=MAX_MINOR).contains(&device.minor());
    if numbered && !valid {
        let reason = format!("{} has numbers that no device can have", path.display());
        return violation(field, reason);
    }
    Ok(())
}

/// A value that becomes a name or the content of a file of the cgroup must be valid as such, and rules of devices must be known to the kernel.
pub(super) fn check_resources(finished: &FinishedSpec<'_>) -> Result<(), Violation> {
    let Some(resources) = finished
        .linux()
        .and_then(|linux| linux.resources().as_ref())
    else {
        return Ok(());
    };
    if let Err(error) = check_strings(resources) {
        return violation("linux.resources", error.to_string());
    }
    for (number, rule) in resources.devices().iter().flatten().enumerate() {
        let field = format!("linux.resources.devices[{number}]");
        if matches!(rule.typ(), Some(LinuxDeviceType::U | LinuxDeviceType::P)) {
            return violation(field, "not a type of the device cgroup");
        }
        let access = rule.access().as_deref().unwrap_or_default();
        if access.chars().any(|letter| !"rwm".contains(letter)) {
            return violation(field, "access is not a subset of rwm");
        }
        let numbers = [(rule.major(), MAX_MAJOR), (rule.minor(), MAX_MINOR)];
        // -1 stands for all.
        let are_valid = numbers
            .iter()
            .all(|(number, most)| number.is_none_or(|number| (-1..=*most).contains(&number)));
        if !are_valid {
            return violation(field, "no device has such numbers");
        }
    }
    Ok(())
}
