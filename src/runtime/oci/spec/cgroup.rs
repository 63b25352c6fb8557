//! The cgroup path of a container.

use std::path::{Component, Path, PathBuf};

use super::error::SpecError;
use super::facts::CgroupDriver;

/// The prefix of the names of systemd scopes.
pub const CGROUP_PREFIX: &str = "criscope";

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
