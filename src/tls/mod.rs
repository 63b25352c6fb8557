//! Certificates of TLS servers, and of criscope as a client: a chain and its key in two PEM files, which are read again when they
//! change.
//!
//! Renewal replaces files in many ways: cert-manager and the kubelet swap a symlink, certbot renames, scripts write in place. This
//! module compares the content, so the way and timestamps do not matter. A key that does not match its certificate is not used:
//! the last valid pair is served until the files are valid again. Open connections are never touched.

mod clients;
pub(crate) mod metrics;
mod validity;

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

pub use self::clients::ClientCertificates;
pub use self::metrics::CertificateMetrics;
use self::validity::not_after;
use crate::telemetry::BackgroundJob;

/// Largest file, in bytes.
const MAX_FILE_LEN: u64 = 1 << 20;

/// Interval between two reads of the files by [`TlsCertificate::watch`].
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The reason why a certificate and its key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsCertificateError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// A file is not PEM, or has the wrong content.
    #[error("{}: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: pem::Error,
    },
    /// The certificate cannot be used, or the key belongs to another one.
    #[error("{}: {source}", path.display())]
    Certificate {
        /// The file of the certificate.
        path: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
}

/// A certificate chain and its key. Servers use it as their certificate resolver.
#[derive(Debug)]
pub struct TlsCertificate {
    /// The name of its use in logs and metrics.
    endpoint: &'static str,
    cert: PathBuf,
    key: PathBuf,
    state: Mutex<CertificateState>,
}

#[derive(Debug, Default)]
struct CertificateState {
    served: Option<ServedCertificate>,
    /// The hash of the content that was tried last.
    tried: Option<[u8; 32]>,
    /// Set if the content that was tried last is served.
    is_fresh: bool,
}

#[derive(Debug)]
struct ServedCertificate {
    key: Arc<CertifiedKey>,
    /// The earliest end of the chain, in seconds since 1970.
    not_after: Option<i64>,
}

/// The bytes of both files.
struct CertificateContent {
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl TlsCertificate {
    /// Reads the files of a server. Blocks on the disk.
    ///
    /// # Errors
    /// If the files cannot be used.
    pub fn open(
        endpoint: &'static str,
        cert: &Path,
        key: &Path,
    ) -> Result<Self, TlsCertificateError> {
        let pair = Self {
            endpoint,
            cert: cert.to_owned(),
            key: key.to_owned(),
            state: Mutex::default(),
        };
        let content = pair.read()?;
        let served = pair.parse(&content)?;
        *pair.state() = CertificateState {
            served: Some(served),
            tried: Some(content.hash()),
            is_fresh: true,
        };
        Ok(pair)
    }

    /// Reads the files of a client. The client reads them itself for each connection and reports its errors; here errors are
    /// only measured. Blocks on the disk.
    #[must_use]
    pub fn for_client(endpoint: &'static str, cert: &Path, key: &Path) -> Self {
        let pair = Self {
            endpoint,
            cert: cert.to_owned(),
            key: key.to_owned(),
            state: Mutex::default(),
        };
        pair.refresh();
        pair
    }

    /// Returns whether the certificate and key come from these files.
    #[must_use]
    pub fn has_files(&self, cert: &Path, key: &Path) -> bool {
        self.cert == cert && self.key == key
    }

    /// Reads the files again. Changed content is served from now on if it can be used; otherwise it is reported once. Blocks on
    /// the disk.
    pub fn refresh(&self) {
        let read = self.read();
        let hash = match &read {
            Ok(content) => content.hash(),
            Err(error) => Sha256::digest(error.to_string()).into(),
        };
        if self.state().tried == Some(hash) {
            return;
        }
        let job = BackgroundJob::TlsReload.begin();
        job.set("criscope.endpoint", self.endpoint);
        let parsed = read.and_then(|content| self.parse(&content));
        let mut state = self.state();
        state.tried = Some(hash);
        state.is_fresh = parsed.is_ok();
        match parsed {
            Ok(served) => {
                let not_after = served.not_after;
                state.served = Some(served);
                drop(state);
                tracing::info!(
                    event = "tls.reloaded",
                    endpoint = self.endpoint,
                    file = %self.cert.display(),
                    not_after,
                    "certificate read; new connections get it"
                );
            }
            Err(error) => {
                drop(state);
                job.failed("rejected", &error);
                tracing::error!(
                    event = "tls.rejected",
                    endpoint = self.endpoint,
                    error.message = %error,
                    "certificate or key cannot be used; a server goes on with the previous pair"
                );
            }
        }
    }

    /// Refreshes every few seconds until `stop`.
    pub async fn watch(self: Arc<Self>, stop: CancellationToken) {
        let mut tick = interval(CHECK_INTERVAL);
        // A disk that hangs must not be followed by a burst.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            let pair = Arc::clone(&self);
            let refreshed = spawn_blocking(move || pair.refresh());
            if stop.run_until_cancelled(refreshed).await.is_none() {
                return;
            }
        }
    }

    /// The end of the chain, in seconds since 1970; `None` if a certificate does not say.
    fn not_after(&self) -> Option<i64> {
        self.state().served.as_ref()?.not_after
    }

    fn is_fresh(&self) -> bool {
        self.state().is_fresh
    }

    fn state(&self) -> MutexGuard<'_, CertificateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> Result<CertificateContent, TlsCertificateError> {
        Ok(CertificateContent {
            cert: read(&self.cert)?,
            key: read(&self.key)?,
        })
    }

    fn parse(
        &self,
        content: &CertificateContent,
    ) -> Result<ServedCertificate, TlsCertificateError> {
        let chain = CertificateDer::pem_slice_iter(&content.cert)
            .collect::<Result<Vec<_>, _>>()
            .map_err(in_file(&self.cert))?;
        if chain.is_empty() {
            return Err(in_file(&self.cert)(pem::Error::NoItemsFound));
        }
        let private = PrivateKeyDer::from_pem_slice(&content.key).map_err(in_file(&self.key))?;
        let ends = chain
            .iter()
            .map(|certificate| not_after(certificate))
            .collect::<Option<Vec<_>>>();
        let key = CertifiedKey::from_der(chain, private, &ring::default_provider());
        let key = key.map_err(|source| TlsCertificateError::Certificate {
            path: self.cert.clone(),
            source,
        })?;
        Ok(ServedCertificate {
            key: Arc::new(key),
            not_after: ends.and_then(|ends| ends.into_iter().min()),
        })
    }
}

impl ResolvesServerCert for TlsCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let state = self.state();
        state.served.as_ref().map(|served| Arc::clone(&served.key))
    }
}

impl CertificateContent {
    fn hash(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        hasher.update(self.cert.len().to_le_bytes());
        hasher.update(&self.cert);
        hasher.update(&self.key);
        hasher.finalize().into()
    }
}

fn in_file(path: &Path) -> impl FnOnce(pem::Error) -> TlsCertificateError {
    let path = path.to_owned();
    move |source| TlsCertificateError::Pem { path, source }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsCertificateError> {
    read_regular_file(path).map_err(|source| TlsCertificateError::Read {
        path: path.to_owned(),
        source,
    })
}

fn read_regular_file(path: &Path) -> io::Result<Vec<u8>> {
    // A FIFO would block for good.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut content = Vec::new();
    let mut file = File::open(path)?.take(MAX_FILE_LEN + 1);
    file.read_to_end(&mut content)?;
    if content.len() as u64 > MAX_FILE_LEN {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(content)
}

#[cfg(test)]
mod tests;
