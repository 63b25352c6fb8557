//! The root file system of a container: layers of an image below a writable directory, and its other mounts.
//!
//! All files of a container are in one directory, on a file system that supports being an overlayfs upper layer:
//!
//! | path | contents |
//! |---|---|
//! | `rootfs` | the overlay, the root of the container |
//! | `upper`, `work` | the container's changes, and the kernel's work directory; absent if the root is read-only |
//! | `empty/N` | empty layers, where overlayfs requires more layers than the image has |
//! | `volumes/N` | the directories mounted at the `Volumes` of the image |
//! | `images/N` | the same as this directory, for each image that is mounted as a volume |
//! | `mapped/N` | id-mapped mounts of the pod's volumes |
//!
//! The directory is accessible to root only (0700), because an image may contain set-user-ID programs that users of the
//! node must not reach; root of a pod with a user namespace may traverse it (0710, with its group), because the OCI runtime
//! looks up the root file system with its privileges. All functions block. Paths that an image or a container created are
//! never trusted to stay inside.

mod budget;
mod clear;
mod copy;
mod error;
mod idmapped;
mod inside;
mod kernel_dirs;
mod mounts;
mod overlay;
mod relabel;
mod shm;
mod view;
mod volumes;
mod working_directory;

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

pub use self::budget::{CopyLimit, VolumeLimits};
pub use self::clear::remove_tree;
pub use self::error::{Error, Result};
pub use self::idmapped::{IdMapped, bind};
pub use self::inside::{open_below, open_in_root};
pub use self::kernel_dirs::{check_kernel_dirs, kernel_dir};
pub use self::mounts::{is_mounted, list_mounts_below, mounts_in_table, unmount};
pub use self::overlay::{MAX_LAYERS, MAX_LISTED_LAYERS};
pub use self::relabel::relabel;
pub use self::shm::{SHM_SIZE, Shm, mount_shm};
pub use self::view::{ContainerView, lexical};
pub use self::volumes::prepare_volumes;

use self::error::At as _;

/// The directory of images that are mounted as volumes, in a container's directory.
pub const IMAGES: &str = "images";
/// The directory of id-mapped mounts.
pub const MAPPED: &str = "mapped";

/// The mount to create.
#[derive(Debug, Clone, Default)]
pub struct MountRequest {
    /// The directories of the image's layers, from the bottom up. May be empty, and contain a directory more than once.
    pub layers: Vec<PathBuf>,
    /// Read-only: for images that are mounted as volumes.
    pub read_only: bool,
    /// The SELinux label of all files in it.
    pub label: Option<String>,
    /// The user namespace of its pod, if it has one.
    pub ids: Option<IdMapped>,
}

/// The mount option for an SELinux label. Its categories are separated by commas, so it is quoted, and there are no
/// escapes.
///
/// # Errors
/// [`Error::Invalid`] for a label that would end the quotes and add an option. Requests are validated before; this is the
/// last check.
fn context_option(label: &str) -> Result<String> {
    let is_plain = label.bytes().all(|byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':' | b',')
    });
    if !is_plain {
        return Err(Error::Invalid(
            "an SELinux label with characters that no label has".to_owned(),
        ));
    }
    Ok(format!(",context=\"{label}\""))
}

/// The root file system of one container, by its directory.
#[derive(Debug, Clone)]
pub struct Rootfs {
    dir: PathBuf,
}

impl Rootfs {
    /// Represents `dir`, without accessing the file system.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The mount point.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.join("rootfs")
    }

    /// The directory of the container's changes to its image.
    #[must_use]
    pub fn upper(&self) -> PathBuf {
        self.dir.join("upper")
    }

    /// The directories on the disk that the container can fill, for disk usage statistics: its changes, those in progress, and the
    /// volumes of its image. A container need not have all of them.
    #[must_use]
    pub fn written_dirs(&self) -> Vec<PathBuf> {
        let parts = ["upper", "work", volumes::VOLUMES];
        parts.map(|part| self.dir.join(part)).to_vec()
    }

    /// Mounts it, and returns the mount point. A failure is rolled back. After a kill, [`remove`](Self::remove) removes
    /// everything that is left.
    ///
    /// # Errors
    /// [`Error::Exists`] if any part of it exists: it would expose the files of an earlier container.
    pub fn mount(&self, request: &MountRequest) -> Result<PathBuf> {
        make_dir(&self.dir, 0o700)?;
        // Also fixes the mode of an existing directory.
        let (group, mode) = match &request.ids {
            Some(ids) => (ids.mappings.host(0, 0).1, 0o710),
            None => (0, 0o700),
        };
        chown(&self.dir, Some(0), Some(group)).at("set the owner of", &self.dir)?;
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(&self.dir, mode).at("set the mode of", &self.dir)?;
        let parts = overlay::PARTS.map(|part| self.dir.join(part));
        if let Some(path) = parts.iter().find(|part| part.exists()) {
            return Err(Error::Exists { path: path.clone() });
        }
        let point = self.path();
        // Creating this directory decides a race between two callers.
        match fs::DirBuilder::new().mode(0o700).create(&point) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Error::Exists { path: point });
            }
            made => made.at("make", &point)?,
        }
        match overlay::mount(&self.dir, &point, request) {
            Ok(()) => Ok(point),
            Err(error) => {
                for part in parts {
                    let _ = clear::remove_tree(&part);
                }
                let _ = fs::remove_dir(&point);
                Err(error)
            }
        }
    }

    /// Returns whether it is mounted.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn is_mounted(&self) -> Result<bool> {
        is_mounted(&self.path())
    }

    /// Unmounts it, and the mounts in [`IMAGES`] and [`MAPPED`], even if they are in use: processes in them keep them until
    /// they end. Mounts below them go with them. The container's changes are kept. It succeeds if nothing is mounted.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn unmount(&self) -> Result<()> {
        unmount(&self.path())?;
        for image in entries(&self.dir.join(IMAGES))? {
            unmount(&Self::new(image).path())?;
        }
        for mapped in entries(&self.dir.join(MAPPED))? {
            unmount(&mapped)?;
        }
        Ok(())
    }

    /// Unmounts everything in its directory and removes it with all contents. It succeeds if the directory does not exist
    /// or is incomplete.
    ///
    /// # Errors
    /// If something cannot be unmounted or removed; the rest is still removed, and the call can be repeated.
    pub fn remove(&self) -> Result<()> {
        self.unmount()?;
        // The unmount stops at a mount that another program has made. Only then is the table of all mounts worth its time.
        clear::remove_tree(&self.dir).or_else(|_| {
            mounts::unmount_below(&self.dir)?;
            clear::remove_tree(&self.dir)
        })
    }
}

/// The entries of a directory that only the daemon writes to; none if there is no such directory.
fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let found = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.at("read", dir)?,
    };
    found
        .map(|entry| entry.at("read", dir).map(|entry| entry.path()))
        .collect()
}

/// Creates a directory and its parents. An existing one is not changed.
fn make_dir(path: &Path, mode: u32) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).at("make", parent)?;
    }
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error).at("make", path),
        _ => Ok(()),
    }
}
