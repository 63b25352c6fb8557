//! Removes the cgroups that the trial of an OCI runtime leaves below `/sys/fs/cgroup`.
//!
//! With cgroup v1, crun also makes a directory for each hierarchy that the kernel has and that is not mounted. It lies in the tmpfs
//! around the mount points, where files of a cgroup are plain ones, and crun does not remove it.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a cgroup may be busy after its processes have been killed.
const BUSY_CGROUP_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Where hierarchies are mounted, and the directories that exist there before a trial.
#[derive(Debug)]
pub(super) struct CgroupSnapshot<'a> {
    root: &'a Path,
    before: HashSet<OsString>,
}

impl<'a> CgroupSnapshot<'a> {
    pub(super) fn before(root: &'a Path) -> Self {
        let before = directories(root)
            .filter_map(|dir| Some(dir.file_name()?.to_owned()))
            .collect();
        Self { root, before }
    }

    /// Removes the cgroups of this name, which only the trial has used, and directories for hierarchies that did not exist before.
    pub(super) fn remove(self, name: &str) {
        let hierarchies: Vec<_> = directories(self.root).collect();
        for hierarchy in hierarchies.iter().map(PathBuf::as_path).chain([self.root]) {
            // A runtime leaves a busy cgroup as it is, too.
            let _ = remove(&hierarchy.join(name));
        }
        let new = hierarchies.iter().filter(|dir| {
            dir.file_name()
                .is_some_and(|name| !self.before.contains(name))
        });
        for dir in new {
            // Another program may use it by now; then it is not empty.
            let _ = fs::remove_dir(dir);
        }
    }
}

/// The directories in a directory, links left out.
fn directories(of: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(of).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
}

/// Removes a cgroup, or a directory with plain files. Its subdirectories are never touched.
fn remove(dir: &Path) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match fs::remove_dir(dir) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => break,
            Err(error)
                if error.kind() == ErrorKind::ResourceBusy
                    && began.elapsed() < BUSY_CGROUP_TIMEOUT =>
            {
                sleep(POLL_INTERVAL);
            }
            result => return result,
        }
    }
    for entry in fs::read_dir(dir)?.flatten() {
        if entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_dir(dir)
}
