//! What survives a restart of this program: each call that is told, as it ends, as a line of JSON. Two files of a bounded
//! size, the older of which is replaced when the newer is full.
//!
//! It is read once, at the start. A line that cannot be read is counted and skipped. It is written by a thread of its
//! own; what cannot be written is counted and lost.

mod line;
mod replay;
#[cfg(test)]
mod tests;
mod writer;

use std::path::{Path, PathBuf};

pub(super) use self::line::Line;
pub(super) use self::replay::{Replayed, replay};
pub(super) use self::writer::Journal;

/// Where it is, and how large it gets.
#[derive(Clone, Debug)]
pub(super) struct JournalFiles {
    /// The directory.
    pub(super) dir: PathBuf,
    /// Most bytes of one of the two files.
    pub(super) max_bytes: u64,
}

/// Most bytes of one file: the calls of about a thousand starts.
pub(super) const MAX_BYTES: u64 = 4 << 20;

impl JournalFiles {
    /// In this directory, in the usual size.
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
