//! Mounting, reading, writing and removing root file systems, with real overlayfs. Needs root.

mod contents;
mod mounting;
mod removal;

use std::os::unix::fs::MetadataExt as _;

use criscope_linux::free_space::MinFree;
use criscope_linux::rootfs::{MountRequest, Rootfs, VolumeLimits, list_mounts_below};

use super::Scratch;
use crate::prelude::*;

/// A directory for layers and one container.
struct Place {
    scratch: Scratch,
    layers: Vec<PathBuf>,
}

impl Place {
    fn new() -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "this test mounts file systems: it needs root"
        );
        Self {
            scratch: Scratch::new(),
            layers: Vec::new(),
        }
    }

    fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// Adds a layer on top.
    fn layer(&mut self, name: &str) -> PathBuf {
        let layer = self.path().join("layers").join(name);
        fs::create_dir_all(&layer).expect("layer");
        self.layers.push(layer.clone());
        layer
    }

    fn container(&self) -> Rootfs {
        Rootfs::new(self.path().join("c"))
    }

    fn request(&self) -> MountRequest {
        MountRequest {
            layers: self.layers.clone(),
            ..MountRequest::default()
        }
    }

    fn mount(&self) -> (Rootfs, PathBuf) {
        let rootfs = self.container();
        let path = rootfs.mount(&self.request()).expect("mounted");
        (rootfs, path)
    }

    fn is_clean(&self) -> bool {
        !self.path().join("c").exists() && self.mounts() == 0
    }

    fn mounts(&self) -> usize {
        list_mounts_below(self.path()).expect("table").len()
    }
}

/// Limits that small volumes do not reach.
pub(super) fn volume_limits() -> VolumeLimits {
    VolumeLimits {
        max_volumes: 10,
        max_bytes: 1 << 20,
        max_files: 100,
        min_free: MinFree::default(),
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("there").mode() & 0o7777
}
