//! What can go wrong with a network, and what the caller is told.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use criscope_linux::namespace;

/// An operation of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Attach.
    Add,
    /// Detach.
    Del,
    /// Is it as it was left?
    Check,
    /// Could an ADD work?
    Status,
    /// Free what no attachment uses.
    Gc,
}

impl Verb {
    /// As in `CNI_COMMAND`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Status => "STATUS",
            Self::Gc => "GC",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a plugin says on failure (specification, section 5, "Error").
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub struct PluginError {
    /// 1 to 99 are of the specification (11: try again later), others are the plugin's own.
    #[serde(default)]
    pub code: u32,
    /// What went wrong, in short.
    #[serde(default)]
    pub msg: String,
    /// The same at length.
    #[serde(default)]
    pub details: String,
}

impl fmt::Display for PluginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.msg, self.code)?;
        if self.details.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.details)
        }
    }
}

/// Why a pod has no network, or still has one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No network can be attached: [`Error::NOT_READY`] is the reason Status gives.
    #[error("no network is ready: {why}")]
    NotReady {
        /// What is missing.
        why: String,
    },
    /// A name the specification does not allow.
    #[error("{what} {value:?} is not allowed by the CNI specification")]
    Invalid {
        /// Which name.
        what: &'static str,
        /// As it was given.
        value: String,
    },
    /// No such program.
    #[error("CNI plugin {plugin} is in none of {}", show(dirs))]
    PluginMissing {
        /// Its type.
        plugin: String,
        /// Where it was looked for.
        dirs: Vec<PathBuf>,
    },
    /// The plugin said what is wrong.
    #[error("CNI plugin {plugin} {verb}: {error}")]
    Plugin {
        /// Its type.
        plugin: String,
        /// What it was to do.
        verb: Verb,
        /// Its words.
        error: PluginError,
    },
    /// The plugin failed and did not say why as it should.
    #[error("CNI plugin {plugin} {verb} failed ({status}) without a proper error: {output}")]
    PluginFailed {
        /// Its type.
        plugin: String,
        /// What it was to do.
        verb: Verb,
        /// Exit code or signal.
        status: String,
        /// What it printed, cut short.
        output: String,
    },
    /// The plugin succeeded with an answer that is none.
    #[error("CNI plugin {plugin} {verb} answered with no valid result: {why}")]
    BadResult {
        /// Its type.
        plugin: String,
        /// What it was to do.
        verb: Verb,
        /// What is wrong with it.
        why: String,
    },
    /// The plugin was killed, with all it had started.
    #[error("CNI plugin {plugin} {verb} was killed: not done when {} ms were over", after.as_millis())]
    TimedOut {
        /// Its type.
        plugin: String,
        /// What it was to do.
        verb: Verb,
        /// The time the chain had left for it.
        after: Duration,
    },
    /// The plugin could not be run.
    #[error("cannot run CNI plugin {plugin}: {source}")]
    Run {
        /// Its type.
        plugin: String,
        /// The cause.
        source: io::Error,
    },
    /// An ADD failed, and so did its undoing: something is left until a later DEL.
    #[error("{add}; undoing it failed as well: {undo}")]
    NotUndone {
        /// Why the ADD failed.
        add: Box<Error>,
        /// Why the DEL failed.
        undo: Box<Error>,
    },
    /// The cache cannot be written or read.
    #[error("{}: cannot {action}: {source}", path.display())]
    Cache {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] namespace::Error),
    /// Several chains failed; the rest was done all the same.
    #[error("{first} (and {more} more)")]
    Several {
        /// The first.
        first: Box<Error>,
        /// How many others.
        more: usize,
    },
}

impl Error {
    /// The reason of the condition NetworkReady that the kubelet knows.
    pub const NOT_READY: &'static str = "NetworkPluginNotReady";

    /// One error of many, `Ok` of none.
    pub(crate) fn of(mut errors: Vec<Self>) -> Result<(), Self> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            more => Err(Self::Several {
                first: Box::new(errors.remove(0)),
                more: more - 1,
            }),
        }
    }

    pub(crate) fn cache(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Cache {
            action,
            path: path.to_owned(),
            source,
        }
    }
}

fn show(dirs: &[PathBuf]) -> String {
    let dirs: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    dirs.join(":")
}
