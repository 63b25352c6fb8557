//! From a connection to a session: accepts, reads the head of the request, and answers it.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::run::{self, Start};
use super::server::Shared;
use super::upgrade::negotiate;
use crate::uds::limit::{ConnectionLimit, Evict};

/// How long a client may take for the head of its request, and before that for TLS.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest head of a request, in bytes.
const MAX_HEAD: usize = 64 << 10;
/// Connections beyond the sessions: those whose request is being read.
pub(super) const MORE_CONNECTIONS: usize = 64;
/// How often old tokens are looked for.
pub(super) const SWEEP: Duration = Duration::from_secs(10);
/// How long sessions may take to end when the server stops.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// What is waited after a connection could not be accepted, which mostly means that there are too many open files.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Silence after which a peer is asked whether it is still there, and how it is then asked. A peer that is gone is noticed
/// after two minutes if nothing was on its way to it, otherwise when TCP gives up (a quarter of an hour). There is no
/// `TCP_USER_TIMEOUT`: it also ends connections whose peer is there and does not read for a while, such as a terminal
/// that somebody has stopped.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// The socket of a server.
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener")
            .field("address", &self.address)
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

/// What each connection is given.
#[derive(Clone)]
struct Serving {
    shared: Arc<Shared>,
    tls: Option<TlsAcceptor>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Listener {
    pub(super) fn new(
        tcp: TcpListener,
        address: SocketAddr,
        tls: Option<TlsAcceptor>,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            tcp,
            address,
            tls,
            shared,
        }
    }

    /// The address with its real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` fires; then every session is ended, which takes a moment.
    pub async fn serve(self, stop: CancellationToken) {
        // An upgraded connection gives its place back, so these are clients whose request is being read, and who have
        // not shown a token yet. The oldest makes room for a newcomer.
        let most = self.shared.max_sessions + MORE_CONNECTIONS;
        let places = ConnectionLimit::new(most, Evict::Any);
        let serving = Serving {
            shared: self.shared,
            tls: self.tls,
            stop,
            tasks: TaskTracker::new(),
        };
        let mut sweep = tokio::time::interval(SWEEP);
        loop {
            let accept = async {
                let (tcp, _) = self.tcp.accept().await?;
                Ok::<_, io::Error>((tcp, places.take().await))
            };
            tokio::select! {
                () = serving.stop.cancelled() => break,
                _ = sweep.tick() => serving.shared.tokens.sweep(),
                accepted = accept => match accepted {
                    Ok((tcp, place)) => {
                        let connection = serving.clone().connection(tcp);
                        serving.tasks.spawn(async move {
                            tokio::select! {
                                () = connection => {}
                                () = place.wanted() => {}
                            }
                        });
                    }
                    Err(error) => {
                        tracing::warn!(event = "stream.accept", %error, "connection not accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(self.tcp);
        serving.tasks.close();
        if timeout(STOP_TIMEOUT, serving.tasks.wait()).await.is_err() {
            let left = serving.tasks.len();
            tracing::warn!(event = "stream.stop", left, "sessions did not end in time");
        }
    }
}

/// Small writes are not put off, and a peer that vanishes is noticed.
pub(super) fn tune(tcp: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_tcp_nodelay(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(tcp, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(tcp, KEEPALIVE_PROBES)?;
    sockopt::set_socket_keepalive(tcp, true)
}

impl Serving {
    async fn connection(self, tcp: TcpStream) {
        // A connection that is gone already is noticed soon enough.
        let _ = tune(&tcp);
        let Some(tls) = self.tls.clone() else {
            return self.http(tcp).await;
        };
        let accepted = tokio::select! {
            accepted = timeout(HEAD_TIMEOUT, tls.accept(tcp)) => accepted,
            () = self.stop.cancelled() => return,
        };
        if let Ok(Ok(tls)) = accepted {
            self.http(tls).await;
        }
    }

    /// Reads one request after another, until one is upgraded.
    async fn http<T>(self, io: T)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(|request| {
            let response = self.answer(request);
            async { Ok::<_, Infallible>(response) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(io), service)
            .with_upgrades();
        tokio::select! {
            // What can go wrong here is the client's, and it has been told.
            _ = connection => {}
            () = self.stop.cancelled() => {}
        }
    }

    fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if request.version() != Version::HTTP_11 {
            return refusal(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.1 only");
        }
        if !matches!(*request.method(), Method::GET | Method::POST) {
            return refusal(StatusCode::METHOD_NOT_ALLOWED, "GET and POST only");
        }
        // Before the token, so that it can be used again.
        let Ok(place) = Arc::clone(&self.shared.places).try_acquire_owned() else {
            return refusal(StatusCode::SERVICE_UNAVAILABLE, "too many sessions");
        };
        let Some(wanted) = self.shared.tokens.take(request.uri().path()) else {
            return refusal(StatusCode::NOT_FOUND, "no such session");
        };
        let answer = negotiate(wanted.request.kind(), request.method(), request.headers());
        let Some(chosen) = answer.chosen else {
            let mut response = refusal(answer.status, answer.why);
            response.headers_mut().extend(answer.headers);
            return response;
        };
        let start = match Start::new(wanted, chosen) {
            Ok(start) => start,
            Err(why) => return refusal(StatusCode::BAD_REQUEST, why),
        };
        let session = run::session(
            Arc::clone(&self.shared),
            start,
            hyper::upgrade::on(request),
            place,
            self.stop.clone(),
        );
        self.tasks.spawn(session);
        let mut response = Response::new(Full::default());
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        response
    }
}

fn refusal(status: StatusCode, why: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(why));
    *response.status_mut() = status;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}
