//! Errors of root file systems.

use std::io;
use std::path::{Path, PathBuf};

use super::budget::CopyLimit;
use crate::free_space::Shortage;

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
    /// The image has more volumes than a container may have.
    #[error("{count} volumes, at most {most} are allowed")]
    TooManyVolumes {
        /// Number of volumes to create.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// The copies of the image's volumes exceed their budget.
    #[error("its volumes have more than {limit} in all: {volume} does not fit")]
    OverBudget {
        /// Path in the container of the volume that was being copied.
        volume: String,
        /// The budget of all volumes together.
        limit: CopyLimit,
    },
    /// Not enough free space.
    #[error("{}: no space: {shortage}", path.display())]
    NoSpace {
        /// The directory to be written.
        path: PathBuf,
        /// The missing feature.
        shortage: Shortage,
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
