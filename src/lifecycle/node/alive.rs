//! The file that says until when criscope was running: the time in microseconds since 1970 and the boot of the node, written every few
//! seconds and at the end. The next process learns from it how long criscope was down, and whether the node was restarted.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct Alive {
    path: PathBuf,
    /// The id of the boot.
    boot: String,
}

/// What the process before this one has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Last {
    /// When it was last known to run, in microseconds since 1970.
    pub(crate) at: u64,
    /// The id of the boot in which that was; empty if it is not known.
    pub(crate) boot: String,
}

impl Alive {
    /// The file in the directory of the journal, in the boot of this id.
    pub(crate) fn new(dir: &Path, boot: &str) -> Self {
        Self {
            path: dir.join("alive"),
            boot: boot.to_owned(),
        }
    }

    /// What the process before this one has left; `None` if that is unknown. Blocks.
    pub(crate) fn read(&self) -> Option<Last> {
        let text = fs::read_to_string(&self.path).ok()?;
        let mut words = text.split_ascii_whitespace();
        Some(Last {
            at: words.next()?.parse().ok()?,
            boot: words.next().unwrap_or_default().to_owned(),
        })
    }

    /// Writes the time. Blocks.
    ///
    /// # Errors
    /// Of the file system. The journal reports a directory that cannot be written.
    pub(crate) fn write(&self, now: u64) -> io::Result<()> {
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
        let (alive, file) = (Alive::new(dir.path(), "boot-a"), dir.path().join("alive"));
        assert_eq!(alive.read(), None);
        alive.write(17).expect("written");
        alive.write(5).expect("written");
        let last = |boot: &str| Last {
            at: 5,
            boot: boot.to_owned(),
        };
        assert_eq!(Alive::new(dir.path(), "b").read(), Some(last("boot-a")));
        fs::write(&file, "5").expect("as an earlier version");
        assert_eq!(alive.read(), Some(last("")));
        fs::write(&file, "soon").expect("written");
        assert_eq!(alive.read(), None);
    }
}
