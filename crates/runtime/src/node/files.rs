//! Files of the machine below a root: `/`, or a test directory.

use std::fs;
use std::path::PathBuf;

use super::NodeError;

/// Files below a root. Paths are written without the leading `/`.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
}

impl Files {
    pub(super) fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Reads an optional file, trimmed.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// Reads a file that exists on every Linux.
    pub(super) fn need(&self, path: &'static str) -> Result<String, NodeError> {
        fs::read_to_string(self.root.join(path))
            .map(|text| text.trim().to_owned())
            .map_err(|error| NodeError::File {
                path,
                reason: error.to_string(),
            })
    }
}
