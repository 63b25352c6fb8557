//! Why a specification cannot be made.

use tonic::Code;

/// Why no specification could be made of a request.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The request contradicts itself or the rules of CRI.
    #[error("{0}")]
    Invalid(String),
    /// The node lacks what the request needs.
    #[error("{0}")]
    Unsupported(String),
    /// Something the request names is not there: a user, a profile, a device.
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
    /// Our own profile data, or one given by path, is not a profile.
    #[error("profile {name}: {reason}")]
    Profile {
        /// Its path, or `default`.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl SpecError {
    /// The gRPC code the caller of CRI gets.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(_) => Code::InvalidArgument,
            Self::Unsupported(_) => Code::FailedPrecondition,
            Self::NotFound(_) => Code::NotFound,
            Self::Io { .. } | Self::Profile { .. } => Code::Internal,
        }
    }
}
