//! RDT classes: shares of caches and of memory bandwidth (Intel RDT, AMD QoS), as groups of resctrl (`doc/rdt.md` of goresctrl,
//! `Documentation/arch/x86/resctrl.rst` of the kernel).
//!
//! ```text
//! file      the form of the configuration
//! share     one share of a cache or of bandwidth, and the bits or the number that it is
//! node      the caches and the bandwidth of this node, from resctrl
//! plan      the file on this node: the schemata of each class
//! group     writes them into groups of resctrl
//! ```

mod file;
mod group;
mod node;
mod plan;
mod share;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::file::RdtFile;
pub use self::node::Resctrl;
pub use self::plan::Plan;
use super::ClassFileError;
use super::annotations::Origin;

/// The class of the group of the whole system. The empty name is another one.
const SYSTEM: &str = "system/default";

/// Why a container cannot have a class, or the classes of a file cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum RdtError {
    /// There is no file.
    #[error("no classes are configured (runtime.rdt_config_file)")]
    NotConfigured,
    /// The node has no RDT, or resctrl is not mounted.
    #[error("resctrl is not mounted on this node (/sys/fs/resctrl)")]
    NotMounted,
    /// The file cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: ClassFileError,
    },
    /// The classes do not fit this node.
    #[error("{}: {reason}", path.display())]
    Plan {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// resctrl refuses a group.
    #[error("{}: {reason}", path.display())]
    Group {
        /// The file or directory of resctrl.
        path: PathBuf,
        /// The reason of the kernel.
        reason: String,
    },
    /// There is no such class.
    #[error("it is not defined in {}, and resctrl has no group of this name", file.display())]
    Undefined {
        /// The file.
        file: PathBuf,
    },
    /// The class may not be chosen by this annotation (`kubernetes` of the class).
    #[error("{} does not allow it for annotations of {of}", file.display())]
    Denied {
        /// The file.
        file: PathBuf,
        /// Pods or containers.
        of: &'static str,
    },
    /// The table of mounts cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl RdtError {
    /// Returns whether the node has no RDT classes at all.
    pub(super) fn is_not_enabled(&self) -> bool {
        matches!(self, Self::NotConfigured | Self::NotMounted)
    }
}

/// The classes that were written into resctrl.
#[derive(Debug)]
pub(super) struct Applied {
    root: PathBuf,
    file: RdtFile,
    /// The lines that were written into each group.
    schemata: BTreeMap<String, String>,
}

/// The RDT classes of the node.
#[derive(Debug)]
pub(super) struct Rdt {
    path: Option<PathBuf>,
    applied: Mutex<Option<Arc<Applied>>>,
}

impl Rdt {
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            applied: Mutex::default(),
        }
    }

    /// The classes after a reload, of the file that is configured then. Those that have changed are written into resctrl. No group is
    /// removed.
    ///
    /// # Errors
    /// If the file cannot be used, or the kernel refuses a class: written classes are taken back. A file that could not be used before
    /// either, and resctrl that is not mounted, are logged, and tried again for each container, as after a start.
    pub(super) fn after(&self, path: Option<&Path>) -> Result<Self, RdtError> {
        self.after_on(path, Resctrl::find)
    }

    fn after_on(
        &self,
        path: Option<&Path>,
        find: impl FnOnce() -> Result<Option<Resctrl>, RdtError>,
    ) -> Result<Self, RdtError> {
        let after = Self::new(path.map(Path::to_owned));
        let Some(path) = path else {
            return Ok(after);
        };
        let before = lock(&self.applied).clone();
        let applied = match find() {
            Ok(Some(resctrl)) => apply(path, resctrl, before.as_deref()),
            Ok(None) => read(path).and(Err(RdtError::NotMounted)),
            Err(error) => Err(error),
        };
        match applied {
            Ok(applied) => *lock(&after.applied) = Some(Arc::new(applied)),
            Err(error) => {
                let was_broken = before.is_none() && self.path.as_deref() == Some(path);
                if !was_broken && !error.is_not_enabled() {
                    return Err(error);
                }
                report(path, &error);
            }
        }
        Ok(after)
    }

    /// Writes the classes of the file into resctrl, unless that was done before. What failed is tried again: the file may have been
    /// mended, or resctrl mounted.
    pub(super) fn applied(&self) -> Result<Arc<Applied>, RdtError> {
        self.applied_on(Resctrl::find)
    }

    fn applied_on(
        &self,
        find: impl FnOnce() -> Result<Option<Resctrl>, RdtError>,
    ) -> Result<Arc<Applied>, RdtError> {
        let path = self.path.as_deref().ok_or(RdtError::NotConfigured)?;
        let mut applied = lock(&self.applied);
        if let Some(applied) = &*applied {
            return Ok(Arc::clone(applied));
        }
        let resctrl = find()?.ok_or(RdtError::NotMounted)?;
        let done = Arc::new(apply(path, resctrl, None)?);
        *applied = Some(Arc::clone(&done));
        Ok(done)
    }

    /// Returns the resctrl group (`closID`) of a class; `None` is the group of the whole system.
    pub(super) fn group(&self, class: &str, origin: Origin) -> Result<Option<String>, RdtError> {
        self.applied()?.group(class, origin, self.path.as_deref())
    }
}

