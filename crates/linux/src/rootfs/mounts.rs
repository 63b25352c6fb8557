//! Queries and removes mounts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

use crate::mountinfo::unescape;

use super::error::{At as _, Error, Result};

/// Maximum number of mounts stacked on one path; the limit prevents an endless loop.
const MAX_STACKED: usize = 64;

/// Returns whether something is mounted on `path`; `false` if the path does not exist.
///
/// # Errors
/// If the system call fails.
pub fn is_mounted(path: &Path) -> Result<bool> {
    match statx(
        CWD,
        path,
        AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT,
        StatxFlags::empty(),
    ) {
        Ok(stat) => Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(false),
        Err(error) => Err(error).at("ask what is mounted on", path),
    }
}

/// The mount points below `dir`, in the order of mounting; stacked mounts are repeated. Mounts on `dir` itself are not
/// included.
///
/// # Errors
/// If the kernel's table cannot be read.
pub fn list_mounts_below(dir: &Path) -> Result<Vec<PathBuf>> {
    // The table contains paths without symbolic links.
    let real = match fs::canonicalize(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        real => real.at("find", dir)?,
    };
    let table = Path::new("/proc/self/mountinfo");
    let text = fs::read(table).at("read", table)?;
    Ok(mounts_in_table(&text, &real))
}

/// The mount points below `dir` in a table with the format of `/proc/self/mountinfo` (proc_pid_mountinfo(5)), in its order.
#[must_use]
pub fn mounts_in_table(table: &[u8], dir: &Path) -> Vec<PathBuf> {
    let points = table
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(unescape);
    points
        .filter(|point| point != dir && point.starts_with(dir))
        .collect()
}

/// Unmounts all mounts that are stacked on `path`, even if they are in use. It succeeds if there are none.
///
/// # Errors
/// If a system call fails.
pub fn unmount(path: &Path) -> Result<()> {
    for _ in 0..MAX_STACKED {
        match umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => {}
            // Not a mount point, or no such path.
            Err(Errno::EINVAL | Errno::ENOENT | Errno::ENOTDIR) => return Ok(()),
            Err(error) => return Err(error).at("unmount", path),
        }
    }
    Err(Error::Io {
        action: "unmount all that lies on",
        path: path.to_owned(),
        source: Errno::EBUSY.into(),
    })
}

/// Unmounts everything below `dir`. It reads the kernel's table, which has a line for every mount of the node.
///
/// Unmounting detaches nested mounts, too, so the shortest path comes first: its components are trusted, while deeper paths
/// contain directories of the container, which may have been replaced by links.
pub(super) fn unmount_below(dir: &Path) -> Result<()> {
    let mut left = list_mounts_below(dir)?;
    while let Some(point) = left
        .iter()
        .min_by_key(|point| point.components().count())
        .cloned()
    {
        unmount(&point)?;
        let now = list_mounts_below(dir)?;
        if now.len() >= left.len() {
            return Err(Errno::EBUSY).at("unmount", &point);
        }
        left = now;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 0:20 / / rw,relatime - ext4 /dev/vda rw\n\
        30 22 0:30 / /c/a rw - overlay overlay rw\n\
        31 30 0:31 / /c/a/with\\040space\\134n rw - tmpfs tmpfs rw\n\
        32 22 0:32 / /c/ab rw shared:1 - overlay overlay rw\n\
        33 30 0:33 / /c/a rw - overlay overlay rw\n\
        garbage\n";

    #[test]
    fn mount_points_below_a_directory_are_parsed_from_mountinfo() {
        let found = |dir: &str| mounts_in_table(TABLE, Path::new(dir));
        assert_eq!(
            found("/c"),
            [
                PathBuf::from("/c/a"),
                "/c/a/with space\\n".into(),
                "/c/ab".into(),
                "/c/a".into()
            ]
        );
        assert_eq!(found("/c/a"), [PathBuf::from("/c/a/with space\\n")]);
        assert!(found("/c/abc").is_empty());
    }
}
