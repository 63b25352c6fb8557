//! PID namespaces: found by the number of a process, held by a descriptor, joined by a pin.
//!
//! A number is somebody else's as soon as its process was reaped. So it is used once, to open the namespace, and whoever reaps
//! the process (the pod's shim) is asked afterwards whether it still has it: then it had it all the time.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::{Error, Kind, Pins, pin, run, unpin};

/// Before the id of a container in the name of a pin: that of the PID namespace it shares with another container.
const TARGET: &str = "pid-of-";

/// The PID namespace of a process, which may have ended meanwhile, or be another one.
///
/// # Errors
/// There is no such process, or it may not be asked.
pub fn of_process(pid: u32) -> Result<File, Error> {
    let path = PathBuf::from(format!("/proc/{pid}/ns/pid"));
    File::open(&path).map_err(|error| Error::io("open", &path, error))
}

impl Pins {
    /// Where the PID namespace is mounted that a container shares with another one of its pod.
    #[must_use]
    pub fn target_path(&self, id: &str, container: &str) -> PathBuf {
        self.dir.join(id).join(format!("{TARGET}{container}"))
    }

    /// Pins the PID namespace of a pod. One that is pinned already stays.
    ///
    /// # Errors
    /// When the kernel or the file system refuses.
    pub async fn pin_pid(&self, id: &str, namespace: File) -> Result<(), Error> {
        self.pod(id)?;
        let path = self.path(id, Kind::Pid);
        run("pin-namespace", move || hold(&path, &namespace)).await?
    }

    /// Pins the PID namespace that a container is to share with another one.
    ///
    /// # Errors
    /// As [`Self::pin_pid`].
    pub async fn pin_target(
        &self,
        id: &str,
        container: &str,
        namespace: File,
    ) -> Result<PathBuf, Error> {
        self.pod(id)?;
        let path = self.target_path(id, container);
        let target = path.clone();
        run("pin-namespace", move || hold(&path, &namespace)).await??;
        Ok(target)
    }

    /// Unpins what [`Self::pin_target`] pinned, if it did.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn unpin_target(&self, id: &str, container: &str) -> Result<(), Error> {
        self.pod(id)?;
        unpin(&self.target_path(id, container))
    }
}

fn hold(path: &Path, namespace: &File) -> Result<(), Error> {
    if super::open(path).is_ok() {
        return Ok(());
    }
    if let Some(dir) = path.parent() {
        let mut making = fs::DirBuilder::new();
        let made = making.recursive(true).mode(0o711).create(dir);
        made.map_err(|error| Error::io("make", dir, error))?;
    }
    // What a reboot or a kill left.
    unpin(path)?;
    let own = PathBuf::from(format!("/proc/self/fd/{}", namespace.as_raw_fd()));
    pin(path, &own).inspect_err(|_| {
        let _ = unpin(path);
    })
}

/// The pins of namespaces that containers share with others.
pub(super) fn targets(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let named = entries.filter(|entry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| name.starts_with(TARGET))
    });
    named.map(|entry| entry.path()).collect()
}
