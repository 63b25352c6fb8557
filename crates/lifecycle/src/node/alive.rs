//! The file that tells until when criscope was running: a Unix time and the boot of the node, written every few seconds and at
//! the end. From it the next process learns how long criscope was down, and whether the node was restarted.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use criscope_cri::units::times::UnixMicros;

/// The file with the time at which criscope was last running.
#[derive(Clone, Debug)]
pub(crate) struct AliveFile {
    path: PathBuf,
    /// The id of the boot.
    boot: String,
}

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastAlive {
    /// The last time at which the process was known to run.
    pub(crate) at: UnixMicros,
    /// The id of the boot at that time; empty if it is unknown.
    pub(crate) boot: String,
}

impl AliveFile {
    /// The file in the directory of the journal, in the boot of this id.
    pub(crate) fn new(dir: &Path, boot: &str) -> Self {
        Self {
            path: dir.join("alive"),
            boot: boot.to_owned(),
        }
    }

    /// Reads the file of the process before this one; `None` if there is none. Blocks.
    pub(crate) fn read(&self) -> Option<LastAlive> {
        let text = fs::read_to_string(&self.path).ok()?;
        let mut words = text.split_ascii_whitespace();
        Some(LastAlive {
            at: UnixMicros::new(words.next()?.parse().ok()?),
            boot: words.next().unwrap_or_default().to_owned(),
        })
    }

    /// Writes the time. Blocks.
    ///
    /// # Errors
    /// If the file cannot be written. The journal reports a directory that cannot be written.
    pub(crate) fn write(&self, now: UnixMicros) -> io::Result<()> {
        if let Some(dir) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC).bits())
            .open(&self.path)?;
        file.write_all(format!("{now} {}", self.boot).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_read_back_and_garbage_is_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let (alive, file) = (
            AliveFile::new(dir.path(), "boot-a"),
            dir.path().join("alive"),
        );
        assert_eq!(alive.read(), None);
        alive.write(UnixMicros::new(17)).expect("written");
        alive.write(UnixMicros::new(5)).expect("written");
        let last = |boot: &str| LastAlive {
            at: UnixMicros::new(5),
            boot: boot.to_owned(),
        };
        assert_eq!(AliveFile::new(dir.path(), "b").read(), Some(last("boot-a")));
        fs::write(&file, "5").expect("as an earlier version");
        assert_eq!(alive.read(), Some(last("")));
        fs::write(&file, "soon").expect("written");
        assert_eq!(alive.read(), None);
    }
}
