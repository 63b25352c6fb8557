//! The root file system of a container: layers of an image below a directory of its own, and what else of it is mounted.
//!
//! All of a container lies in one directory, which must be on a file system overlayfs can write to:
//!
//! | path | what |
//! |---|---|
//! | `rootfs` | the overlay, the root of the container |
//! | `upper`, `work` | what the container writes, and room for the kernel; not with a read-only one |
//! | `empty/N` | empty layers, where overlayfs asks for more than there are |
//! | `volumes/N` | what is mounted at the `Volumes` of the image |
//!
//! The directory is for root alone (0700): an image may hold set-user-ID programs, and no user of the node may reach
//! them; but root of a pod with a user namespace may pass (0710, its group), as the OCI runtime looks for the root file
//! system with its rights. Every function blocks; what an image or a container made is never trusted to stay inside by itself.

mod clear;
mod copy;
mod error;
mod idmapped;
mod inside;
mod mounts;
mod overlay;
mod relabel;
mod shm;
mod volumes;

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

pub use self::clear::remove_tree;
pub use self::error::{Error, Result};
pub use self::idmapped::{IdMapped, bind};
pub use self::inside::open_in_root;
pub use self::mounts::{is_mounted, list_mounts_below, mounts_in_table, unmount};
pub use self::overlay::MAX_LAYERS;
pub use self::relabel::relabel;
pub use self::shm::{SHM_SIZE, Shm, mount_shm};
pub use self::volumes::prepare_volumes;

use self::error::At as _;

/// What is to be mounted.
#[derive(Debug, Clone, Default)]
pub struct MountRequest {
    /// The folders of the image's layers, from the bottom up. There may be none.
    pub layers: Vec<PathBuf>,
    /// Nothing can be written: for images that are volumes.
    pub read_only: bool,
    /// The SELinux label of all files in it.
    pub label: Option<String>,
    /// The user namespace of its pod, if it has one.
    pub ids: Option<IdMapped>,
}

/// The mount option for an SELinux label. Its categories have commas between them, so it is quoted, which has no escapes.
///
/// # Errors
/// [`Error::Invalid`] for what would end it and begin another option. Requests were checked before; this is the last place.
fn context_option(label: &str) -> Result<String> {
    let fits =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':' | b',');
    if !label.bytes().all(fits) {
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
    /// Nothing is touched yet.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.join("rootfs")
    }

    /// What the container has written, to be measured.
    #[must_use]
    pub fn upper(&self) -> PathBuf {
        self.dir.join("upper")
    }

    /// Mounts it, and returns where. On failure nothing stays of it. A kill leaves at most what [`remove`](Self::remove)
    /// takes away.
    ///
    /// # Errors
    /// [`Error::Exists`] if any part of it is there: it would show what an earlier container wrote.
    pub fn mount(&self, request: &MountRequest) -> Result<PathBuf> {
        make_dir(&self.dir, 0o700)?;
        // Also one that was there before.
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
        // This one decides between two that race: it is made by one alone.
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

    /// Whether it is mounted.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn is_mounted(&self) -> Result<bool> {
        is_mounted(&self.path())
    }

    /// Unmounts it and whatever else is mounted in its directory, also what is in use: processes that are in it keep it
    /// until they end. What was written stays. What is gone already is fine.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn unmount(&self) -> Result<()> {
        mounts::unmount_below(&self.dir)
    }

    /// Unmounts it and removes its directory with all that is in there, whatever the container made of it. What is gone
    /// already is fine, and what is half made too.
    ///
    /// # Errors
    /// When something cannot be unmounted or removed; the rest is removed all the same, and this may be called again.
    pub fn remove(&self) -> Result<()> {
        self.unmount()?;
        clear::remove_tree(&self.dir)
    }
}

/// Makes a directory, and those it is in. One that is there stays as it is.
fn make_dir(path: &Path, mode: u32) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).at("make", parent)?;
    }
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error).at("make", path),
        _ => Ok(()),
    }
}
