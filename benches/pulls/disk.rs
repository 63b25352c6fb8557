//! A fresh file system for all sides. ext4 reuses no inode in the minute after its removal, and searches for others in the meantime:
//! on the disk of a machine, unpacking many files soon after others were removed takes up to twenty times as long, for every program.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::mount::{MntFlags, umount2};
use tempfile::TempDir;

use crate::error::{Error, IoContext, Result};

/// Its size. Only what is used takes space.
const SIZE: &str = "24G";

/// A mounted file system in a file; dropping it removes both.
pub(crate) struct Disk {
    /// The mount point.
    pub(crate) path: PathBuf,
    _folder: TempDir,
}

impl Disk {
    /// Makes and mounts it.
    ///
    /// # Errors
    /// If a program fails, or no loop device is left.
    pub(crate) fn new() -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("crpull")
            .tempdir_in("/var/tmp")
            .during(|| "making a folder in /var/tmp".to_owned())?;
        let (file, path) = (folder.path().join("ext4"), folder.path().join("disk"));
        std::fs::create_dir(&path).during(|| format!("making {}", path.display()))?;
        let sparse = std::fs::File::create(&file);
        sparse.during(|| format!("making {}", file.display()))?;
        run("truncate", &["--size", SIZE], &[&file])?;
        run("mkfs.ext4", &["-q", "-E", "nodiscard"], &[&file])?;
        run("mount", &["-o", "loop"], &[&file, &path])?;
        Ok(Self {
            path,
            _folder: folder,
        })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Daemons that end may still have files open; the loop device goes with the last of them.
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
    }
}

fn run(program: &str, options: &[&str], paths: &[&Path]) -> Result<()> {
    let output = Command::new(program)
        .args(options)
        .args(paths)
        .stdin(Stdio::null())
        .output()
        .during(|| format!("starting {program}"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(Error::Setup(format!("{program}: {}", errors.trim())))
}
