//! The built-in runtime and its parts, with the real tools they drive.

mod campaign;
mod compared;
mod crash;
mod crun;
mod image;
mod images_command;
mod namespaces;
mod node;
mod nri;
mod observed;
mod oci;
mod own_pid;
mod process;
mod rootfs;
mod seccomp;
mod sessions;
mod smoke;
mod state;
mod stats;
mod user_namespaces;
mod verbs;
mod write_errors;

use nix::mount::{MntFlags, umount2};

use crate::prelude::*;

/// A directory for mounts, which are removed with it even if the test fails.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("dir"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        for point in points.filter(|point| Path::new(point).starts_with(self.path())) {
            let _ = umount2(point, MntFlags::MNT_DETACH);
        }
    }
}
