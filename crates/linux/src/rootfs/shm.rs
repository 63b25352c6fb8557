//! The `/dev/shm` shared by the containers of a pod.

use std::path::Path;

use nix::mount::{MsFlags, mount};

use super::error::{At as _, Error, Result};
use super::{context_option, make_dir, mounts};

/// The default of containerd and CRI-O: 64 MiB.
pub const SHM_SIZE: u64 = 64 << 20;

/// Empty files take kernel memory that the size does not limit: as many are allowed as files of one page fit.
const BYTES_PER_INODE: u64 = 4096;

/// Options of the mount.
#[derive(Debug, Clone)]
pub struct Shm {
    /// Size limit in bytes.
    pub size: u64,
    /// The user and group of the pod's root on the node.
    pub owner: (u32, u32),
    /// The SELinux label of all files in it.
    pub label: Option<String>,
}

impl Default for Shm {
    fn default() -> Self {
        Self {
            size: SHM_SIZE,
            owner: (0, 0),
            label: None,
        }
    }
}

/// Mounts it on `dir`, which is created. [`unmount`](super::unmount) removes it. It is world-writable and mounted with
/// `nodev` and `noexec`.
///
/// # Errors
/// [`Error::Exists`] if something is mounted there.
pub fn mount_shm(dir: &Path, shm: &Shm) -> Result<()> {
    make_dir(dir, 0o700)?;
    if mounts::is_mounted(dir)? {
        return Err(Error::Exists {
            path: dir.to_owned(),
        });
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let (uid, gid) = shm.owner;
    let (size, inodes) = (shm.size, shm.size / BYTES_PER_INODE);
    let mut options = format!("mode=1777,size={size},nr_inodes={inodes},uid={uid},gid={gid}");
    if let Some(label) = &shm.label {
        options.push_str(&context_option(label)?);
    }
    mount(
        Some("shm"),
        dir,
        Some("tmpfs"),
        flags,
        Some(options.as_str()),
    )
    .at("mount a tmpfs on", dir)
}
