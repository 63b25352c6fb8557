//! The sessions of an upstream, led through this program so that they are seen.
//!
//! ```text
//!   Exec, Attach, PortForward --> upstream --> answer with its URL
//!                                                 | lead, answer, url: our URL in its place, or, with any doubt, the answer
//!                                                 v                    as it came
//!   client --> listener --> connection: head, token --> dial --> the same head, with the upstream's path
//!                                                                  | copy: bytes both ways, as they are
//!                                                                  ' watch: how it ended, as far as that can be read
//!   client with TLS --> tls: a port of its own --------> dial --> copy
//! ```
//!
//! # Rules
//!
//! - To see must never cost a session: whatever is not understood is passed on, counted, and left alone.
//! - The upstream gets the client's bytes and the client the upstream's. Only the path of the request is changed, since it
//!   holds the token; nothing is added, and nothing is tried again, since the upstream's token is spent by the first try.
//! - Sessions end with this program. Those that have not begun by then are served by nobody: their URL is ours.
//! - TLS is not ended here, which would take a certificate that the kubelet trusts: it passes through unread.
//! - Only URLs with an address on loopback are led.

mod connection;
mod copy;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod head;
mod response;

mod exit_sniffer;
pub(crate) mod metrics;
mod tls;
mod url;
mod url_rewrite;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

#[cfg(any(test, fuzzing))]
pub use self::fuzz::fuzz;
pub use self::metrics::SessionProxyMetrics;
use self::metrics::UrlOutcome;
use self::tls::{TlsPort, TlsPorts};
use self::url::Upstream;
use self::url_rewrite::UrlRewrite;
use crate::grpc::CriService;
use crate::streaming::BindError;
use crate::streaming::listener::{ACCEPT_PAUSE, MORE_CONNECTIONS, STOP_TIMEOUT, SWEEP};
use crate::uds::limit::{ConnectionLimit, Evict};
use cri_streaming::SessionInfo;
use cri_streaming::{NoToken, Tokens};
use cri_streaming::{Observer, Observers};

/// How long a token may be used: shorter than an upstream's minute, which begins before ours.
const TOKEN_LIFETIME: Duration = Duration::from_secs(55);
/// Tokens that may wait to be used.
const MAX_TOKENS: usize = 1000;

/// A session that was asked for and has not begun.
struct PendingProxy {
    upstream: Upstream,
    about: SessionInfo,
    /// Its place among the sessions, from now on: a client that has our URL cannot go back to the upstream's.
    place: Arc<OwnedSemaphorePermit>,
}

struct Shared {
    tokens: Tokens<PendingProxy>,
    ports: TlsPorts,
    places: Arc<Semaphore>,
    max_sessions: usize,
    observers: Observers,
    metrics: SessionProxyMetrics,
    address: SocketAddr,
    closed: AtomicBool,
}

/// Gives URLs of ours for those of upstreams. As a layer it does so in the answers of a backend. Cheap to clone.
#[derive(Clone)]
pub struct SessionProxy(Arc<Shared>);

impl fmt::Debug for SessionProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionProxy")
            .field("address", &self.0.address)
            .finish_non_exhaustive()
    }
}

impl tower::Layer<CriService> for SessionProxy {
    type Service = CriService;

    fn layer(&self, backend: CriService) -> CriService {
        CriService::new(UrlRewrite::new(backend, self.clone()))
    }
}

