//! Errors of root file systems.

use std::io;
use std::path::{Path, PathBuf};

/// Why an operation on a root file system failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Part of this container exists: [`super::Rootfs::remove`] it first.
    #[error("{}: exists already", path.display())]
    Exists {
        /// The existing path.
        path: PathBuf,
    },
    /// The request is contradictory.
    #[error("{0}")]
    Invalid(String),
    /// The image has a file of another type at this path.
    #[error("{path} in the image is no {wanted}")]
    Kind {
        /// Path in the container.
        path: String,
        /// The expected type.
        wanted: &'static str,
    },
    /// The kernel does not support it.
    #[error("{0}")]
    Unsupported(String),
    /// A system call failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// The result of functions of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds operation and path to an error.
pub(super) trait At<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> At<T> for std::result::Result<T, E> {
    fn at(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|error| Error::Io {
            action,
            path: path.to_owned(),
            source: error.into(),
        })
    }
}