/// Logs that the classes of a file cannot be used.
pub(super) fn report(path: &Path, error: &RdtError) {
    tracing::error!(target: "criscope::runtime::classes::rdt", event = "runtime.rdt", file = %path.display(), error.message = %error, "containers with an RDT class cannot be created");
}

/// A poisoned lock holds all or nothing too.
fn lock(applied: &Mutex<Option<Arc<Applied>>>) -> MutexGuard<'_, Option<Arc<Applied>>> {
    applied.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the classes of a file into resctrl, except the ones that were written `before`, which are written back if one fails.
fn apply(path: &Path, resctrl: Resctrl, before: Option<&Applied>) -> Result<Applied, RdtError> {
    let plan = plan(path, &resctrl)?;
    let root = resctrl.root;
    let before = before.filter(|before| before.root == root);
    let mut written = Vec::new();
    for (class, schemata) in &plan.schemata {
        let old = before.and_then(|before| before.schemata.get(class));
        let exists = is_system(class) || group::exists(&root, class);
        if exists && old == Some(schemata) {
            continue;
        }
        written.extend(old.map(|old| (class, old)));
        if let Err(error) = group::write(&root, class, schemata) {
            for (class, old) in written {
                if let Err(error) = group::write(&root, class, old) {
                    tracing::error!(target: "criscope::runtime::classes::rdt", event = "runtime.rdt", class, error.message = %error, "the shares of an RDT class cannot be set back");
                }
            }
            return Err(error);
        }
    }
    Ok(Applied {
        root,
        file: plan.file,
        schemata: plan.schemata,
    })
}

fn read(path: &Path) -> Result<RdtFile, RdtError> {
    RdtFile::read(path).map_err(|source| RdtError::File {
        path: path.to_owned(),
        source,
    })
}

/// Reads a file and plans its classes for a node, without changing anything.
///
/// # Errors
/// [`RdtError::File`] and [`RdtError::Plan`].
pub fn plan(path: &Path, resctrl: &Resctrl) -> Result<Plan, RdtError> {
    Plan::new(read(path)?, resctrl).map_err(|reason| RdtError::Plan {
        path: path.to_owned(),
        reason,
    })
}

impl Applied {
    fn group(
        &self,
        class: &str,
        origin: Origin,
        file: Option<&Path>,
    ) -> Result<Option<String>, RdtError> {
        let file = file.unwrap_or(Path::new(""));
        if let Some(found) = self.file.class(class) {
            let (denied, of) = match origin {
                Origin::Pod => (found.kubernetes.deny_pod_annotation, "pods"),
                Origin::Container => (found.kubernetes.deny_container_annotation, "containers"),
            };
            if denied {
                return Err(RdtError::Denied {
                    file: file.to_owned(),
                    of,
                });
            }
        }
        if is_system(class) {
            return Ok(None);
        }
        // Another program may have made the group, as with containerd and CRI-O.
        if file::is_name(class) && group::exists(&self.root, class) {
            Ok(Some(class.to_owned()))
        } else {
            Err(RdtError::Undefined {
                file: file.to_owned(),
            })
        }
    }
}

fn is_system(class: &str) -> bool {
    class.is_empty() || class == SYSTEM
}

#[cfg(test)]
mod tests;
