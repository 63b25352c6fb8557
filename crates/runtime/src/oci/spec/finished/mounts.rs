//! Mounts: those of the request are all there and can be seen, and nothing takes the place of `/proc` and `/sys`.

use std::path::Path;

use oci_spec::runtime::Mount;

use super::hooks::is_plain_absolute;
use super::{FinishedSpec, Violation, violation};

/// Files of procfs on which other file systems than procfs may be mounted, such as LXCFS. They are the ones that runc accepts.
const REPLACEABLE_IN_PROC: [&str; 12] = [
    "/proc/cpuinfo",
    "/proc/diskstats",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/net/dev",
    "/proc/slabinfo",
    "/proc/stat",
    "/proc/swaps",
    "/proc/sys/crypto/fips_enabled",
    "/proc/sys/kernel/cap_last_cap",
    "/proc/sys/kernel/ns_last_pid",
    "/proc/uptime",
];

/// The mounts of the request.
fn requested<'a>(finished: &FinishedSpec<'a>) -> &'a [Mount] {
    finished
        .request
        .requested
        .mounts()
        .as_deref()
        .unwrap_or_default()
}

/// The mounts of the request in whose place there is another one.
pub(super) fn replaced<'a>(finished: &FinishedSpec<'a>) -> impl Iterator<Item = &'a Path> {
    let now = finished.spec.mounts().as_deref().unwrap_or_default();
    let gone = requested(finished)
        .iter()
        .filter(|mount| !now.contains(mount));
    gone.map(|mount| mount.destination().as_path())
}

/// Added mounts are well formed, replace neither `/proc` nor `/sys` and hide no mount of the request, and all of them are there.
pub(super) fn check(finished: &FinishedSpec<'_>) -> Result<(), Violation> {
    let requested = requested(finished);
    let now = finished.spec.mounts().as_deref().unwrap_or_default();
    for (number, mount) in now.iter().enumerate() {
        if requested.contains(mount) {
            continue;
        }
        let field = format!("mounts[{number}]");
        check_added(&field, mount)?;
        let to = mount.destination();
        let hidden = now[..number].iter().map(Mount::destination);
        let mut hidden = hidden.filter(|before| before.starts_with(to));
        if let Some(before) = hidden.next() {
            let reason = format!(
                "a mount at {} hides that at {}",
                to.display(),
                before.display()
            );
            return violation(field, reason);
        }
    }
    for mount in requested {
        let at = mount.destination();
        if !now.iter().any(|other| other.destination() == at) {
            let reason = format!("the mount of the request at {} is missing", at.display());
            return violation("mounts", reason);
        }
    }
    Ok(())
}

fn check_added(field: &str, mount: &Mount) -> Result<(), Violation> {
    let to = mount.destination();
    let at = to.display();
    if !is_plain_absolute(to) {
        let reason = format!("{to:?} is not an absolute path without `..` and control characters");
        return violation(format!("{field}.destination"), reason);
    }
    let replaces_proc =
        to.starts_with("/proc") && !REPLACEABLE_IN_PROC.iter().any(|path| to == Path::new(path));
    if to == Path::new("/") || to == Path::new("/sys") || replaces_proc {
        return violation(
            format!("{field}.destination"),
            format!("nothing may be mounted at {at}"),
        );
    }
    let options = mount.options().as_deref().unwrap_or_default();
    let words = options.iter().chain(mount.typ());
    if words
        .into_iter()
        .any(|word| word.contains(char::is_control))
    {
        let reason = format!("type or options of the mount at {at} have control characters");
        return violation(field, reason);
    }
    let binds = options
        .iter()
        .any(|option| option == "bind" || option == "rbind");
    if !binds && mount.typ().as_deref() != Some("bind") {
        return Ok(());
    }
    // The OCI runtime would look for another one in the bundle, where the image's files are.
    match mount.source() {
        Some(source) if is_plain_absolute(source) => Ok(()),
        _ => violation(
            format!("{field}.source"),
            format!("that of the mount at {at} is not an absolute path without `..`"),
        ),
    }
}
