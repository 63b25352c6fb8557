//! Errors of networks, as reported by plugins and to callers.

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
    /// Verify an attachment.
    Check,
    /// Check whether an ADD can succeed.
    Status,
    /// Release resources that no attachment uses.
    Gc,
}

impl Verb {
    /// The value of `CNI_COMMAND`.
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

/// The error of a plugin (specification, section 5, "Error").
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub struct PluginError {
    /// 1 to 99 are defined by the specification (11: try again later), others by the plugin.
    #[serde(default)]
    pub code: u32,
    /// Short message.
    #[serde(default)]
    pub msg: String,
    /// Long message.
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

/// Why a network configuration or the result of a plugin is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is too large.
    #[error("{size} bytes exceed the limit of {limit}")]
    TooLarge {
        /// The size.
        size: u64,
        /// The largest size.
        limit: u64,
    },
    /// The text is not JSON.
    #[error("not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A key has a value of another type.
    #[error("{key} is not {expected}")]
    WrongType {
        /// The key.
        key: &'static str,
        /// The type, with its article.
        expected: &'static str,
    },
    /// A key is missing or empty.
    #[error("no {0}")]
    Missing(&'static str),
    /// A file with one plugin has no type.
    #[error("no type: a list of plugins belongs in a .conflist")]
    NoType,
    /// The specification does not allow the name of the network.
    #[error("name {0:?} is not allowed by the CNI specification")]
    Name(String),
    /// The type of a plugin is not a file name.
    #[error("type {0:?} is not a valid name of a plugin")]
    Type(String),
    /// The version of the specification is not supported.
    #[error("cniVersion {0:?} is not supported (0.3.0 to 1.1.0 are)")]
    Version(String),
    /// Another file has a network of this name.
    #[error("network {0} is configured already")]
    Duplicate(String),
    /// An address refers to an interface that the result does not have.
    #[error("an address refers to an interface that does not exist")]
    Interface,
    /// An address is not in CIDR notation.
    #[error("{0:?} is not a CIDR")]
    Cidr(String),
    /// A plugin in a file next to the list is invalid.
    #[error("{}: {source}", path.display())]
    PluginFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Box<ParseError>,
    },
}

/// Why an operation on a pod's networks failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No network is ready; Status reports it with the reason [`Error::NOT_READY`].
    #[error("no network is ready: {why}")]
    NotReady {
        /// The missing field.
        why: String,
    },
    /// A name that the specification does not allow.
    #[error("{what} {value:?} is not allowed by the CNI specification")]
    Invalid {
        /// The kind of name.
        what: &'static str,
        /// The name.
        value: String,
    },
    /// The plugin was not found.
    #[error("CNI plugin {plugin} was not found in {}", show(dirs))]
    PluginMissing {
        /// The type.
        plugin: String,
        /// The directories that were searched.
        dirs: Vec<PathBuf>,
    },
    /// The plugin reported an error.
    #[error("CNI plugin {plugin} {verb}: {error}")]
    Plugin {
        /// The type.
        plugin: String,
        /// The verb.
        verb: Verb,
        /// The error.
        error: PluginError,
    },
    /// The plugin failed without a valid error.
    #[error("CNI plugin {plugin} {verb} failed ({status}) without a valid error: {output}")]
    PluginFailed {
        /// The type.
        plugin: String,
        /// The verb.
        verb: Verb,
        /// Exit code or signal.
        status: String,
        /// The output, truncated.
        output: String,
    },
    /// The plugin succeeded, but its result is invalid.
    #[error("CNI plugin {plugin} {verb} returned an invalid result: {why}")]
    BadResult {
        /// The type.
        plugin: String,
        /// The verb.
        verb: Verb,
        /// Why the result is invalid.
        why: String,
    },
    /// The plugin timed out and was killed with its process group.
    #[error("CNI plugin {plugin} {verb} was killed: timed out after {} ms", after.as_millis())]
    TimedOut {
        /// The type.
        plugin: String,
        /// The verb.
        verb: Verb,
        /// The remaining time of the chain when it was started.
        after: Duration,
    },
    /// The plugin could not be run.
    #[error("cannot run CNI plugin {plugin}: {source}")]
    Run {
        /// The type.
        plugin: String,
        /// The cause.
        source: io::Error,
    },
    /// An ADD failed, and so did its rollback: something remains until a later DEL.
    #[error("{add}; the rollback failed as well: {undo}")]
    NotUndone {
        /// Why the ADD failed.
        add: Box<Error>,
        /// Why the DEL failed.
        undo: Box<Error>,
    },
    /// The cache cannot be written or read.
    #[error("{}: cannot {action}: {source}", path.display())]
    Cache {
        /// The operation.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] namespace::Error),
    /// Several chains failed; the others were still run.
    #[error("{first} (and {more} more)")]
    Several {
        /// The first.
        first: Box<Error>,
        /// The number of others.
        more: usize,
    },
}

impl Error {
    /// The reason of the condition NetworkReady that the kubelet expects.
    pub const NOT_READY: &'static str = "NetworkPluginNotReady";

    /// Combines errors; `Ok` if there are none.
    pub(crate) fn combine(mut errors: Vec<Self>) -> Result<(), Self> {
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
