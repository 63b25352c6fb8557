//! The cgroup path of a container, and the mount of its cgroups.

use std::path::{Component, Path, PathBuf};

use criscope_linux::mountinfo::unescape;
use oci_spec::runtime::Mount;

use super::build::Request;
use super::error::SpecError;
use super::facts::{CgroupDriver, CgroupVersion};
use super::mounts::mount;

/// The prefix of the names of systemd scopes.
pub const CGROUP_PREFIX: &str = "criscope";

/// Where cgroups are mounted, on the node and in containers.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";
/// Mount options of cgroup v2 that are a property of the whole hierarchy (kernel, admin-guide/cgroup-v2, "Mounting").
const HIERARCHY_OPTIONS: [&str; 6] = [
    "nsdelegate",
    "favordynmods",
    "memory_localevents",
    "memory_recursiveprot",
    "memory_hugetlb_accounting",
    "pids_localevents",
];

/// The mount of `/sys/fs/cgroup`: read-only, unless the container is privileged, or its handler has `cgroup_writable`.
///
/// A privileged container shares the cgroup namespace of the node. There a mount of cgroup v2 sets the options of the whole
/// hierarchy, so those of the node are repeated: without them the mount would turn off `nsdelegate` on the node.
pub(super) fn cgroup_mount(request: &Request<'_>) -> Mount {
    let privileged = request.context().privileged;
    let is_v2 = request.node.cgroup_version == CgroupVersion::V2;
    let writable = privileged || (is_v2 && request.handler.cgroup_writable);
    let write = if writable { "rw" } else { "ro" };
    let mut options = vec!["nosuid", "noexec", "nodev", "relatime", write];
    let table = Path::new("/proc/self/mountinfo");
    // A table that cannot be read is no reason to refuse the container.
    let mountinfo = if privileged && is_v2 {
        request.host.read(table).unwrap_or_default()
    } else {
        String::new()
    };
    let of_node = hierarchy_options(&mountinfo);
    options.extend(HIERARCHY_OPTIONS.iter().filter(|one| of_node.contains(one)));
    mount(CGROUP_ROOT, "cgroup", Path::new("cgroup"), &options)
}

/// The options of the file system mounted at `/sys/fs/cgroup`, from the text of `/proc/self/mountinfo`.
fn hierarchy_options(mountinfo: &str) -> Vec<&str> {
    // The last of several mounts at the same path is on top.
    let mut lines = mountinfo.lines().rev();
    let found = lines.find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?;
        let options = file_system.strip_prefix("cgroup2 ")?.split(' ').nth(1)?;
        (unescape(point.as_bytes()) == Path::new(CGROUP_ROOT)).then_some(options)
    });
    found.map_or_else(Vec::new, |list| list.split(',').collect())
}

/// Checks that the cgroup parent of a pod does not lead out of its tree.
///
/// # Errors
/// [`SpecError::Invalid`].
pub fn check_cgroup_parent(parent: &str) -> Result<(), SpecError> {
    let up = Path::new(parent)
        .components()
        .any(|part| part == Component::ParentDir);
    // Colons separate the parts of `slice:prefix:id`.
    if up || parent.contains(|c: char| c.is_control() || c == ':') {
        return Err(SpecError::Invalid(
            "cgroup parent: a path with `..`, `:` or control characters".to_owned(),
        ));
    }
    Ok(())
}

/// `linux.cgroupsPath`: `slice:prefix:id` for systemd, `parent/id` otherwise.
///
/// With the systemd driver the parent must be a slice: the kubelet sends one when it uses the same driver, and two
/// drivers on one node interfere with each other's cgroups.
pub fn cgroup_path(parent: &str, id: &str, driver: CgroupDriver) -> Result<PathBuf, SpecError> {
    check_cgroup_parent(parent)?;
    match driver {
        CgroupDriver::Cgroupfs => Ok(Path::new("/").join(parent).join(id)),
        CgroupDriver::Systemd if parent.is_empty() => {
            Ok(PathBuf::from(format!("system.slice:{CGROUP_PREFIX}:{id}")))
        }
        CgroupDriver::Systemd => {
            let base = parent
                .trim_end_matches('/')
                .rsplit('/')
                .next()
                .unwrap_or("");
            if !base.ends_with(".slice") {
                return Err(SpecError::Invalid(format!(
                    "cgroup parent {parent} is not a slice: the kubelet's cgroup driver must be systemd like ours"
                )));
            }
            Ok(PathBuf::from(format!("{base}:{CGROUP_PREFIX}:{id}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CgroupDriver, cgroup_path};

    #[test]
    fn cgroup_paths_follow_the_driver() {
        use CgroupDriver::{Cgroupfs, Systemd};
        for (parent, driver, expected) in [
            ("/kubepods/pod1", Cgroupfs, Some("/kubepods/pod1/c")),
            ("kubepods", Cgroupfs, Some("/kubepods/c")),
            ("", Cgroupfs, Some("/c")),
            (
                "/kubepods.slice/kubepods-pod1.slice",
                Systemd,
                Some("kubepods-pod1.slice:criscope:c"),
            ),
            ("", Systemd, Some("system.slice:criscope:c")),
            ("/kubepods/pod1", Systemd, None),
            ("/kubepods/../system.slice", Cgroupfs, None),
            ("a.slice/../b.slice", Systemd, None),
            ("a.slice:x:b.slice", Systemd, None),
            ("a\n.slice", Systemd, None),
        ] {
            let path = cgroup_path(parent, "c", driver).ok();
            assert_eq!(
                path.as_deref(),
                expected.map(std::path::Path::new),
                "{parent}"
            );
        }
    }
}
