//! TLS, from files in PEM.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use tokio_rustls::TlsAcceptor;

use super::error::StreamingBindError;
use super::settings::StreamingTls;
use crate::tls::TlsCertificate;

/// Reads a chain of certificates and its key. Blocks on the disk.
///
/// # Errors
/// If a file cannot be read, or certificate and key do not fit together.
pub(super) fn open(files: &StreamingTls) -> Result<Arc<TlsCertificate>, StreamingBindError> {
    Ok(Arc::new(TlsCertificate::open(
        "streaming",
        &files.cert,
        &files.key,
    )?))
}

/// An acceptor with the certificate that is valid when a client connects.
///
/// # Errors
/// If the library has no version of TLS.
pub(super) fn acceptor(pair: Arc<TlsCertificate>) -> Result<TlsAcceptor, StreamingBindError> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(StreamingBindError::Tls)?
        .with_no_client_auth()
        .with_cert_resolver(pair);
    // Upgrades require HTTP/1.1, so HTTP/2 must not be negotiated.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
