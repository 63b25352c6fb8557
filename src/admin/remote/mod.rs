//! Metrics and health for clients beyond this node, as a web configuration file of Prometheus' exporters says: TLS, client
//! certificates, passwords, tokens. The pages are not served here.
//!
//! The file and those it names are read for each connection, so that renewed certificates and changed passwords need no restart, and
//! an unusable file closes the endpoint instead of opening it. Only the certificate and key of the server are kept while a
//! renewal is half done, because they grant no access.

mod guard;
mod web_config;

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::middleware::from_fn_with_state;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use self::guard::{ConnectionGuard, PasswordAttempts};
use self::web_config::WebConfig;
pub use self::web_config::WebConfigError;
use super::serve::{self, REQUEST_HEAD_TIMEOUT};
use super::settings::MetricsEndpointSettings;
use super::{PageSources, always, finished};
use crate::tls::{CertificateMetrics, TlsCertificate, TlsCertificateError};

/// The name of this server in logs and metrics of its certificate.
const CERTIFICATE_ENDPOINT: &str = "metrics";

/// Why a connection is not served.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error(transparent)]
    File(#[from] WebConfigError),
    #[error(transparent)]
    Read(#[from] tokio::task::JoinError),
    /// The handshake failed.
    #[error("TLS: {0}")]
    Tls(io::Error),
}

/// Reads a web configuration file and the files that it names, to check them.
///
/// # Errors
/// If one of them cannot be used.
pub fn check(path: &Path) -> Result<(), WebConfigError> {
    WebConfig::load(path, &|cert, key| {
        TlsCertificate::open(CERTIFICATE_ENDPOINT, cert, key).map(Arc::new)
    })
    .map(drop)
}

/// Serves `/metrics`, `/livez` and `/readyz` until `stop`.
///
/// # Errors
/// If the listener cannot be registered with the runtime.
pub async fn serve(
    listener: TcpListener,
    sources: PageSources,
    settings: MetricsEndpointSettings,
    certificates: CertificateMetrics,
    stop: CancellationToken,
) -> io::Result<()> {
    let remote = Arc::new(RemoteEndpoint {
        app: finished(always(), None, sources),
        settings,
        certificates,
        pair: Mutex::default(),
        attempts: PasswordAttempts::default(),
        last_error: Mutex::default(),
    });
    serve::admitted(listener, stop, |stream| Arc::clone(&remote).admit(stream)).await
}

/// Bytes of a client, with or without TLS.
pub(super) trait ClientStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ClientStream for T {}

struct RemoteEndpoint {
    app: Router,
    settings: MetricsEndpointSettings,
    certificates: CertificateMetrics,
    /// The certificate and key of the last connection.
    pair: Mutex<Option<Arc<TlsCertificate>>>,
    attempts: PasswordAttempts,
    /// The last error of the file: the same one is logged once.
    last_error: Mutex<Option<String>>,
}

impl RemoteEndpoint {
    /// Returns the stream of a connection, and the routes behind the guard of its client.
    async fn admit(self: Arc<Self>, stream: TcpStream) -> Option<(Box<dyn ClientStream>, Router)> {
        match timeout(REQUEST_HEAD_TIMEOUT, Arc::clone(&self).handshake(stream)).await {
            Ok(Ok(admitted)) => {
                *self
                    .last_error
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = None;
                Some(admitted)
            }
            Ok(Err(error)) => {
                self.report(&error);
                None
            }
            // A client that sends nothing.
            Err(_) => None,
        }
    }

    async fn handshake(
        self: Arc<Self>,
        stream: TcpStream,
    ) -> Result<(Box<dyn ClientStream>, Router), ConnectionError> {
        let remote = Arc::clone(&self);
        let config = spawn_blocking(move || remote.config()).await??;
        let mut guard = ConnectionGuard::new(&config, self.attempts.clone());
        let stream: Box<dyn ClientStream> = match config.tls {
            None => Box::new(stream),
            Some(tls) => {
                let accepted = TlsAcceptor::from(tls.server).accept(stream).await;
                let stream = accepted.map_err(ConnectionError::Tls)?;
                let shown = stream.get_ref().1.peer_certificates();
                guard.is_allowed = tls.names.allow(shown.and_then(|chain| chain.first()));
                Box::new(stream)
            }
        };
        let app = self
            .app
            .clone()
            .layer(from_fn_with_state(guard, guard::check));
        Ok((stream, app))
    }

    /// Reads the files. Blocks on the disk.
    fn config(&self) -> Result<WebConfig, WebConfigError> {
        let file = &self.settings.web_config;
        let config = WebConfig::load(file, &|cert, key| self.open(cert, key))?;
        if config.tls.is_none() {
            *self.held() = None;
            self.certificates.forget(CERTIFICATE_ENDPOINT);
        }
        Ok(config)
    }

    /// The certificate and key of these files: as they are now, or as they were when they could be used last.
    fn open(&self, cert: &Path, key: &Path) -> Result<Arc<TlsCertificate>, TlsCertificateError> {
        let held = self.held().clone();
        if let Some(pair) = held.filter(|pair| pair.has_files(cert, key)) {
            pair.refresh();
            return Ok(pair);
        }
        let pair = Arc::new(TlsCertificate::open(CERTIFICATE_ENDPOINT, cert, key)?);
        *self.held() = Some(Arc::clone(&pair));
        self.certificates.measure(Arc::clone(&pair));
        Ok(pair)
    }

    fn held(&self) -> MutexGuard<'_, Option<Arc<TlsCertificate>>> {
        self.pair.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, error: &ConnectionError) {
        // Clients cause failed handshakes.
        if let ConnectionError::Tls(error) = error {
            tracing::debug!(event = "metrics.handshake", error.message = %error, "a TLS handshake failed");
            return;
        }
        let text = error.to_string();
        let mut last = self
            .last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() != Some(&text) {
            tracing::error!(
                event = "metrics.config",
                error.message = text,
                "metrics.listen answers no requests"
            );
            *last = Some(text);
        }
    }
}
