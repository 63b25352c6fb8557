//! Space and inodes of the filesystems that hold images.

use std::path::Path;

use nix::sys::statvfs::statvfs;

/// A filesystem with a smaller share of free space counts as nearly full: the kubelet evicts pods below 15 %, and a runtime
/// needs room to unpack a layer.
const MIN_FREE_SPACE: f64 = 0.05;
/// A filesystem with a smaller share of free inodes counts as nearly full; the kubelet's own limit is 5 %.
const MIN_FREE_INODES: f64 = 0.02;

/// A filesystem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageFilesystem {
    /// Size in bytes.
    pub size: u64,
    /// Bytes available to the runtime.
    pub available: u64,
    /// Inodes; 0 if their number is not fixed.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
}

impl ImageFilesystem {
    /// Reads the filesystem of a path; `None` if it cannot be read. Blocks, on a dead mount for long.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let stat = statvfs(path).ok()?;
        Some(Self {
            size: stat.blocks().saturating_mul(stat.fragment_size()),
            available: stat.blocks_available().saturating_mul(stat.fragment_size()),
            inodes: stat.files(),
            inodes_free: stat.files_available(),
        })
    }

    /// Describes the shortage; `None` if the filesystem is not nearly full.
    pub(super) fn shortage(&self) -> Option<String> {
        if is_below(self.available, self.size, MIN_FREE_SPACE) {
            let [free, all] = [self.available, self.size].map(criscope_cri::units::bytes);
            return Some(format!("{free} of {all} are available"));
        }
        if is_below(self.inodes_free, self.inodes, MIN_FREE_INODES) {
            let (free, all) = (self.inodes_free, self.inodes);
            return Some(format!("{free} of {all} inodes are free"));
        }
        None
    }
}

/// Returns whether the free share is below `min`. Nothing is short if `all` is unknown.
fn is_below(free: u64, all: u64, min: f64) -> bool {
    all > 0 && (free as f64 / all as f64) < min
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_says_what_is_short() {
        let disk = ImageFilesystem {
            size: 100 << 30,
            available: 4 << 30,
            inodes: 1000,
            inodes_free: 19,
        };
        let said = disk.shortage();
        assert_eq!(said.as_deref(), Some("4.0 GiB of 100.0 GiB are available"));
        let disk = ImageFilesystem {
            available: 6 << 30,
            ..disk
        };
        let said = disk.shortage();
        assert_eq!(said.as_deref(), Some("19 of 1000 inodes are free"));
        let disk = ImageFilesystem {
            inodes: 0,
            inodes_free: 0,
            ..disk
        };
        assert_eq!(disk.shortage(), None, "btrfs has no fixed number of inodes");
        assert!(ImageFilesystem::read(Path::new("/")).is_some_and(|fs| fs.size > 0));
        assert_eq!(ImageFilesystem::read(Path::new("/nowhere/at/all")), None);
    }
}
