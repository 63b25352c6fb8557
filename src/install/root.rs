//! The files of the node, below a root that tests replace.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The root of the node's files.
#[derive(Clone, Debug)]
pub struct FilesystemRoot(PathBuf);

impl Default for FilesystemRoot {
    fn default() -> Self {
        Self(PathBuf::from("/"))
    }
}

impl FilesystemRoot {
    /// Another root than `/`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// An absolute path below the root.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The content of a file; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Option<Vec<u8>>> {
        let found = self.path(path);
        match fs::read(&found) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!("{}: {error}", found.display()),
            )),
        }
    }

    /// Reads a file as text.
    ///
    /// # Errors
    /// If it cannot be read, or is not UTF-8.
    pub fn text(&self, path: impl AsRef<Path>) -> io::Result<Option<String>> {
        let path = path.as_ref();
        let Some(bytes) = self.read(path)? else {
            return Ok(None);
        };
        let text = String::from_utf8(bytes).map_err(|_| {
            let text = format!("{}: not UTF-8", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        Ok(Some(text))
    }

    /// Returns whether there is a file, directory or link.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    /// The names in a directory with an extension, in the order of bytes, as most programs merge them.
    pub fn names(&self, directory: impl AsRef<Path>, extensions: &[&str]) -> Vec<PathBuf> {
        let directory = directory.as_ref();
        let Ok(entries) = fs::read_dir(self.path(directory)) else {
            return Vec::new();
        };
        let mut names: Vec<_> = entries
            .filter_map(|entry| Some(directory.join(entry.ok()?.file_name())))
            .filter(|path| {
                let extension = path.extension().and_then(|extension| extension.to_str());
                extension.is_some_and(|extension| extensions.contains(&extension))
            })
            .collect();
        names.sort_unstable();
        names
    }
}
