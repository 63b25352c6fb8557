//! The journal of episodes, so that they survive a restart of criscope: a line of JSON per ended call, container exit and
//! closed episode, in two files of bounded size; when the newer is full it replaces the older.
//!
//! It is replayed once, at startup; damaged lines are counted and skipped. A thread of its own writes it; lines that cannot
//! be written are dropped and counted.

mod line;
mod replay;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

pub(super) use self::line::JournalLine;
pub(super) use self::replay::{Replayed, replay, replay_lines};
pub(super) use self::writer::Journal;

/// Path and size of the journal.
#[derive(Clone, Debug)]
pub(super) struct JournalFiles {
    /// The directory.
    pub(super) dir: PathBuf,
    /// Most bytes of one of the two files.
    pub(super) max_bytes: u64,
}

/// Most bytes of one file: the calls of about a thousand starts.
pub(super) const MAX_BYTES: u64 = 4 << 20;

/// Both files in this directory, the older first; a missing one is empty. Blocks.
///
/// # Errors
/// If a file cannot be read.
pub fn files(dir: &Path) -> io::Result<[Vec<u8>; 2]> {
    let files = JournalFiles::new(dir);
    let read = |path: PathBuf| -> io::Result<Vec<u8>> {
        match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            file => {
                let mut lines = Vec::new();
                file?.take(2 * MAX_BYTES).read_to_end(&mut lines)?;
                Ok(lines)
            }
        }
    };
    Ok([read(files.older())?, read(files.newer())?])
}

impl JournalFiles {
    /// The files in this directory, with the default size.
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            max_bytes: MAX_BYTES,
        }
    }

    fn newer(&self) -> PathBuf {
        self.dir.join("journal.jsonl")
    }

    fn older(&self) -> PathBuf {
        self.dir.join("journal.1.jsonl")
    }
}
