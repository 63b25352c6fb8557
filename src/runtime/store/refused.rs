//! Why a start is refused: what lies on this node is not for this daemon.

use std::path::PathBuf;

/// Why a root and a state cannot be used together. Nothing was touched.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refused {
    /// The state has pods of another root.
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
        /// What does not fit.
        why: String,
    },
    /// The root has pods of another state.
    #[error(
        "the store {} has pods that were started with the state {} since the machine was, and the state {} knows nothing of \
         them: set runtime.state to the directory they were made with, or restart the machine",
        root.display(), bound.display(), state.display()
    )]
    OtherState {
        /// `runtime.root`.
        root: PathBuf,
        /// `runtime.state`.
        state: PathBuf,
        /// The state it is bound to.
        bound: PathBuf,
    },
    /// Another process works on one of them.
    #[error("{} is used by another process; the store {} and the state {} can have one", path.display(), root.display(), state.display())]
    Locked {
        /// The one that is locked.
        path: PathBuf,
        /// `runtime.root`.
        root: PathBuf,
        /// `runtime.state`.
        state: PathBuf,
    },
    /// A record of a later version of criscope.
    #[error(
        "{} has version {found}, and this criscope knows versions up to {known}: install the criscope that wrote it, or a \
         later one; {others} more files are like it (store {}, state {})",
        path.display(), root.display(), state.display()
    )]
    Newer {
        /// The first of them.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The newest version that can be read.
        known: u64,
        /// How many more there are.
        others: usize,
        /// `runtime.root`.
        root: PathBuf,
        /// `runtime.state`.
        state: PathBuf,
    },
    /// An identity that cannot be read.
    #[error("{} is damaged: {why}; restore it, or, if the store and the state in it are those of this node, remove it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// In words.
        why: String,
    },
}
