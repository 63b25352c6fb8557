//! Errors of the specification.

use tonic::Code;

/// Why a specification could not be built from a request.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The request is inconsistent, or violates the rules of the CRI.
    #[error("{0}")]
    Invalid(String),
    /// The node does not support the request.
    #[error("{0}")]
    Unsupported(String),
    /// A user, profile or device of the request does not exist.
    #[error("{0}")]
    NotFound(String),
    /// A file of the node could not be read.
    #[error("read {path}: {source}")]
    Io {
        /// The file.
        path: std::path::PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// CDI devices, hooks or NRI plugins have made a specification that breaks a rule.
    #[error("finished specification, rule {rule}: {field}: {reason}")]
    Finished {
        /// The rule.
        rule: &'static str,
        /// The field.
        field: String,
        /// The problem.
        reason: String,
    },
    /// A seccomp profile is invalid.
    #[error("profile {name}: {reason}")]
    Profile {
        /// The path, or `default`.
        name: String,
        /// The problem.
        reason: String,
    },
}

impl SpecError {
    /// The gRPC status code for the CRI caller.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(_) => Code::InvalidArgument,
            Self::Unsupported(_) | Self::Finished { .. } => Code::FailedPrecondition,
            Self::NotFound(_) => Code::NotFound,
            Self::Io { .. } | Self::Profile { .. } => Code::Internal,
        }
    }
}
