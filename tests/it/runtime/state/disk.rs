//! A private disk: ext4 in a file. Dropping it thaws and unmounts it, even if the test fails.

use std::fs::{self, File};

use nix::mount::{MntFlags, umount2};

use crate::prelude::*;

pub(super) struct Disk {
    at: PathBuf,
    frozen: bool,
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.frozen {
            let _ = self.freezer("-u").status();
        }
        let _ = umount2(&self.at, MntFlags::MNT_DETACH);
    }
}

fn run(mut command: Command) {
    let status = command.status().expect("a program");
    assert!(status.success(), "{command:?}");
}

impl Disk {
    /// Creates a file system in this file, and mounts it.
    pub(super) fn new(image: &Path, at: &Path) -> Self {
        let file = File::create(image).expect("image");
        file.set_len(64 << 20).expect("image");
        let mut make = Command::new(program("mkfs.ext4", "e2fsprogs"));
        make.args(["-q", "-F"]).arg(image);
        run(make);
        Self::mount(image, at)
    }

    /// Mounts an existing one.
    pub(super) fn mount(image: &Path, at: &Path) -> Self {
        fs::create_dir_all(at).expect("dir");
        let mut mount = Command::new(program("mount", "mount"));
        mount.args(["-o", "loop"]).arg(image).arg(at);
        run(mount);
        let _ = fs::remove_dir(at.join("lost+found"));
        Self {
            at: at.to_owned(),
            frozen: false,
        }
    }

    fn freezer(&self, flag: &str) -> Command {
        let mut command = Command::new(program("fsfreeze", "util-linux"));
        command.arg(flag).arg(&self.at);
        command
    }

    /// Blocks writes from now on.
    pub(super) fn freeze(&mut self) {
        run(self.freezer("-f"));
        self.frozen = true;
    }

    pub(super) fn thaw(&mut self) {
        run(self.freezer("-u"));
        self.frozen = false;
    }
}
