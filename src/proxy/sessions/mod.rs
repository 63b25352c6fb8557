//! The session proxy: sessions of an upstream pass through criscope, so that they can be measured.
//!
//! ```text
//!   Exec, Attach, PortForward --> upstream --> response with its URL
//!                                                 | url_rewrite, response, url: the URL is replaced by one of criscope's,
//!                                                 v                             or, in any doubt, left unchanged
//!   client --> listener --> connection: head, token --> dial --> the same head, with the upstream's path
//!                                                                  | copy: bytes in both directions, unchanged
//!                                                                  ' exit_sniffer: the result, if it can be read
//!   client with TLS --> tls: a port per session -------> dial --> copy
//! ```
//!
//! # Rules
//!
//! - Observation must never cost a session: anything unexpected is forwarded unchanged and counted.
//! - The upstream gets the client's bytes and the client the upstream's. Only the path of the request is changed, since it
//!   holds the token; nothing is added, and nothing is retried, since the upstream's token is spent by the first attempt.
//! - Sessions end with this process. Tokens that are unused by then are lost, since their URL is that of this process.
//! - TLS is not terminated here, which would take a certificate that the kubelet trusts: it passes through encrypted.
//! - Only URLs with a loopback address are replaced.

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
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

#[cfg(any(test, fuzzing))]
pub use self::fuzz::fuzz;
pub use self::metrics::SessionProxyMetrics;
use self::metrics::UrlRewriteOutcome;
use self::tls::{SessionTlsPort, SessionTlsPorts};
use self::url::UpstreamTarget;
use self::url_rewrite::UrlRewriteService;
use crate::grpc::CriService;
use crate::streaming::StreamingBindError;
use crate::streaming::listener::{
    ACCEPT_PAUSE, MAX_PENDING_CONNECTIONS, STOP_TIMEOUT, TOKEN_SWEEP_INTERVAL,
};
use crate::uds::limit::{ConnectionLimit, EvictionPolicy};
use cri_streaming::SessionInfo;
use cri_streaming::{SessionObserver, SessionObservers};
use cri_streaming::{SessionTokens, UrlError};

/// Lifetime of a token: shorter than the upstream's minute, which began earlier.
const TOKEN_LIFETIME: Duration = Duration::from_secs(55);
/// Most unused tokens.
const MAX_TOKENS: usize = 1000;

/// Interval of looks whether the last session has ended.
const FINISH_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A session that was requested and has not begun.
struct PendingProxy {
    upstream: UpstreamTarget,
    about: SessionInfo,
    /// A slot among the sessions, reserved from now on: a client with our URL cannot fall back to the upstream's.
    slot: Arc<OwnedSemaphorePermit>,
}

struct SessionProxyState {
    tokens: SessionTokens<PendingProxy>,
    ports: SessionTlsPorts,
    slots: Arc<Semaphore>,
    max_sessions: usize,
    observers: SessionObservers,
    metrics: SessionProxyMetrics,
    address: SocketAddr,
    closed: AtomicBool,
}

/// Replaces URLs of upstreams by URLs of criscope. Cheap to clone.
#[derive(Clone)]
pub struct SessionProxy(Arc<SessionProxyState>);

impl fmt::Debug for SessionProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionProxy")
            .field("address", &self.0.address)
            .finish_non_exhaustive()
    }
}

impl SessionProxy {
    /// Replaces the URLs in the responses of a backend.
    pub fn wrap(&self, backend: CriService) -> CriService {
        CriService::new(UrlRewriteService::new(backend, self.clone()))
    }

