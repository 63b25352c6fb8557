//! The listener: accepts connections within a limit, terminates TLS, and passes them to the server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cri_streaming::{HEAD_TIMEOUT, HttpServer, SessionServer, socket};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::tls::TlsCertificate;
use crate::uds::limit::{ConnectionLimit, EvictionPolicy};

/// Upper bound of connections without a session: their request is being read.
pub(crate) const MAX_PENDING_CONNECTIONS: usize = 64;
/// Interval of removing expired tokens.
pub(crate) const TOKEN_SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// How long sessions may take to end when the server stops.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept, usually for lack of file descriptors.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The socket of a server.
pub struct StreamingListener {
    pub(super) tcp: TcpListener,
    pub(super) address: SocketAddr,
    pub(super) tls: Option<(TlsAcceptor, Arc<TlsCertificate>)>,
    pub(super) server: SessionServer,
    pub(super) max_sessions: usize,
}

impl std::fmt::Debug for StreamingListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener")
            .field("address", &self.address)
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

/// Shared by the connections of a listener.
#[derive(Clone)]
struct ConnectionHandler {
    http: HttpServer,
    tls: Option<TlsAcceptor>,
    stop: CancellationToken,
}

impl StreamingListener {
    /// The address with its real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server behind it, which issues the URLs of sessions.
    pub fn server(&self) -> &SessionServer {
        &self.server
    }

    /// The certificate that it shows; `None` without TLS.
    pub fn certificate(&self) -> Option<&Arc<TlsCertificate>> {
        self.tls.as_ref().map(|(_, pair)| pair)
    }

    /// Serves until `stop` fires; then every session is ended, which takes a moment.
    pub async fn serve(self, stop: CancellationToken) {
        // An upgraded connection returns its permit, so permits belong to clients without a valid token so far. The oldest
        // is evicted for a new one.
        let max_connections = self.max_sessions + MAX_PENDING_CONNECTIONS;
        let limit = ConnectionLimit::new(max_connections, EvictionPolicy::Any);
        let tasks = TaskTracker::new();
        let (tls, pair) = self.tls.unzip();
        if let Some(pair) = pair {
            tasks.spawn(pair.watch(stop.clone()));
        }
        let serving = ConnectionHandler {
            http: self.server.http(stop.clone(), tasks.clone()),
            tls,
            stop,
        };
        let mut sweep = tokio::time::interval(TOKEN_SWEEP_INTERVAL);
        loop {
            let accept = async {
                let (tcp, _) = self.tcp.accept().await?;
                Ok::<_, io::Error>((tcp, limit.take().await))
            };
            tokio::select! {
                () = serving.stop.cancelled() => break,
                _ = sweep.tick() => self.server.sweep(),
                accepted = accept => match accepted {
                    Ok((tcp, permit)) => {
                        let connection = serving.clone().connection(tcp);
                        tasks.spawn(async move {
                            tokio::select! {
                                () = connection => {}
                                () = permit.wanted() => {}
                            }
                        });
                    }
                    Err(error) => {
                        tracing::warn!(event = "stream.accept", error.message = %error, "connection not accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(self.tcp);
        tasks.close();
        if timeout(STOP_TIMEOUT, tasks.wait()).await.is_err() {
            let left = tasks.len();
            tracing::warn!(event = "stream.stop", left, "sessions did not end in time");
        }
    }
}

impl ConnectionHandler {
    async fn connection(self, tcp: TcpStream) {
        // A broken connection is noticed soon enough.
        let _ = socket::configure(&tcp);
        let Some(tls) = self.tls.clone() else {
            return self.http.serve_connection(tcp).await;
        };
        let accepted = tokio::select! {
            accepted = timeout(HEAD_TIMEOUT, tls.accept(tcp)) => accepted,
            () = self.stop.cancelled() => return,
        };
        if let Ok(Ok(tls)) = accepted {
            self.http.serve_connection(tls).await;
        }
    }
}