impl SessionProxy {
    /// Listens on a port of IPv4 loopback that the system chooses. Nothing is served until [`SessionProxyListener::serve`].
    ///
    /// # Errors
    /// If there is no such port.
    pub async fn bind(
        max_sessions: usize,
        metrics: SessionProxyMetrics,
        observers: Vec<Arc<dyn Observer>>,
    ) -> Result<(Self, SessionProxyListener), BindError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let failed = |source| BindError::Listen { address, source };
        let tcp = TcpListener::bind(address).await.map_err(failed)?;
        let address = tcp.local_addr().map_err(failed)?;
        let observers = Observers(observers.into());
        let (ports, opened) = TlsPorts::new(observers.clone());
        let kind = |waiting: &PendingProxy| waiting.about.kind;
        let shared = Arc::new(Shared {
            tokens: Tokens::new(MAX_TOKENS, TOKEN_LIFETIME, kind, observers.clone()),
            ports,
            places: Arc::new(Semaphore::new(max_sessions)),
            max_sessions,
            observers,
            metrics,
            address,
            closed: AtomicBool::new(false),
        });
        let listener = SessionProxyListener {
            tcp,
            opened,
            shared: Arc::clone(&shared),
        };
        Ok((Self(shared), listener))
    }

    fn verdict(&self, verdict: UrlOutcome) {
        self.0.metrics.url(verdict);
    }

    /// A URL of ours.
    fn issue(&self, upstream: Upstream, about: SessionInfo) -> Result<String, UrlOutcome> {
        let shared = &self.0;
        if shared.closed.load(Ordering::Relaxed) {
            return Err(UrlOutcome::Unavailable);
        }
        // Those that nobody has come for give their places back.
        shared.tokens.sweep();
        // The upstream has room for more sessions, maybe.
        let place = Arc::clone(&shared.places).try_acquire_owned();
        let waiting = PendingProxy {
            upstream,
            about,
            place: Arc::new(place.map_err(|_| UrlOutcome::LimitReached)?),
        };
        if waiting.upstream.tls {
            return shared.ports.open(waiting);
        }
        match shared.tokens.issue(waiting) {
            Ok(path) => Ok(format!("http://{}{path}", shared.address)),
            Err(NoToken::Full) => Err(UrlOutcome::LimitReached),
            Err(NoToken::Random) => Err(UrlOutcome::Unavailable),
        }
    }
}

/// The socket of a relay.
pub struct SessionProxyListener {
    tcp: TcpListener,
    /// The ports for sessions with TLS.
    opened: mpsc::Receiver<TlsPort>,
    shared: Arc<Shared>,
}

impl fmt::Debug for SessionProxyListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionProxyListener")
            .field("address", &self.shared.address)
            .finish_non_exhaustive()
    }
}

/// From when on no URL is given out, whatever ends the listener.
struct Closing(Arc<Shared>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Relaxed);
    }
}

impl SessionProxyListener {
    /// The address with its real port.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Serves until `stop` fires; then every session is ended.
    pub async fn serve(mut self, stop: CancellationToken) {
        let shared = self.shared;
        let closing = Closing(Arc::clone(&shared));
        // Sessions keep their places; a client that has not shown a token makes room for a newcomer.
        let places = ConnectionLimit::new(shared.max_sessions + MORE_CONNECTIONS, Evict::Idle);
        let tasks = TaskTracker::new();
        let mut sweep = tokio::time::interval(SWEEP);
        loop {
            let accept = async {
                let (tcp, _) = self.tcp.accept().await?;
                Ok::<_, io::Error>((tcp, places.take().await))
            };
            tokio::select! {
                () = stop.cancelled() => break,
                _ = sweep.tick() => shared.tokens.sweep(),
                Some(port) = self.opened.recv() => {
                    let (shared, stop) = (Arc::clone(&shared), stop.clone());
                    tasks.spawn(async move { port.serve(&shared, &stop).await });
                }
                accepted = accept => match accepted {
                    Ok((client, place)) => {
                        let (shared, stop) = (Arc::clone(&shared), stop.clone());
                        tasks.spawn(async move {
                            connection::serve(&shared, client, &place, &stop).await;
                        });
                    }
                    Err(error) => {
                        tracing::warn!(event = "stream.accept", error.message = %error, "connection not accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(closing);
        drop((self.tcp, self.opened));
        tasks.close();
        if timeout(STOP_TIMEOUT, tasks.wait()).await.is_err() {
            let left = tasks.len();
            tracing::warn!(event = "stream.stop", left, "sessions did not end in time");
        }
    }
}

#[cfg(test)]
mod tests;
