//! The journal of episodes, so that they survive a restart of criscope: a line of JSON per ended call, container exit and
//! closed episode, in two files of bounded size. A full newer file replaces the older one.
//!
//! The journal is replayed once, at startup; damaged lines are counted and skipped. A separate thread writes it; lines that
//! cannot be written are dropped and counted.

mod appended;
mod last_lines;
mod line;
mod replay;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

pub(super) use self::last_lines::last_lines;
pub(super) use self::line::JournalLine;
pub(super) use self::replay::{ReplayResult, is_same, replay, replay_line, replay_lines};
pub(super) use self::writer::{JournalRole, JournalWriter};

/// Path and size of the journal.
#[derive(Clone, Debug)]
pub(super) struct JournalFiles {
    /// The directory.
    pub(super) dir: PathBuf,
    /// Upper bound of bytes in each of the two files.
    pub(super) max_bytes: u64,
}

/// Upper bound of bytes in one file: the calls of about a thousand starts.
pub(super) const MAX_FILE_LEN: u64 = 4 << 20;

/// Both files in this directory, the older first; a missing one is empty. Blocks.
///
/// # Errors
/// If a file cannot be read.
pub fn files(dir: &Path) -> io::Result<[Vec<u8>; 2]> {
    let files = JournalFiles::new(dir);
    Ok([read(&files.older())?, read(&files.newer())?])
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    let mut lines = Vec::new();
    file.take(2 * MAX_FILE_LEN).read_to_end(&mut lines)?;
    Ok(lines)
}

impl JournalFiles {
    /// The files in this directory, with the default size.
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            max_bytes: MAX_FILE_LEN,
        }
    }

    fn newer(&self) -> PathBuf {
        self.dir.join("journal.jsonl")
    }

    fn older(&self) -> PathBuf {
        self.dir.join("journal.1.jsonl")
    }
}
