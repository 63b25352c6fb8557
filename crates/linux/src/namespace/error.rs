//! Errors of namespaces.

use std::io;
use std::path::{Path, PathBuf};

use crate::sysctl;

/// Why an operation on namespaces failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The id is not a valid name of a directory.
    #[error("{id:?} cannot name a directory of namespaces")]
    Id {
        /// The id.
        id: String,
    },
    /// The pod's directory exists: [`super::Pins::remove`] it first.
    #[error("namespaces of {id} exist already")]
    Exists {
        /// Pod sandbox.
        id: String,
    },
    /// Nothing is mounted on the file: never created, removed, or lost in a reboot.
    #[error("{}: no namespace is pinned here", path.display())]
    NotPinned {
        /// The file.
        path: PathBuf,
    },
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
    /// A user namespace without mappings, or without the helper that creates it.
    #[error("no user namespace for {id}: {why}")]
    User {
        /// Pod sandbox.
        id: String,
        /// The missing part.
        why: &'static str,
    },
    /// The helper that creates user namespaces failed.
    #[error("{}: {why}", program.display())]
    Helper {
        /// The program.
        program: PathBuf,
        /// The output, or how it ended.
        why: String,
    },
    /// A kernel parameter was refused.
    #[error(transparent)]
    Sysctl(#[from] sysctl::Error),
    /// A thread could not be started, or panicked.
    #[error("no answer from the thread {name}: {why}")]
    Thread {
        /// Name of the thread.
        name: &'static str,
        /// The cause.
        why: String,
    },
}

impl Error {
    pub(super) fn io(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source: source.into(),
        }
    }
}
