//! Metrics and health for clients beyond this node, as a web configuration file of Prometheus' exporters says: TLS, client
//! certificates, passwords, tokens. The pages are not served here.
//!
//! The file and those it names are read for each connection, so that renewed certificates and changed passwords need no restart, and
//! an unusable file closes the endpoint instead of opening it.

mod guard;
mod web_config;

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::middleware::from_fn_with_state;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use self::guard::{Attempts, Guard};
use self::web_config::WebConfig;
pub use self::web_config::WebConfigError;
use super::serve::{self, HEAD_TIMEOUT};
use super::settings::Metrics;
use super::{Sources, always, finished};

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

/// Reads a web configuration file and those that it names, to check them.
///
/// # Errors
/// If one of them cannot be used.
pub fn check(path: &Path) -> Result<(), WebConfigError> {
    WebConfig::load(path).map(drop)
}

/// Serves `/metrics`, `/livez` and `/readyz` until `stop`.
///
/// # Errors
/// If the listener cannot be registered with the runtime.
pub async fn serve(
    listener: TcpListener,
    sources: Sources,
    settings: Metrics,
    stop: CancellationToken,
) -> io::Result<()> {
    let remote = Arc::new(Remote {
        app: finished(always(), sources),
        settings,
        attempts: Attempts::default(),
        last_error: Mutex::default(),
    });
    let admit = |stream| Arc::clone(&remote).admit(stream);
    serve::admitted(listener, stop, admit).await
}

/// Bytes of a client, with or without TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

struct Remote {
    app: Router,
    settings: Metrics,
    attempts: Attempts,
    /// The last error of the file: the same one is logged once.
    last_error: Mutex<Option<String>>,
}

impl Remote {
    /// The stream of a connection, and the routes with what its client must show.
    async fn admit(self: Arc<Self>, stream: TcpStream) -> Option<(Box<dyn Stream>, Router)> {
        match timeout(HEAD_TIMEOUT, self.handshake(stream)).await {
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
        &self,
        stream: TcpStream,
    ) -> Result<(Box<dyn Stream>, Router), ConnectionError> {
        let path = self.settings.web_config.clone();
        let config = spawn_blocking(move || WebConfig::load(&path)).await??;
        let mut guard = Guard::new(&config, self.attempts.clone());
        let stream: Box<dyn Stream> = match config.tls {
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

    fn report(&self, error: &ConnectionError) {
        // Handshakes fail by what clients do.
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
                "metrics.listen serves nobody"
            );
            *last = Some(text);
        }
    }
}
