//! Why there is no such namespace.

use std::io;
use std::path::{Path, PathBuf};

use crate::sysctl;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The id is no name of a directory.
    #[error("{id:?} cannot name a directory of namespaces")]
    Id {
        /// As it was given.
        id: String,
    },
    /// The pod's directory is there: [`super::Pins::remove`] it first.
    #[error("namespaces of {id} exist already")]
    Exists {
        /// Pod sandbox.
        id: String,
    },
    /// Nothing is mounted there: never made, removed, or lost in a reboot.
    #[error("{}: no namespace is pinned here", path.display())]
    NotPinned {
        /// The file.
        path: PathBuf,
    },
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
    /// A user namespace without mappings, or without a program that makes it.
    #[error("no user namespace for {id}: {why}")]
    User {
        /// Pod sandbox.
        id: String,
        /// What is missing.
        why: &'static str,
    },
    /// The program that makes user namespaces failed.
    #[error("{}: {why}", program.display())]
    Helper {
        /// The program.
        program: PathBuf,
        /// What it said, or what happened to it.
        why: String,
    },
    /// A kernel parameter was refused.
    #[error(transparent)]
    Sysctl(#[from] sysctl::Error),
    /// There is no thread to be had, or it ended without an answer.
    #[error("no answer from the thread {name}: {why}")]
    Thread {
        /// Its name.
        name: &'static str,
        /// Why.
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
