//! A file that is replaced, and put back if something that belongs to it fails: neither needs room any more by then.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::bundle::write_new;
use crate::runtime::error::{Error, Result};

/// The new and the old content beside the file. Dropped, both are gone.
#[derive(Debug)]
pub(super) struct Drafts {
    path: PathBuf,
    new: PathBuf,
    old: PathBuf,
}

impl Drafts {
    /// Writes both as JSON, for root only.
    ///
    /// # Errors
    /// There is no room; then nothing is left of it.
    pub(super) fn write<T: Serialize>(path: PathBuf, old: &T, new: &T) -> Result<Self> {
        let drafts = Self {
            new: path.with_extension("new"),
            old: path.with_extension("old"),
            path,
        };
        let write = |to: &Path, content: &T| {
            let text = serde_json::to_vec(content).map_err(|e| Error::io("write", to, e))?;
            write_new(to, &text).map_err(|e| Error::io("write", to, e))
        };
        write(&drafts.new, new)?;
        write(&drafts.old, old)?;
        Ok(drafts)
    }

    /// Puts the new content in place of the old.
    ///
    /// # Errors
    /// It stays as it was.
    pub(super) fn place(&self) -> Result<()> {
        fs::rename(&self.new, &self.path).map_err(|e| Error::io("write", &self.path, e))
    }

    /// Puts the old content in place of the new.
    pub(super) fn put_back(&self) {
        if let Err(error) = fs::rename(&self.old, &self.path) {
            tracing::warn!(event = "runtime.update", path = %self.path.display(), %error, "a file could not be put back after a failed update");
        }
    }
}

impl Drop for Drafts {
    fn drop(&mut self) {
        for path in [&self.new, &self.old] {
            let _ = fs::remove_file(path);
        }
    }
}
