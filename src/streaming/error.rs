//! Errors of starting the server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tonic::Code;

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
