//! The file that says until when criscope was running: the time in microseconds since 1970, written every few seconds and at the
//! end. The next process learns from it how long nobody looked.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

/// See the module documentation.
#[derive(Clone, Debug)]
pub(in crate::lifecycle) struct Alive(PathBuf);

impl Alive {
    /// The file in the directory of the journal.
    pub(in crate::lifecycle) fn new(dir: &Path) -> Self {
        Self(dir.join("alive"))
    }

    /// When the process before this one was last known to run; `None` if that is unknown. Blocks.
    pub(in crate::lifecycle) fn read(&self) -> Option<u64> {
        fs::read_to_string(&self.0).ok()?.trim().parse().ok()
    }

    /// Writes the time. Blocks.
    ///
    /// # Errors
    /// Of the file system. The journal reports a directory that cannot be written.
    pub(in crate::lifecycle) fn write(&self, now: u64) -> io::Result<()> {
        if let Some(dir) = self.0.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC).bits())
            .open(&self.0)?;
        file.write_all(now.to_string().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_read_back_and_garbage_is_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let alive = Alive::new(dir.path());
        assert_eq!(alive.read(), None);
        alive.write(17).expect("written");
        alive.write(5).expect("written");
        assert_eq!(alive.read(), Some(5));
        fs::write(dir.path().join("alive"), "soon").expect("written");
        assert_eq!(alive.read(), None);
    }
}
