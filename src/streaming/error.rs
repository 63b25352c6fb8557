//! Errors of starting the server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tonic::Code;

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Listening on the address failed.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// A PEM file cannot be read, or has the wrong content.
    #[error("{path}: {source}", path = path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key do not match.
    #[error("{path}: {source}", path = path.display())]
    Tls {
        /// The file of the certificate.
        path: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
}

impl BindError {
    /// The code of a call that fails with this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Listen { .. } => Code::Unavailable,
            Self::Pem { .. } | Self::Tls { .. } => Code::FailedPrecondition,
        }
    }
}
