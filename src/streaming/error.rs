//! Errors of starting the server.

use std::io;
use std::net::SocketAddr;

use tonic::Code;

use crate::tls::TlsCertificateError;

/// The reason why the server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StreamingBindError {
    /// Listening on the address failed.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The certificate and its key cannot be used.
    #[error(transparent)]
    Pair(#[from] TlsCertificateError),
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(#[source] rustls::Error),
}

impl StreamingBindError {
    /// The code of a call that fails with this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Listen { .. } => Code::Unavailable,
            Self::Pair(_) | Self::Tls(_) => Code::FailedPrecondition,
        }
    }
}
