//! Reasons to refuse to start: the data on this node does not match the configuration or the version.

use std::path::PathBuf;

/// Why `runtime.root` and `runtime.state` cannot be used. Nothing was changed on disk.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refused {
    /// The state holds pods of another root.
    #[error(
        "the state {} holds pods of another store than {}: {why}; mount the volume that runtime.root lies on, or set \
         runtime.root to the directory these pods were made with; to give them up, restart the machine",
        state.display(), root.display()
    )]
    OtherRoot {
        /// `runtime.root`.
        root: PathBuf,
        /// `runtime.state`.
        state: PathBuf,
        /// The mismatch.
        why: String,
    },
    /// The root holds pods of another state.
    #[error(
        "the store {} has pods that were started with the state {} since the last boot, and the state {} does not know \
         them: set runtime.state to the directory they were made with, or restart the machine",
        root.display(), bound.display(), state.display()
    )]
    OtherState {
        /// `runtime.root`.
        root: PathBuf,
        /// `runtime.state`.
        state: PathBuf,
        /// The state that the root is bound to.
        bound: PathBuf,
    },
    /// Another process uses one of them.
    #[error("{} is used by another process; the store {} and the state {} can be used by one only", path.display(), root.display(), state.display())]
    Locked {
        /// The locked directory.
        path: PathBuf,
        /// `runtime.root`.
        root: PathBuf,
        /// `runtime.state`.
        state: PathBuf,
    },
    /// A record was written by a later version of criscope.
    #[error(
        "{} has version {found}, and this criscope knows versions up to {known}: install the criscope that wrote it, or a \
         later one; the same applies to {others} more files (store {}, state {})",
        path.display(), root.display(), state.display()
    )]
    Newer {
        /// The first such file.
        path: PathBuf,
        /// The version.
        found: u64,
        /// The newest version that can be read.
        known: u64,
        /// The number of further such files.
        others: usize,
        /// `runtime.root`.
        root: PathBuf,
        /// `runtime.state`.
        state: PathBuf,
    },
    /// An identity file cannot be parsed.
    #[error("{} is damaged: {why}; restore it, or, if the store and the state in it are those of this node, remove it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The problem.
        why: String,
    },
}
