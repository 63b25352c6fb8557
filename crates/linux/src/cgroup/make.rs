//! Creates cgroups for processes that must outlive the daemon: a service manager kills all processes in its cgroup.

use std::fs;
use std::io;
use std::path::Path;

use nix::errno::Errno;

use super::CgroupVersion;
use super::mounts::Hierarchies;
use super::{Cgroup, Error};

impl Hierarchies {
    /// Creates a cgroup in every hierarchy that allows it; hierarchies that are read-only, full or not permitted are
    /// skipped. An existing cgroup is not changed.
    ///
    /// # Errors
    /// The first error, if it could not be created in any hierarchy.
    pub fn make(&self, path: &Path) -> Result<Cgroup, Error> {
        let mut cgroup = self.at(path)?;
        let mut refused = None;
        cgroup.dirs.retain(|dir| {
            let cpuset = self.version() == CgroupVersion::V1
                && dir.controllers.iter().any(|name| name == "cpuset");
            match make(&dir.point, &dir.path, cpuset) {
                Ok(()) => true,
                Err(error) => {
                    refused.get_or_insert_with(|| Error::io("make", &dir.path, error));
                    false
                }
            }
        });
        match refused {
            Some(error) if cgroup.dirs.is_empty() => Err(error),
            _ => Ok(cgroup),
        }
    }
}

fn make(point: &Path, dir: &Path, cpuset: bool) -> io::Result<()> {
    let below = dir.strip_prefix(point).unwrap_or(dir);
    let mut at = point.to_owned();
    for part in below.components() {
        let above = at.clone();
        at.push(part);
        match fs::create_dir(&at) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        if cpuset {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                inherit(&above.join(file), &at.join(file))?;
            }
        }
    }
    Ok(())
}

/// A new cgroup of version 1's cpuset has no CPUs and memory nodes, and accepts no process until they are set.
fn inherit(from: &Path, to: &Path) -> io::Result<()> {
    if !fs::read_to_string(to)?.trim().is_empty() {
        return Ok(());
    }
    match fs::write(to, fs::read_to_string(from)?.trim()) {
        // Another process has set them concurrently, to fewer.
        Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) => Ok(()),
        done => done,
    }
}
