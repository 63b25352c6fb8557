//! Space and inodes of the filesystems that hold images.

use std::path::Path;

use nix::sys::statvfs::statvfs;

/// Below this part of the space it counts as nearly full: the kubelet evicts pods below 15 %, and a runtime needs room to
/// unpack a layer.
const LEAST_SPACE: f64 = 0.05;
/// The same for inodes; the kubelet's own limit is 5 %.
const LEAST_INODES: f64 = 0.02;

/// A filesystem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageFs {
    /// Size in bytes.
    pub size: u64,
    /// Bytes available to the runtime.
    pub available: u64,
    /// Inodes; 0 if it has no fixed number.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
}

impl ImageFs {
    /// The filesystem of this path; `None` if it cannot be read. Blocks, for as long as a dead mount does.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let stat = statvfs(path).ok()?;
        Some(Self {
            size: stat.blocks().saturating_mul(stat.fragment_size()),
            available: stat.blocks_available().saturating_mul(stat.fragment_size()),
            inodes: stat.files(),
            inodes_free: stat.files_available(),
        })
    }

    /// Why it counts as nearly full; `None` if it does not.
    pub(super) fn shortage(&self) -> Option<String> {
        let left = |free: u64, all: u64| free as f64 / all as f64;
        if self.size > 0 && left(self.available, self.size) < LEAST_SPACE {
            let (free, all) = (self.available, self.size);
            let [free, all] = [free, all].map(crate::units::bytes);
            return Some(format!("{free} of {all} are available"));
        }
        if self.inodes > 0 && left(self.inodes_free, self.inodes) < LEAST_INODES {
            let (free, all) = (self.inodes_free, self.inodes);
            return Some(format!("{free} of {all} inodes are free"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_says_what_is_short() {
        let disk = ImageFs {
            size: 100 << 30,
            available: 4 << 30,
            inodes: 1000,
            inodes_free: 19,
        };
        let said = disk.shortage();
        assert_eq!(said.as_deref(), Some("4.0 GiB of 100.0 GiB are available"));
        let disk = ImageFs {
            available: 6 << 30,
            ..disk
        };
        let said = disk.shortage();
        assert_eq!(said.as_deref(), Some("19 of 1000 inodes are free"));
        let disk = ImageFs {
            inodes: 0,
            inodes_free: 0,
            ..disk
        };
        assert_eq!(disk.shortage(), None, "btrfs has no fixed number of inodes");
        assert!(ImageFs::read(Path::new("/")).is_some_and(|fs| fs.size > 0));
        assert_eq!(ImageFs::read(Path::new("/nowhere/at/all")), None);
    }
}
