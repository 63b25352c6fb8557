//! Access to the machine, for the rules of a specification.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use criscope_linux::untrusted;
use oci_spec::runtime::LinuxDeviceType;

use super::facts::DeviceNode;

/// Maximum size of a profile or table: 4 MiB.
const FILE_LIMIT: u64 = 4 << 20;
/// Maximum number of device nodes in a directory.
const DEVICES_LIMIT: usize = 4096;

/// Access to the machine, for the rules of a specification. [`Machine`] is the real one; tests have their own.
pub trait Host {
    /// Returns the path with its symbolic links resolved; `None` if it does not exist.
    fn resolve(&self, path: &Path) -> io::Result<Option<PathBuf>>;
    /// Returns the text of a regular file of at most 4 MiB.
    fn read(&self, path: &Path) -> io::Result<String>;
    /// Returns the device node at a path; for a directory, all nodes below it.
    fn devices(&self, path: &Path) -> io::Result<Vec<DeviceNode>>;
}

/// This machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Machine;

impl Host for Machine {
    fn resolve(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        match fs::canonicalize(path) {
            Ok(path) => Ok(Some(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        untrusted::read_text(path, FILE_LIMIT)
    }

    fn devices(&self, path: &Path) -> io::Result<Vec<DeviceNode>> {
        let metadata = fs::metadata(path)?;
        if !metadata.is_dir() {
            return Ok(node(path, &metadata).into_iter().collect());
        }
        let mut found = Vec::new();
        walk(path, &mut found)?;
        Ok(found)
    }
}

/// Collects all device nodes below a directory, except those private to a container: pts, shm, mqueue, console.
fn walk(directory: &Path, found: &mut Vec<DeviceNode>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        // A node that has vanished is not an error: /dev changes all the time.
        let Ok(metadata) = entry.path().symlink_metadata() else {
            continue;
        };
        if metadata.is_dir() {
            let own = ["pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev"];
            if !own.iter().any(|own| name == *own) {
                walk(&entry.path(), found)?;
            }
        } else if name != "console"
            && found.len() < DEVICES_LIMIT
            && let Some(node) = node(&entry.path(), &metadata)
        {
            found.push(node);
        }
    }
    Ok(())
}

fn node(path: &Path, metadata: &fs::Metadata) -> Option<DeviceNode> {
    let kind = metadata.file_type();
    let kind = if kind.is_char_device() {
        LinuxDeviceType::C
    } else if kind.is_block_device() {
        LinuxDeviceType::B
    } else if kind.is_fifo() {
        LinuxDeviceType::P
    } else {
        return None;
    };
    let number = metadata.rdev();
    Some(DeviceNode {
        path: path.to_owned(),
        kind,
        major: nix::sys::stat::major(number).cast_signed(),
        minor: nix::sys::stat::minor(number).cast_signed(),
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
    })
}
