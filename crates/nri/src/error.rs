//! Errors.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The reason why a request to a plugin has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The plugin answered with a status.
    #[error("{message} (code {code})")]
    Status {
        /// The gRPC code.
        code: i32,
        /// The text of the plugin.
        message: String,
    },
    /// The plugin did not answer in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The connection of the plugin is closed.
    #[error("its connection is closed")]
    Closed,
    /// The answer of the plugin cannot be decoded.
    #[error("an answer that cannot be decoded: {0}")]
    Malformed(String),
    /// The request is larger than a message may be.
    #[error("the request of {0} bytes is larger than a message may be")]
    TooLarge(usize),
}

impl CallError {
    /// The outcome as a metric label.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Status { .. } => "error",
            Self::Timeout(_) => "timeout",
            Self::Closed => "closed",
            Self::Malformed(_) => "malformed",
            Self::TooLarge(_) => "too_large",
        }
    }
}

/// The reason why an event fails.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EventError {
    /// A plugin answered with an error.
    #[error("NRI plugin {plugin}: {method}: {error}")]
    Plugin {
        /// Index and name of the plugin.
        plugin: String,
        /// The method.
        method: &'static str,
        /// The answer.
        error: CallError,
    },
    /// Two plugins want to set the same thing.
    #[error("NRI plugins {plugin} and {other} both set {what}")]
    Conflict {
        /// The second plugin.
        plugin: String,
        /// The first plugin.
        other: String,
        /// The field, with its key if it has several.
        what: String,
    },
    /// A plugin asked to update the container that is being created.
    #[error("NRI plugin {plugin} asked for an update of container {id} while it is created")]
    Early {
        /// The plugin.
        plugin: String,
        /// The container.
        id: String,
    },
    /// A validating plugin rejected the adjustments of the others.
    #[error("NRI plugin {plugin} rejected the adjustments of the container: {reason}")]
    Rejected {
        /// The validator.
        plugin: String,
        /// The reason.
        reason: String,
    },
}

impl EventError {
    /// The plugin that caused the error.
    pub fn plugin(&self) -> &str {
        match self {
            Self::Plugin { plugin, .. }
            | Self::Conflict { plugin, .. }
            | Self::Early { plugin, .. }
            | Self::Rejected { plugin, .. } => plugin,
        }
    }
}

/// The reason why plugins cannot connect.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot {action}: {source}", path.display())]
pub struct ListenError {
    /// The failed operation, as a verb.
    pub action: &'static str,
    /// The socket or its directory.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}
