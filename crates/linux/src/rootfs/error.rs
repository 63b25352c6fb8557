//! Why there is no such root file system.

use std::io;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something of this container is there already: [`super::Rootfs::remove`] it first.
    #[error("{}: exists already", path.display())]
    Exists {
        /// What is in the way.
        path: PathBuf,
    },
    /// The request contradicts itself.
    #[error("{0}")]
    Invalid(String),
    /// The image has something else there than what is needed.
    #[error("{path} in the image is no {wanted}")]
    Kind {
        /// Path in the container.
        path: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// The kernel cannot do it.
    #[error("{0}")]
    Unsupported(String),
    /// The kernel or the file system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// What every function here returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Names what was tried, and where.
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
