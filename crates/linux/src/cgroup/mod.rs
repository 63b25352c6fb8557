//! The node's cgroups: finds the hierarchies ([`Hierarchies`]) and the directories of a container or a pod ([`Cgroup`]),
//! creates cgroups, and removes the ones that were left behind.
//!
//! Version 1 has a hierarchy per controller, version 2 one for all. A hybrid node has both, with the controllers on version
//! 1: it counts as version 1, but its unified hierarchy is included, because OCI runtimes create directories there, too.
//! All functions block.

mod freezer;
mod make;
mod migration;
mod mounts;
mod place;
mod remove;
pub mod usage;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use self::freezer::thaw;
pub use self::mounts::{Hierarchies, Hierarchy};
pub use self::place::{container_path, pod_path, slice_path};
pub use self::remove::processes;

/// The cgroup version of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// One hierarchy per controller, including hybrid nodes.
    V1,
    /// The unified hierarchy.
    V2,
}

/// How cgroups of containers are created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupDriver {
    /// By the OCI runtime, as directories.
    Cgroupfs,
    /// By systemd, as scopes below slices.
    Systemd,
}

/// Why a cgroup cannot be found, created or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No cgroup file system is mounted.
    #[error("no cgroup file system is mounted")]
    NotMounted,
    /// No hierarchy has this cgroup, or there is no such process.
    #[error("{}: no such cgroup", path.display())]
    NotFound {
        /// The path below the hierarchy, or the file of the process.
        path: PathBuf,
    },
    /// An invalid path or name of a cgroup.
    #[error("{path:?} cannot be a cgroup: {reason}")]
    Invalid {
        /// The path or name.
        path: String,
        /// Why it is invalid.
        reason: &'static str,
    },
    /// The processes did not exit.
    #[error("{}: processes do not go away", path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl Error {
    fn invalid(path: &Path, reason: &'static str) -> Self {
        Self::Invalid {
            path: path.display().to_string(),
            reason,
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }
}

/// The directories of one cgroup: one with version 2, one per hierarchy with version 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    version: CgroupVersion,
    dirs: Vec<Dir>,
}

/// One directory of a cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Dir {
    /// The controllers of its hierarchy; none for the unified one.
    controllers: Vec<String>,
    /// The mount point of its hierarchy: nothing above it is ever changed.
    point: PathBuf,
    path: PathBuf,
}

impl Cgroup {
    /// A cgroup of version 2 by its directory, wherever the hierarchy is mounted.
    pub fn unified(point: impl Into<PathBuf>, dir: impl Into<PathBuf>) -> Self {
        Self {
            version: CgroupVersion::V2,
            dirs: vec![Dir {
                controllers: Vec::new(),
                point: point.into(),
                path: dir.into(),
            }],
        }
    }

    /// Version 2, or version 1 with its different files and units.
    #[must_use]
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// The directory with a controller's files; `None` if the controller is not mounted.
    #[must_use]
    pub fn dir(&self, controller: &str) -> Option<&Path> {
        let mut dirs = self.dirs.iter();
        let dir = match self.version {
            CgroupVersion::V2 => dirs.next(),
            CgroupVersion::V1 => dirs.find(|dir| dir.controllers.iter().any(|c| c == controller)),
        };
        dir.map(|dir| dir.path.as_path())
    }

    /// All directories, one per hierarchy, whether they exist or not.
    pub fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.dirs.iter().map(|dir| dir.path.as_path())
    }

    /// The cgroup above; `None` above the root of a hierarchy.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let dirs = self.dirs.iter().map(|dir| {
            let path = dir.path.parent()?;
            path.starts_with(&dir.point).then(|| Dir {
                path: path.to_owned(),
                ..dir.clone()
            })
        });
        Some(Self {
            version: self.version,
            dirs: dirs.collect::<Option<_>>()?,
        })
    }

    /// Returns whether it exists in any hierarchy.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.dirs().any(Path::is_dir)
    }

    /// Moves a process into it, in every hierarchy where it exists.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it does not exist in any.
    pub fn join(&self, pid: u32) -> Result<(), Error> {
        let mut joined = false;
        for dir in self.dirs().filter(|dir| dir.is_dir()) {
            let file = dir.join("cgroup.procs");
            fs::write(&file, pid.to_string())
                .map_err(|error| Error::io("move a process to", &file, error))?;
            joined = true;
        }
        if joined {
            Ok(())
        } else {
            Err(self.not_found())
        }
    }

    pub(crate) fn not_found(&self) -> Error {
        let path = self.dirs.first().map(|dir| dir.path.clone());
        Error::NotFound {
            path: path.unwrap_or_default(),
        }
    }
}
