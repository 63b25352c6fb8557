//! The cgroup paths of pods and containers, for both drivers.

use std::path::{Path, PathBuf};

use super::CgroupDriver;
use super::Error;

/// The cgroup of a container by the `linux.cgroupsPath` of its OCI runtime: the path itself with cgroupfs; with systemd
/// `SLICE:PREFIX:ID`, which means the scope `PREFIX-ID.scope` in that slice.
///
/// # Errors
/// [`Error::Invalid`] if it does not have the form of the driver.
pub fn container_path(cgroups_path: &Path, driver: CgroupDriver) -> Result<PathBuf, Error> {
    if driver == CgroupDriver::Cgroupfs {
        return Ok(cgroups_path.to_owned());
    }
    let text = cgroups_path.to_string_lossy();
    let parts: Vec<_> = text.split(':').collect();
    let &[slice, prefix, id] = parts.as_slice() else {
        return Err(Error::invalid(cgroups_path, "it is not slice:prefix:id"));
    };
    if id.is_empty() || text.contains('/') {
        return Err(Error::invalid(cgroups_path, "it names no scope"));
    }
    let slice = if slice.is_empty() {
        "system.slice"
    } else {
        slice
    };
    let scope = match prefix {
        "" => format!("{id}.scope"),
        prefix => format!("{prefix}-{id}.scope"),
    };
    Ok(slice_path(slice)?.join(scope))
}

/// The cgroup of a pod by the parent in its configuration: the path itself with cgroupfs; with systemd its last component,
/// a slice.
///
/// # Errors
/// [`Error::Invalid`] without a parent, and with systemd for a parent that is not a slice.
pub fn pod_path(parent: &str, driver: CgroupDriver) -> Result<PathBuf, Error> {
    let trimmed = parent.trim_end_matches('/');
    if trimmed.is_empty() {
        return Err(Error::Invalid {
            path: parent.to_owned(),
            reason: "the pod has no cgroup of its own",
        });
    }
    match driver {
        CgroupDriver::Cgroupfs => Ok(PathBuf::from(trimmed)),
        CgroupDriver::Systemd => slice_path(trimmed.rsplit('/').next().unwrap_or("")),
    }
}

/// The path of a slice: each `-` is one more level, `a-b.slice` is `a.slice/a-b.slice` (systemd.slice(5)).
///
/// # Errors
/// [`Error::Invalid`] for an invalid name of a slice.
pub fn slice_path(slice: &str) -> Result<PathBuf, Error> {
    let Some(name) = slice.strip_suffix(".slice") else {
        return Err(Error::invalid(Path::new(slice), "it is no slice"));
    };
    if name == "-" {
        return Ok(PathBuf::new());
    }
    if name.contains('/') || name.split('-').any(str::is_empty) {
        let reason = "no slice can have this name";
        return Err(Error::invalid(Path::new(slice), reason));
    }
    let ends = name.match_indices('-').map(|(at, _)| at);
    let levels = ends
        .chain([name.len()])
        .map(|end| format!("{}.slice", &name[..end]));
    Ok(levels.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slice_names_expand_to_nested_paths() {
        for (slice, path) in [
            ("a.slice", Some("a.slice")),
            ("a-b.slice", Some("a.slice/a-b.slice")),
            (
                "kubepods-burstable-pod1_2.slice",
                Some("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice"),
            ),
            ("-.slice", Some("")),
            ("a", None),
            (".slice", None),
            ("a--b.slice", None),
            ("-a.slice", None),
            ("a-.slice", None),
            ("a/b.slice", None),
        ] {
            assert_eq!(slice_path(slice).ok(), path.map(PathBuf::from), "{slice}");
        }
    }

    #[test]
    fn cgroup_paths_follow_the_driver() {
        use CgroupDriver::{Cgroupfs, Systemd};
        for (path, driver, place) in [
            ("/kubepods/pod1/c", Cgroupfs, Some("/kubepods/pod1/c")),
            (
                "kubepods-pod1.slice:criscope:c",
                Systemd,
                Some("kubepods.slice/kubepods-pod1.slice/criscope-c.scope"),
            ),
            (
                ":criscope:c",
                Systemd,
                Some("system.slice/criscope-c.scope"),
            ),
            ("/kubepods/c", Systemd, None),
            ("a.slice:criscope:", Systemd, None),
            ("a.slice:criscope:../c", Systemd, None),
        ] {
            let found = container_path(Path::new(path), driver).ok();
            assert_eq!(found, place.map(PathBuf::from), "{path}");
        }
        for (parent, driver, place) in [
            ("/kubepods/pod1/", Cgroupfs, Some("/kubepods/pod1")),
            ("/x/a.slice/a-b.slice", Systemd, Some("a.slice/a-b.slice")),
            ("/kubepods/pod1", Systemd, None),
            ("", Cgroupfs, None),
            ("/", Systemd, None),
        ] {
            let found = pod_path(parent, driver).ok();
            assert_eq!(found, place.map(PathBuf::from), "{parent}");
        }
    }
}
