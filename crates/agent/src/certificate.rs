//! The certificate of the agent: from files, which may be renewed at any time, or self-signed, like the kubelet's.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The reason why there is no certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentCertificateError {
    /// A file cannot be read.
    #[error("{}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// A file is not PEM.
    #[error("{}: {source}", file.display())]
    Pem {
        /// The file.
        file: PathBuf,
        /// The error of the parser.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key do not belong together, or their algorithm is unknown.
    #[error("certificate and key: {0}")]
    Pair(#[from] rustls::Error),
    /// No certificate could be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// The certificate, and its source.
pub struct AgentCertificate {
    /// Files of the certificate chain and the key, in PEM; `None` for a self-signed certificate.
    files: Option<(PathBuf, PathBuf)>,
    /// The configuration, and the modification times of its files.
    current: Mutex<(Arc<ServerConfig>, [Option<SystemTime>; 2])>,
}

impl fmt::Debug for AgentCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = &self.files;
        f.debug_struct("Certificate")
            .field("files", files)
            .finish_non_exhaustive()
    }
}

impl AgentCertificate {
    /// Reads the certificate from files: a chain and its key.
    ///
    /// # Errors
    /// If they cannot be read or do not belong together.
    pub fn from_files(chain: &Path, key: &Path) -> Result<Self, AgentCertificateError> {
        let files = Some((chain.to_owned(), key.to_owned()));
        let current = (read(chain, key)?, times(chain, key));
        Ok(Self {
            files,
            current: Mutex::new(current),
        })
    }

    /// Makes a self-signed certificate for this name.
    ///
    /// # Errors
    /// If none can be made, for example because `name` is not a valid host name.
    pub fn self_signed(name: &str) -> Result<Self, AgentCertificateError> {
        let made = rcgen::generate_simple_self_signed([name.to_owned()])?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = config(vec![made.cert.der().clone()], key.into())?;
        Ok(Self {
            files: None,
            current: Mutex::new((config, [None; 2])),
        })
    }

    /// The configuration for a connection, from the files as they are now. Invalid files are ignored: then the last valid
    /// configuration stays.
    pub fn config(&self) -> Arc<ServerConfig> {
        let mut current = match self.current.lock() {
            Ok(current) => current,
            Err(poisoned) => poisoned.into_inner(),
        };
        if let Some((chain, key)) = &self.files {
            let now = times(chain, key);
            if now != current.1 {
                match read(chain, key) {
                    Ok(config) => *current = (config, now),
                    // Both files are rarely renewed in the same instant: the next connection tries again.
                    Err(error) => {
                        tracing::warn!(event = "agent.certificate", %error, "the certificate was not renewed")
                    }
                }
            }
        }
        Arc::clone(&current.0)
    }
}

fn times(chain: &Path, key: &Path) -> [Option<SystemTime>; 2] {
    [chain, key].map(|file| fs::metadata(file).ok()?.modified().ok())
}

fn read(chain: &Path, key: &Path) -> Result<Arc<ServerConfig>, AgentCertificateError> {
    let certs: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read_file(chain)?).collect();
    let certs = certs.map_err(not_pem(chain))?;
    let key = PrivateKeyDer::from_pem_slice(&read_file(key)?).map_err(not_pem(key))?;
    config(certs, key)
}

fn read_file(file: &Path) -> Result<Vec<u8>, AgentCertificateError> {
    fs::read(file).map_err(|source| AgentCertificateError::Read {
        file: file.to_owned(),
        source,
    })
}

fn not_pem(file: &Path) -> impl FnOnce(rustls::pki_types::pem::Error) -> AgentCertificateError {
    let file = file.to_owned();
    move |source| AgentCertificateError::Pem { file, source }
}

fn config(
    certs: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, AgentCertificateError> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certs, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