    /// Listens on an ephemeral port of IPv4 loopback. Nothing is served until [`SessionProxyListener::serve`].
    ///
    /// # Errors
    /// If no port can be bound.
    pub async fn bind(
        max_sessions: usize,
        metrics: SessionProxyMetrics,
        observers: Vec<Arc<dyn SessionObserver>>,
    ) -> Result<(Self, SessionProxyListener), StreamingBindError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let tcp = TcpListener::bind(address)
            .await
            .map_err(|source| StreamingBindError::Listen { address, source })?;
        let address = tcp
            .local_addr()
            .map_err(|source| StreamingBindError::Listen { address, source })?;
        let observers = SessionObservers(observers.into());
        let (ports, opened) = SessionTlsPorts::new(observers.clone());
        let shared = Arc::new(SessionProxyState {
            tokens: SessionTokens::new(
                MAX_TOKENS,
                TOKEN_LIFETIME,
                |waiting: &PendingProxy| waiting.about.kind,
                observers.clone(),
            ),
            ports,
            slots: Arc::new(Semaphore::new(max_sessions)),
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

    fn verdict(&self, verdict: UrlRewriteOutcome) {
        self.0.metrics.url(verdict);
    }

    /// Issues a URL of criscope.
    fn issue(
        &self,
        upstream: UpstreamTarget,
        about: SessionInfo,
    ) -> Result<String, UrlRewriteOutcome> {
        let shared = &self.0;
        if shared.closed.load(Ordering::Relaxed) {
            return Err(UrlRewriteOutcome::Unavailable);
        }
        // Expired tokens free their slots.
        shared.tokens.sweep();
        // The upstream may have capacity for more sessions.
        let slot = Arc::clone(&shared.slots).try_acquire_owned();
        let waiting = PendingProxy {
            upstream,
            about,
            slot: Arc::new(slot.map_err(|_| UrlRewriteOutcome::LimitReached)?),
        };
        if waiting.upstream.tls {
            return shared.ports.open(waiting);
        }
        match shared.tokens.issue(waiting) {
            Ok(path) => Ok(format!("http://{}{path}", shared.address)),
            Err(UrlError::Full) => Err(UrlRewriteOutcome::LimitReached),
            Err(_) => Err(UrlRewriteOutcome::Unavailable),
        }
    }
}

/// The listening socket of the session proxy.
pub struct SessionProxyListener {
    tcp: TcpListener,
    /// The ports for sessions with TLS.
    opened: mpsc::Receiver<SessionTlsPort>,
    shared: Arc<SessionProxyState>,
}

impl fmt::Debug for SessionProxyListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionProxyListener")
            .field("address", &self.shared.address)
            .finish_non_exhaustive()
    }
}

/// When dropped, no more URLs are issued, however the listener ended.
struct ProxyClosingGuard(Arc<SessionProxyState>);

impl Drop for ProxyClosingGuard {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Relaxed);
    }
}

impl SessionProxyListener {
    /// The address with its real port.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Serves until `stop` fires; then every session is ended. Once `finish` fires, it also ends with the last session: no URL will be issued
    /// any more, and the issued ones have expired or are used.
    pub async fn serve(mut self, finish: CancellationToken, stop: CancellationToken) {
        let shared = self.shared;
        let closing = ProxyClosingGuard(Arc::clone(&shared));
        // Sessions keep their slots; a client that has not presented a token is evicted for a new connection.
        let limit = ConnectionLimit::new(
            shared.max_sessions + MAX_PENDING_CONNECTIONS,
            EvictionPolicy::Idle,
        );
        let tasks = TaskTracker::new();
        let mut sweep = tokio::time::interval(TOKEN_SWEEP_INTERVAL);
        loop {
            let accept = async {
                let (tcp, _) = self.tcp.accept().await?;
                Ok::<_, io::Error>((tcp, limit.take().await))
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = finish.cancelled(), if !finish.is_cancelled() => {}
                () = sleep(FINISH_CHECK_INTERVAL), if finish.is_cancelled() => {
                    shared.tokens.sweep();
                    if shared.tokens.is_empty() && self.opened.is_empty() && tasks.is_empty() {
                        break;
                    }
                }
                _ = sweep.tick() => shared.tokens.sweep(),
                Some(port) = self.opened.recv() => {
                    let (shared, stop) = (Arc::clone(&shared), stop.clone());
                    tasks.spawn(async move { port.serve(&shared, &stop).await });
                }
                accepted = accept => match accepted {
                    Ok((client, slot)) => {
                        let (shared, stop) = (Arc::clone(&shared), stop.clone());
                        tasks.spawn(async move {
                            connection::serve(&shared, client, &slot, &stop).await;
                        });
                    }
                    Err(error) => {
                        tracing::warn!(event = "stream.accept", error.message = %error, "connection not accepted");
                        sleep(ACCEPT_PAUSE).await;
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
