//! PID namespaces: opened by the pid of a process, kept by a descriptor, joined by a pinned file.
//!
//! A pid can be reused as soon as its process is reaped. So it is used once, to open the namespace, and the parent that
//! reaps the process (the pod's shim) is queried afterwards: if the process is still unreaped, the pid was valid throughout.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::{Error, Kind, Pins, pin, run, unpin};

/// Prefix of the name of a pin for a container that shares the PID namespace of another container; followed by its id.
const TARGET: &str = "pid-of-";

/// Opens the PID namespace of a process, which may since have ended or been replaced.
///
/// # Errors
/// If there is no such process, or access is denied.
pub fn process_namespace(pid: u32) -> Result<File, Error> {
    let path = PathBuf::from(format!("/proc/{pid}/ns/pid"));
    File::open(&path).map_err(|error| Error::io("open", &path, error))
}

impl Pins {
    /// The path of the pinned PID namespace that a container shares with another one of its pod.
    #[must_use]
    pub fn target_path(&self, id: &str, container: &str) -> PathBuf {
        self.dir.join(id).join(format!("{TARGET}{container}"))
    }

    /// Pins the PID namespace of a pod. An existing pin is kept.
    ///
    /// # Errors
    /// If a system call fails.
    pub async fn pin_pid(&self, id: &str, namespace: File) -> Result<(), Error> {
        self.pod(id)?;
        let path = self.path(id, Kind::Pid);
        run("pin-namespace", move || hold(&path, &namespace)).await?
    }

    /// Pins the PID namespace that a container will share with another one.
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

    /// Removes the pin of [`Self::pin_target`], if there is one.
    ///
    /// # Errors
    /// If a system call fails.
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
        let made = making.recursive(true).mode(0o700).create(dir);
        made.map_err(|error| Error::io("make", dir, error))?;
    }
    // Left over from a reboot or a kill.
    unpin(path)?;
    let own = PathBuf::from(format!("/proc/self/fd/{}", namespace.as_raw_fd()));
    pin(path, &own).inspect_err(|_| {
        let _ = unpin(path);
    })
}

/// The pins for containers that share the namespace of another container.
pub(super) fn targets(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let named = entries.filter(|entry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| name.starts_with(TARGET))
    });
    named.map(|entry| entry.path()).collect()
}
