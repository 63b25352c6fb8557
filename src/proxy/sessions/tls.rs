//! Sessions under TLS. The path with its token is encrypted too, so each session is identified by a port of its own.
//!
//! Our URL differs from the upstream's in the port alone. So the client checks the upstream's certificate, which names the
//! address, the upstream checks its own token, and neither notices the proxy.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{dial, ended, warn_refused};
use super::copy::{FirstClosed, both};
use super::exit_sniffer::{ExitReport, ExitSniffer};
use super::metrics::{UpstreamAnswer, UrlRewriteOutcome};
use super::{PendingProxy, SessionProxyState, TOKEN_LIFETIME};
use crate::streaming::listener::ACCEPT_PAUSE;
use cri_streaming::{HEAD_TIMEOUT, socket};
use cri_streaming::{ObservedSession, SessionInfo};
use cri_streaming::{SessionObservers, SessionOutcome, TokenOutcome, Transport};

/// Most open ports. Each is a file descriptor for as long as its token lives.
pub(super) const MAX_PORTS: usize = 256;
/// Most concurrent connections through one port. A client may retry after a failed handshake, which does not spend the
/// upstream's token.
const MAX_CONNECTIONS: usize = 4;
/// The first byte of a TLS client: a handshake record (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;
/// Shown in place of the protocol.
const ENCRYPTED_PROTOCOL: &str = "encrypted";

/// Opens ports, and passes them to the listener that serves them.
pub(super) struct SessionTlsPorts {
    free: Arc<Semaphore>,
    opened: mpsc::Sender<SessionTlsPort>,
    observers: SessionObservers,
}

/// A port for one session.
pub(super) struct SessionTlsPort {
    tcp: TcpListener,
    waiting: PendingProxy,
    expires: Instant,
    _slot: OwnedSemaphorePermit,
}

impl SessionTlsPorts {
    pub(super) fn new(observers: SessionObservers) -> (Self, mpsc::Receiver<SessionTlsPort>) {
        let (opened, ports) = mpsc::channel(MAX_PORTS);
        let free = Arc::new(Semaphore::new(MAX_PORTS));
        let ours = Self {
            free,
            opened,
            observers,
        };
        (ours, ports)
    }

    /// Opens a port for a session; returns its URL.
    ///
    /// # Errors
    /// Too many ports, no free port at that address, or no listener that serves them.
    pub(super) fn open(&self, waiting: PendingProxy) -> Result<String, UrlRewriteOutcome> {
        let Ok(slot) = Arc::clone(&self.free).try_acquire_owned() else {
            self.count(TokenOutcome::Full);
            return Err(UrlRewriteOutcome::LimitReached);
        };
        let tcp =
            listen(waiting.upstream.address.ip()).map_err(|_| UrlRewriteOutcome::Unavailable)?;
        let address = tcp
            .local_addr()
            .map_err(|_| UrlRewriteOutcome::Unavailable)?;
        let url = format!("https://{address}{}", waiting.upstream.target);
        let port = SessionTlsPort {
            tcp,
            waiting,
            expires: Instant::now() + TOKEN_LIFETIME,
            _slot: slot,
        };
        self.opened
            .try_send(port)
            .map_err(|_| UrlRewriteOutcome::Unavailable)?;
        self.count(TokenOutcome::Issued);
        Ok(url)
    }

    fn count(&self, outcome: TokenOutcome) {
        self.observers.each(|observer| observer.token(outcome, 1));
    }
}

/// Listens on an ephemeral port.
fn listen(ip: IpAddr) -> io::Result<TcpListener> {
    let socket = match ip {
        IpAddr::V4(_) => TcpSocket::new_v4(),
        IpAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.bind(SocketAddr::new(ip, 0))?;
    socket.listen(u32::try_from(MAX_CONNECTIONS).unwrap_or(u32::MAX))
}

impl SessionTlsPort {
    /// Accepts connections as long as the token lives; then runs until the last connection ends, or `stop` fires.
    pub(super) async fn serve(self, shared: &Arc<SessionProxyState>, stop: &CancellationToken) {
        let used = Arc::<AtomicBool>::default();
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep_until(self.expires) => break,
                Some(_) = connections.join_next() => {}
                accepted = self.tcp.accept(), if connections.len() < MAX_CONNECTIONS => {
                    let Ok((client, _)) = accepted else {
                        // Usually for lack of file descriptors.
                        sleep(ACCEPT_PAUSE).await;
                        continue;
                    };
                    let upstream = self.waiting.upstream.address;
                    let about = self.waiting.about.clone();
                    let slot = Arc::clone(&self.waiting.slot);
                    let (shared, used, stop) = (Arc::clone(shared), Arc::clone(&used), stop.clone());
                    connections.spawn(async move {
                        if is_tls(&client, &stop).await {
                            if !used.swap(true, Ordering::Relaxed) {
                                shared.ports.count(TokenOutcome::Used);
                            }
                            session(&shared, client, upstream, about, &stop).await;
                        }
                        drop(slot);
                    });
                }
            }
        }
        // The sessions do not need the listening socket.
        drop(self);
        while connections.join_next().await.is_some() {}
        if !used.load(Ordering::Relaxed) {
            shared.ports.count(TokenOutcome::Expired);
        }
    }
}

/// Returns whether the client begins with TLS, where the client sends first. Other clients do not cost the upstream a
/// connection.
async fn is_tls(client: &TcpStream, stop: &CancellationToken) -> bool {
    let mut first = [0];
    tokio::select! {
        read = timeout(HEAD_TIMEOUT, client.peek(&mut first)) => {
            matches!(read, Ok(Ok(1))) && first == [HANDSHAKE]
        }
        () = stop.cancelled() => false,
    }
}

/// A connection from its first byte to its last. The call that requested it records its purpose.
async fn session(
    shared: &SessionProxyState,
    mut client: TcpStream,
    upstream: SocketAddr,
    about: SessionInfo,
    stop: &CancellationToken,
) {
    // A broken connection is noticed soon enough.
    let _ = socket::configure(&client);
    let dialled = Instant::now();
    let upstream = tokio::select! {
        upstream = dial(upstream) => upstream,
        () = stop.cancelled() => return,
    };
    let Some(mut upstream) = upstream else {
        shared
            .metrics
            .answered(UpstreamAnswer::Nothing, dialled.elapsed());
        return warn_refused(&about, None);
    };
    let kind = about.kind;
    let session =
        ObservedSession::begin(about, Transport::Tls, ENCRYPTED_PROTOCOL, &shared.observers);
    let meter = session.meter();
    let mut blind = ExitSniffer::new(kind, Transport::Tls);
    let first = tokio::select! {
        first = both(&mut client, &mut upstream, &meter, &mut blind) => first,
        () = stop.cancelled() => return session.end(SessionOutcome::Shutdown.into()),
    };
    // The only evidence is who closed first, and whether the upstream sent anything.
    let report = ExitReport {
        failed: matches!(first, FirstClosed::Upstream | FirstClosed::Both) && meter.bytes().1 == 0,
        ..ExitReport::default()
    };
    session.end(ended(first, report, kind, None));
}
