//! Errors of the shim.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// An error of a request to the shim.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The shim could not be started.
    #[error("cannot start {}: {message}", program.display())]
    Launch {
        /// The program.
        program: PathBuf,
        /// The cause.
        message: String,
    },
    /// There is no connection: the shim did not start, or has exited. See [`super::exit_records()`].
    #[error("no connection to the shim of {}: {source}", dir.display())]
    Gone {
        /// The pod's directory.
        dir: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The shim did not respond in time.
    #[error("the shim of {} did not answer within {after:?}", dir.display())]
    Silent {
        /// The pod's directory.
        dir: PathBuf,
        /// The timeout.
        after: Duration,
    },
    /// The shim was killed because it did not respond, and has not exited: it is blocked in the kernel.
    #[error("the shim of {} was killed and has not ended within {after:?}", dir.display())]
    Undying {
        /// The pod's directory.
        dir: PathBuf,
        /// The timeout.
        after: Duration,
    },
    /// The shim sent an invalid frame.
    #[error("the shim of {} sent a malformed frame", dir.display())]
    Malformed {
        /// The pod's directory.
        dir: PathBuf,
    },
    /// The shim and the daemon have no protocol version in common: one of them belongs to a much newer criscope.
    #[error("cannot use the shim of {}: {why}", dir.display())]
    Incompatible {
        /// The pod's directory.
        dir: PathBuf,
        /// A message with both versions.
        why: String,
    },
    /// The shim's version does not support this request.
    #[error("the shim of {} is of an older criscope and cannot do this: make the pod again", dir.display())]
    Unimplemented {
        /// The pod's directory.
        dir: PathBuf,
    },
    /// The request is not possible in the current state.
    #[error("{0}")]
    Precondition(String),
    /// The process does not exist or has exited.
    #[error("{0}")]
    NotFound(String),
    /// The OCI runtime failed, with its message.
    #[error("OCI runtime: {0}")]
    Runtime(String),
    /// The OCI runtime exceeded its timeout and was killed.
    #[error("OCI runtime was killed after its time: {0}")]
    Timeout(String),
    /// A system error.
    #[error("shim: {0}")]
    System(String),
}

impl Error {
    /// Returns whether the shim exists but is unusable: it must be killed to remove its pod.
    pub fn is_unusable(&self) -> bool {
        matches!(
            self,
            Self::Silent { .. } | Self::Incompatible { .. } | Self::Malformed { .. }
        )
    }

    /// The gRPC status code for the CRI caller.
    pub fn code(&self) -> tonic::Code {
        match self {
            // Not UNIMPLEMENTED, which the kubelet would apply to the runtime as a whole.
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
