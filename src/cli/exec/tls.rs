//! TLS to the server of sessions.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How the server is verified.
#[derive(Debug)]
pub(super) struct TlsVerification<'a> {
    /// A file of authorities; otherwise those of the system.
    pub(super) authorities: Option<&'a Path>,
    /// The name in its certificate; otherwise the host of the URL.
    pub(super) server_name: Option<&'a str>,
}

/// Why TLS is not possible.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file has no certificates in PEM.
    #[error("{}: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: pem::Error,
    },
    /// There are no authorities.
    #[error("no certificate authorities; name a file with --tls-ca")]
    NoAuthorities,
    /// No certificate has such a name.
    #[error("{0:?} is not a name of a server")]
    Name(String),
    /// The library refuses a certificate.
    #[error("TLS: {0}")]
    Library(#[from] rustls::Error),
    /// The server is not the one that was expected, or does not speak TLS.
    #[error("TLS to {host}: {source}")]
    Handshake {
        /// The host of the URL.
        host: String,
        /// The reason.
        source: io::Error,
    },
}

impl TlsVerification<'_> {
    pub(super) async fn connect(
        &self,
        host: &str,
        tcp: TcpStream,
    ) -> Result<TlsStream<TcpStream>, Error> {
        let name = self.server_name.unwrap_or(host);
        let server = ServerName::try_from(name.to_owned());
        let server = server.map_err(|_| Error::Name(name.to_owned()))?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.roots()?)
            .with_no_client_auth();
        // Sessions are upgrades, which HTTP/2 does not have.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        let tls = connector.connect(server, tcp).await;
        tls.map_err(|source| Error::Handshake {
            host: host.to_owned(),
            source,
        })
    }

    fn roots(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        match self.authorities {
            Some(path) => {
                let certificates = CertificateDer::pem_file_iter(path);
                let certificates = certificates.and_then(Iterator::collect::<Result<Vec<_>, _>>);
                let certificates = certificates.map_err(|source| Error::Pem {
                    path: path.to_owned(),
                    source,
                })?;
                for certificate in certificates {
                    roots.add(certificate)?;
                }
            }
            None => {
                let found = rustls_native_certs::load_native_certs().certs;
                roots.add_parsable_certificates(found);
            }
        }
        if roots.is_empty() {
            Err(Error::NoAuthorities)
        } else {
            Ok(roots)
        }
    }
}
