//! Why the shim did not do it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why the shim did not do it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be started.
    #[error("cannot start {}: {message}", program.display())]
    Launch {
        /// The program.
        program: PathBuf,
        /// Why.
        message: String,
    },
    /// There is no connection: it never came up, or has gone. See [`super::exit_records()`].
    #[error("no connection to the shim of {}: {source}", dir.display())]
    Gone {
        /// The pod's directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It did not answer in time.
    #[error("the shim of {} did not answer within {after:?}", dir.display())]
    Silent {
        /// The pod's directory.
        dir: PathBuf,
        /// How long was waited.
        after: Duration,
    },
    /// It was killed, because it did not answer, and is still there: the kernel is at work for it.
    #[error("the shim of {} was killed and has not ended within {after:?}", dir.display())]
    Undying {
        /// The pod's directory.
        dir: PathBuf,
        /// How long was waited.
        after: Duration,
    },
    /// It speaks another language.
    #[error("the shim of {} sent a malformed frame", dir.display())]
    Malformed {
        /// The pod's directory.
        dir: PathBuf,
    },
    /// It has no version of the protocol in common with this daemon: one of them is of a much newer criscope.
    #[error("cannot use the shim of {}: {why}", dir.display())]
    Incompatible {
        /// The pod's directory.
        dir: PathBuf,
        /// Both versions, in words.
        why: String,
    },
    /// The shim is older than this request.
    #[error("the shim of {} is of an older criscope and cannot do this: make the pod again", dir.display())]
    Unimplemented {
        /// The pod's directory.
        dir: PathBuf,
    },
    /// The request makes no sense now.
    #[error("{0}")]
    Precondition(String),
    /// No such process, or it has ended.
    #[error("{0}")]
    NotFound(String),
    /// The OCI runtime failed: why, as it says itself.
    #[error("OCI runtime: {0}")]
    Runtime(String),
    /// The OCI runtime took too long and was killed.
    #[error("OCI runtime was killed after its time: {0}")]
    Timeout(String),
    /// The system said no.
    #[error("shim: {0}")]
    System(String),
}

impl Error {
    /// Whether there is a shim that nothing can be done by: to be rid of its pod it is killed.
    pub fn is_unusable(&self) -> bool {
        matches!(
            self,
            Self::Silent { .. } | Self::Incompatible { .. } | Self::Malformed { .. }
        )
    }

    /// What a caller of CRI is told.
    pub fn code(&self) -> tonic::Code {
        match self {
            // Not UNIMPLEMENTED, which the kubelet takes for an answer of the runtime as a whole.
            Self::Precondition(_) | Self::Incompatible { .. } | Self::Unimplemented { .. } => {
                tonic::Code::FailedPrecondition
            }
            Self::NotFound(_) => tonic::Code::NotFound,
            Self::Timeout(_) | Self::Silent { .. } | Self::Undying { .. } => {
                tonic::Code::DeadlineExceeded
            }
            Self::Gone { .. } => tonic::Code::Unavailable,
            Self::Launch { .. } | Self::Malformed { .. } | Self::Runtime(_) | Self::System(_) => {
                tonic::Code::Internal
            }
        }
    }
}
