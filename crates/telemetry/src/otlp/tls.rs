//! TLS to the collector. The files are read for each connection, so that renewed ones need no restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// The reason why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("{}: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: pem::Error,
    },
    /// A file without a certificate.
    #[error("{}: no certificate in it", .0.display())]
    Empty(PathBuf),
    /// A certificate that cannot be used.
    #[error("{}: {source}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
    /// The system has no certificate authorities.
    #[error("no certificate authorities are installed; set telemetry.otlp.tls_ca")]
    NoAuthorities,
}

/// The files of TLS, all in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    /// Certificate authorities; `None` for the system's authorities.
    pub(super) ca: Option<PathBuf>,
    /// The certificate chain of the client, and its key.
    pub(super) client: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    /// Reads the files. Blocks on the disk.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub(super) fn config(&self, protocol: &[u8]) -> Result<Arc<ClientConfig>, TlsError> {
        let roots = match &self.ca {
            Some(path) => authorities(path)?,
            None => system_authorities()?,
        };
        let any = self.ca.as_deref().unwrap_or(Path::new("TLS"));
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(unusable(any))?
            .with_root_certificates(roots);
        let mut config = match &self.client {
            Some((chain, key)) => {
                let private = PrivateKeyDer::from_pem_file(key).map_err(in_file(key))?;
                builder
                    .with_client_auth_cert(certificates(chain)?, private)
                    .map_err(unusable(chain))?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.to_owned()];
        Ok(Arc::new(config))
    }
}

fn unusable(path: &Path) -> impl FnOnce(rustls::Error) -> TlsError {
    let path = path.to_owned();
    |source| TlsError::Certificate { path, source }
}

fn in_file(path: &Path) -> impl FnOnce(pem::Error) -> TlsError {
    let path = path.to_owned();
    |source| TlsError::Pem { path, source }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(in_file(path))?;
    if certificates.is_empty() {
        return Err(TlsError::Empty(path.to_owned()));
    }
    Ok(certificates)
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|source| TlsError::Certificate {
                path: path.to_owned(),
                source,
            })?;
    }
    Ok(roots)
}

/// The authorities of the distribution, or of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
fn system_authorities() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let (added, _) =
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match added {
        0 => Err(TlsError::NoAuthorities),
        _ => Ok(roots),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let (missing, empty) = (dir.path().join("missing"), dir.path().join("empty"));
        std::fs::write(&empty, "no PEM").expect("written");
        for (ca, wanted) in [
            (&missing, "missing: "),
            (&empty, "empty: no certificate in it"),
        ] {
            let files = TlsFiles {
                ca: Some(ca.clone()),
                client: None,
            };
            let error = files.config(b"h2").expect_err("refused").to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
