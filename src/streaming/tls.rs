//! TLS, from files in PEM.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use tokio_rustls::TlsAcceptor;

use super::error::BindError;

/// Reads a chain of certificates and its key.
///
/// # Errors
/// If a file cannot be read, or they do not fit together.
pub(super) fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, BindError> {
    let in_file = |path: &Path| {
        let path = path.to_owned();
        move |source: pem::Error| BindError::Pem { path, source }
    };
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(in_file(cert))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(in_file(key))?;
    let wrong = |source| BindError::Tls {
        path: cert.to_owned(),
        source,
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder
                .with_no_client_auth()
                .with_single_cert(chain, private)
        })
        .map_err(wrong)?;
    // Upgrades require HTTP/1.1, so HTTP/2 must not be negotiated.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
