//! Replaces a file with the option of rolling back: the new and the old content are written in advance, so that neither
//! step needs disk space.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::bundle::write_new;
use crate::error::{Error, Result};

/// The new and the old content, in files next to the original. Both are removed on drop.
#[derive(Debug)]
pub(super) struct Drafts {
    path: PathBuf,
    new: PathBuf,
    old: PathBuf,
}

impl Drafts {
    /// Writes both as JSON, with mode 0600.
    ///
    /// If a file cannot be written, for instance because the disk is full; then neither remains.
    /// A file cannot be written, for instance on a full disk; then neither remains.
    pub(super) fn write<T: Serialize>(path: PathBuf, old: &T, new: &T) -> Result<Self> {
        let drafts = Self {
            new: path.with_extension("new"),
            old: path.with_extension("old"),
            path,
        };
        write_json(&drafts.new, new)?;
        write_json(&drafts.old, old)?;
        Ok(drafts)
    }

    /// Renames the new content into place.
    ///
    /// # Errors
    /// If the rename fails; the file is then unchanged.
    pub(super) fn place(&self) -> Result<()> {
        fs::rename(&self.new, &self.path).map_err(|e| Error::io("write", &self.path, e))
    }

    /// Renames the old content back into place.
    pub(super) fn put_back(&self) {
        if let Err(error) = fs::rename(&self.old, &self.path) {
            tracing::warn!(target: "criscope::runtime::container::atomic_replace", event = "runtime.update", file.path = %self.path.display(), error.message = %error, "a file could not be restored after a failed update");
        }
    }
}

fn write_json(to: &Path, content: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec(content).map_err(|e| Error::io("write", to, e))?;
    write_new(to, &text).map_err(|e| Error::io("write", to, e))
}

impl Drop for Drafts {
    fn drop(&mut self) {
        for path in [&self.new, &self.old] {
            let _ = fs::remove_file(path);
        }
    }
}
