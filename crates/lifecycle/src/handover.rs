//! Handover to the next process of criscope: the steps of the old one, and the file that tells the next one of it.
//!
//! The file `handover-PID` is next to the journal. The old process holds a lock on it (flock(2)) until its last call is in the journal, so
//! the kernel ends it with the process. Its content says whether the process still accepts connections.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use tokio_util::sync::CancellationToken;

/// Beginning of the file's name; the process id follows.
const FILE_PREFIX: &str = "handover-";
/// Content while the process accepts connections.
const ACCEPTS: &str = "accepts";

/// Steps of a handover, in their order.
#[derive(Clone, Debug, Default)]
pub struct HandoverSteps {
    /// The handover has begun.
    pub begun: CancellationToken,
    /// The journal has the calls in flight, and is left to the next process.
    pub journaled: CancellationToken,
    /// The next process is ready.
    pub taken_over: CancellationToken,
}

fn path_of(dir: &Path, pid: u32) -> PathBuf {
    dir.join(format!("{FILE_PREFIX}{pid}"))
}

/// Returns whether the next process will find this one. Blocks.
pub fn is_announced(dir: &Path) -> bool {
    path_of(dir, std::process::id()).exists()
}

/// The file of a process that hands over; removed when dropped.
#[derive(Debug)]
pub(crate) struct HandoverFile {
    path: PathBuf,
    file: File,
}

impl HandoverFile {
    /// Writes the file of this process. Blocks.
    ///
    /// # Errors
    /// If it cannot be written or locked.
    pub(crate) fn create(dir: &Path) -> io::Result<Self> {
        let path = path_of(dir, std::process::id());
        // Locked before it has its name: a file without a lock is left behind.
        let draft = dir.join(format!(".{FILE_PREFIX}{}", std::process::id()));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC).bits())
            .open(&draft)?;
        file.lock()?;
        file.write_all(ACCEPTS.as_bytes())?;
        fs::rename(draft, &path)?;
        Ok(Self { path, file })
    }

    /// Notes that the process accepts no more connections.
    pub(crate) fn accepts_no_more(&self) {
        // The next process then takes this one for one that accepts, and misses a downtime of its own at most.
        let _ = self.file.set_len(0);
    }
}

impl Drop for HandoverFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A process that hands over to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predecessor {
    /// The process id.
    pub pid: i32,
    /// Set while it accepts connections.
    pub accepts: bool,
}

/// Finds the processes that hand over, other than this one, and removes the files of ended processes. Blocks.
pub fn predecessors(dir: &Path) -> Vec<Predecessor> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let found = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        let pid: i32 = name.to_str()?.strip_prefix(FILE_PREFIX)?.parse().ok()?;
        let is_other = u32::try_from(pid).is_ok_and(|pid| pid != std::process::id());
        is_other.then(|| predecessor(&entry.path(), pid))?
    });
    found.collect()
}

fn predecessor(path: &Path, pid: i32) -> Option<Predecessor> {
    let file = File::open(path).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            let content = fs::read_to_string(path).ok()?;
            let accepts = content == ACCEPTS;
            Some(Predecessor { pid, accepts })
        }
        // Without locks nothing is known of the process.
        Err(TryLockError::Error(_)) => None,
        Ok(()) => {
            let _ = fs::remove_file(path);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lock belongs to an open file, so another one of the same process stands for a predecessor.
    #[test]
    fn a_process_is_found_as_long_as_it_holds_its_lock() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = HandoverFile::create(dir.path()).expect("written");
        assert_eq!(predecessors(dir.path()), [], "not this process");
        let path = dir.path().join("handover-1");
        fs::rename(&own.path, &path).expect("renamed");
        let accepts = |accepts| [Predecessor { pid: 1, accepts }];
        assert_eq!(predecessors(dir.path()), accepts(true));
        own.accepts_no_more();
        assert_eq!(predecessors(dir.path()), accepts(false));
        drop(own);
        assert!(path.exists());
        assert_eq!(predecessors(dir.path()), []);
        assert!(!path.exists(), "of a process that was killed");
    }
}
