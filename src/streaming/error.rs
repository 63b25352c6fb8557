//! What can go wrong before a session begins.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tonic::Code;

pub use super::request::Invalid;

/// Why there is no URL for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The request makes no sense.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// As many sessions as allowed were asked for within a minute and not begun.
    #[error("too many sessions were asked for and not begun, try again in a minute")]
    Full,
    /// The system gives no random numbers.
    #[error("no random number for a token")]
    Random,
}

impl UrlError {
    /// The code of the call that asked for the session.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(_) => Code::InvalidArgument,
            Self::Full => Code::ResourceExhausted,
            Self::Random => Code::Internal,
        }
    }
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A file in PEM that cannot be read, or does not hold what it should.
    #[error("{path}: {source}", path = path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rustls::pki_types::pem::Error,
    },
    /// The certificate and the key do not fit together.
    #[error("{path}: {source}", path = path.display())]
    Tls {
        /// The file of the certificate.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

impl BindError {
    /// What it would be as the end of a call.
    pub fn code(&self) -> Code {
        match self {
            Self::Listen { .. } => Code::Unavailable,
            Self::Pem { .. } | Self::Tls { .. } => Code::FailedPrecondition,
        }
    }
}
