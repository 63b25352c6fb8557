//! Space that stays free on a file system while images and containers are copied to it.

use std::fmt;
use std::os::fd::AsFd;

use rustix::fs::fstatvfs;
use rustix::io::Errno;

/// Bytes that may be written between two checks of the free space.
pub const CHECK_EVERY_BYTES: u64 = 16 << 20;
/// Approximate bytes of a file or directory besides its content.
pub const ENTRY_BYTES: u64 = 4096;

/// The space that stays free for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinFree {
    /// Bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

/// A lack of space on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Too few bytes.
    Bytes {
        /// Bytes free.
        free: u64,
        /// Bytes needed, including the ones that must stay free.
        needed: u64,
    },
    /// Too few inodes.
    Inodes {
        /// Inodes free.
        free: u64,
        /// Inodes that must stay free.
        needed: u64,
    },
}

impl MinFree {
    /// Returns what the file system of `dir` would lack after `planned` further bytes; `None` if nothing.
    ///
    /// # Errors
    /// If statvfs(3) fails.
    pub fn shortage(&self, dir: impl AsFd, planned: u64) -> Result<Option<Shortage>, Errno> {
        let status = fstatvfs(dir)?;
        let free = status.f_bavail.saturating_mul(status.f_frsize);
        let needed = self.bytes.saturating_add(planned);
        if free < needed {
            return Ok(Some(Shortage::Bytes { free, needed }));
        }
        // File systems that allocate inodes dynamically report none.
        let (free, needed) = (status.f_favail, self.inodes);
        let are_short = status.f_files > 0 && free < needed;
        Ok(are_short.then_some(Shortage::Inodes { free, needed }))
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes { free, needed } => {
                let (free, needed) = (mebibytes(*free), mebibytes(*needed));
                write!(f, "{free} are free, {needed} are needed")
            }
            Self::Inodes { free, needed } => {
                write!(f, "{free} inodes are free, {needed} are needed")
            }
        }
    }
}

/// Bytes for people.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn both_bytes_and_inodes_can_be_short() {
        let dir = tempfile::tempdir().expect("dir");
        let dir = File::open(dir.path()).expect("open");
        let shortage = |bytes, inodes, planned| {
            let found = MinFree { bytes, inodes }.shortage(&dir, planned);
            found.expect("statvfs")
        };
        assert_eq!(shortage(0, 0, 0), None);
        let bytes = shortage(1, 0, u64::MAX).expect("too few bytes");
        assert!(matches!(
            bytes,
            Shortage::Bytes {
                needed: u64::MAX,
                ..
            }
        ));
        let inodes = shortage(0, u64::MAX, 0).expect("too few inodes");
        assert!(inodes.to_string().contains("inodes are free"), "{inodes}");
    }
}
