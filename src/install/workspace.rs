//! Edits of text files before any of them is made.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::root::FilesystemRoot;

/// The new texts of files, by path.
#[derive(Debug)]
pub(super) struct EditWorkspace<'a> {
    root: &'a FilesystemRoot,
    new: BTreeMap<PathBuf, String>,
    /// In the order of the first edit.
    order: Vec<PathBuf>,
}

impl<'a> EditWorkspace<'a> {
    pub(super) fn new(root: &'a FilesystemRoot) -> Self {
        Self {
            root,
            new: BTreeMap::new(),
            order: Vec::new(),
        }
    }

    /// The text of a file with the edits so far.
    pub(super) fn text(&self, path: &Path) -> io::Result<Option<String>> {
        match self.new.get(path) {
            Some(text) => Ok(Some(text.clone())),
            None => self.root.text(path),
        }
    }

    /// Replaces a text.
    pub(super) fn put(&mut self, path: PathBuf, text: String) {
        if !self.order.contains(&path) {
            self.order.push(path.clone());
        }
        self.new.insert(path, text);
    }

    /// The new texts, in order.
    pub(super) fn finish(mut self) -> Vec<(PathBuf, String)> {
        let files = self.order.into_iter();
        files
            .filter_map(|path| Some((path.clone(), self.new.remove(&path)?)))
            .collect()
    }
}
