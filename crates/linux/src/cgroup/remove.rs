//! Removes cgroups that were left behind: kills their processes, then removes the directories.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::CgroupVersion;
use super::freezer::thaw;
use super::mounts::gone;
use super::{Cgroup, Dir, Error};

/// Interval of the checks for remaining processes.
const PAUSE: Duration = Duration::from_millis(5);
/// Maximum depth of nested cgroups, which containers can create.
const DEPTH: usize = 32;

impl Cgroup {
    /// Kills the processes in the cgroup and its descendants, and removes them all. It succeeds if the cgroup does not
    /// exist.
    ///
    /// Waits up to `patience` for the processes to end.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the root of a hierarchy and for a cgroup of the caller, before any change; [`Error::Busy`] if
    /// processes remain.
    pub fn remove(&self, patience: Duration) -> Result<(), Error> {
        self.check()?;
        Self::retried(patience, || {
            for dir in self.dirs.iter().filter(|dir| dir.path.is_dir()) {
                end(self.version, dir)?;
            }
            self.remove_dirs()
        })
    }

    /// Removes the cgroup and its descendants if no process is left in them, without ending any. It succeeds if the cgroup
    /// does not exist.
    ///
    /// Retries for up to `patience`: the kernel answers `EBUSY` until the last process has been reaped.
    ///
    /// # Errors
    /// [`Error::Invalid`] as for [`Self::remove`]; [`Error::Busy`] if a cgroup still has processes.
    pub fn remove_empty(&self, patience: Duration) -> Result<(), Error> {
        if !self.exists() {
            return Ok(());
        }
        self.check()?;
        Self::retried(patience, || self.remove_dirs())
    }

    fn retried(patience: Duration, attempt: impl Fn() -> Result<(), Error>) -> Result<(), Error> {
        let deadline = Instant::now() + patience;
        loop {
            match attempt() {
                Err(Error::Busy { .. }) if Instant::now() < deadline => {
                    std::thread::sleep(PAUSE);
                }
                done => return done,
            }
        }
    }

    fn check(&self) -> Result<(), Error> {
        for dir in &self.dirs {
            if dir.path.components().eq(dir.point.components()) || !dir.path.starts_with(&dir.point)
            {
                return Err(Error::invalid(&dir.path, "it is the root of a hierarchy"));
            }
        }
        if processes(self)?.contains(&std::process::id()) {
            let path = self.dirs().next().unwrap_or(Path::new(""));
            return Err(Error::invalid(path, "the daemon itself is in it"));
        }
        Ok(())
    }

    /// One attempt to remove empty cgroups.
    fn remove_dirs(&self) -> Result<(), Error> {
        let mut busy = None;
        for dir in self.dirs.iter().filter(|dir| dir.path.is_dir()) {
            // From the bottom up.
            for path in tree(&dir.path).into_iter().rev() {
                match fs::remove_dir(&path) {
                    Ok(()) => {}
                    Err(error) if gone(&error) => {}
                    Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) => {
                        busy.get_or_insert(path);
                    }
                    Err(error) => return Err(Error::io("remove", &path, error)),
                }
            }
        }
        match busy {
            None => Ok(()),
            Some(path) => Err(Error::Busy { path }),
        }
    }
}

/// All processes in a cgroup and its descendants, in any hierarchy, without duplicates.
///
/// # Errors
/// If a list cannot be read; a cgroup that does not exist has no processes.
pub fn processes(cgroup: &Cgroup) -> Result<BTreeSet<u32>, Error> {
    let mut all = BTreeSet::new();
    for dir in cgroup.dirs() {
        for path in tree(dir) {
            all.extend(listed(&path)?);
        }
    }
    Ok(all)
}

fn end(version: CgroupVersion, dir: &Dir) -> Result<(), Error> {
    if version == CgroupVersion::V2 || dir.controllers.is_empty() {
        let file = dir.path.join("cgroup.kill");
        match fs::OpenOptions::new().write(true).open(&file) {
            Ok(mut file) => {
                use io::Write as _;
                // Also kills processes that are forked concurrently.
                if file.write_all(b"1").is_ok() {
                    return Ok(());
                }
            }
            // Linux before 5.14 does not have this file.
            Err(error) if gone(&error) => {}
            Err(error) => return Err(Error::io("open", &file, error)),
        }
    }
    for path in tree(&dir.path) {
        for pid in listed(&path)? {
            let Ok(pid) = i32::try_from(pid) else {
                continue;
            };
            // 0 is a process of another PID namespace; kill(2) takes it as the caller's process group.
            if pid > 1 {
                let _ended_meanwhile = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        // A process that version 1 has frozen only dies once it is thawed.
        let _gone_meanwhile = thaw(&path);
    }
    Ok(())
}

fn listed(dir: &Path) -> Result<Vec<u32>, Error> {
    let path = dir.join("cgroup.procs");
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.lines().filter_map(|line| line.parse().ok()).collect()),
        Err(error) if gone(&error) => Ok(Vec::new()),
        // A threaded cgroup: its processes are listed in its domain above.
        Err(error) if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => Ok(Vec::new()),
        Err(error) => Err(Error::io("read", &path, error)),
    }
}

/// A cgroup and its descendants, each after its parent.
pub(super) fn tree(dir: &Path) -> Vec<PathBuf> {
    fn walk(dir: PathBuf, depth: usize, found: &mut Vec<PathBuf>) {
        let entries = fs::read_dir(&dir);
        found.push(dir);
        let Ok(entries) = entries else {
            return;
        };
        for entry in entries.flatten() {
            if depth < DEPTH && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                walk(entry.path(), depth + 1, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(dir.to_owned(), 0, &mut found);
    found
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use crate::cgroup::{Cgroup, Error};

    #[test]
    fn only_an_empty_cgroup_is_removed_with_its_descendants() {
        let mount = tempfile::tempdir().expect("directory");
        let dir = mount.path().join("pod/c");
        fs::create_dir_all(dir.join("nested/deeper")).expect("create");
        let cgroup = Cgroup::unified(mount.path(), &dir);
        cgroup.remove_empty(Duration::ZERO).expect("removed");
        assert!(!dir.exists() && mount.path().join("pod").exists());
        cgroup.remove_empty(Duration::ZERO).expect("missing");
        let root = Cgroup::unified(mount.path(), mount.path());
        let refused = root.remove_empty(Duration::ZERO);
        assert!(matches!(refused, Err(Error::Invalid { .. })));
    }
}
