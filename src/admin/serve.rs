//! Serves the routes over TCP and over the unix socket, within bounds: a client that sends nothing, sends an endless head or
//! never reads its response occupies one connection for a limited time and cannot shut out others.

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::unistd::geteuid;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::uds::limit::{ConnectionLimit, ConnectionPermit, EvictionPolicy};

/// Most connections over TCP, and over the socket of agents, at a time. At the limit, one that has not sent its request yet is closed.
const MAX_CONNECTIONS: usize = 64;
/// Most connections to root's socket.
const MAX_SOCKET_CONNECTIONS: usize = 16;
/// Time limit for the head of a request, and for a TLS handshake.
pub(super) const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for a connection, until its response is read. It carries one request.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(30);
/// Largest head of a request, in bytes.
const MAX_REQUEST_HEAD_BYTES: usize = 16 << 10;
/// A response above this size is large, in bytes.
const LARGE_RESPONSE_BYTES: u64 = 1 << 20;
/// Most large responses being sent at a time.
const MAX_LARGE_RESPONSES: usize = 8;
/// Pause after a failed accept, for example when the process is out of file descriptors.
const FAILED_ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The peer on the unix socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnixSocketPeer {
    pub(super) uid: u32,
    pub(super) pid: Option<i32>,
}

/// The state shared by the connections of one listener.
#[derive(Clone)]
struct ListenerState {
    app: Router,
    large: Arc<Semaphore>,
    stop: CancellationToken,
}

impl ListenerState {
    fn new(app: Router, stop: CancellationToken) -> Self {
        Self {
            app,
            large: Arc::new(Semaphore::new(MAX_LARGE_RESPONSES)),
            stop,
        }
    }
}

/// Serves the port until `stop`.
///
/// # Errors
/// If the listener cannot be registered with the runtime.
pub(super) async fn tcp(
    listener: TcpListener,
    app: Router,
    stop: CancellationToken,
) -> io::Result<()> {
    admitted(listener, stop, |stream| ready(Some((stream, app.clone())))).await
}

/// Serves a port until `stop`. `admit` returns the stream and the routes of a connection; it must not take long.
///
/// # Errors
/// If the listener cannot be registered with the runtime.
pub(super) async fn admitted<S, A>(
    listener: TcpListener,
    stop: CancellationToken,
    admit: impl Fn(TcpStream) -> A,
) -> io::Result<()>
where
    A: Future<Output = Option<(S, Router)>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let serving = ListenerState::new(Router::new(), stop);
    let places = ConnectionLimit::new(MAX_CONNECTIONS, EvictionPolicy::Any);
    accepting(
        || listener.accept(),
        &places,
        &serving.stop,
        |stream, place| {
            let (serving, admission) = (serving.clone(), admit(stream));
            async move {
                if let Some((stream, app)) = admission.await {
                    let serving = ListenerState { app, ..serving };
                    serving.connection(stream, place, None).await;
                }
            }
        },
    )
    .await;
    Ok(())
}

/// Serves the socket until `stop`, to root and to the user of this process.
///
/// # Errors
/// If the listener cannot be registered with the runtime.
pub(super) async fn unix(
    listener: UnixListener,
    app: Router,
    stop: CancellationToken,
) -> io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let allowed = ListenerState::new(app, stop.clone());
    let refused = ListenerState::new(Router::new().fallback(forbidden), stop);
    let places = ConnectionLimit::new(MAX_SOCKET_CONNECTIONS, EvictionPolicy::Any);
    accepting(
        || listener.accept(),
        &places,
        &allowed.stop,
        |stream: UnixStream, place| {
            // The permission bits keep others out already, unless they were changed.
            let caller = stream.peer_cred().ok().map(|peer| UnixSocketPeer {
                uid: peer.uid(),
                pid: peer.pid(),
            });
            let caller =
                caller.filter(|caller| caller.uid == 0 || caller.uid == geteuid().as_raw());
            let serving = match caller {
                Some(_) => &allowed,
                None => &refused,
            };
            serving.clone().connection(stream, place, caller)
        },
    )
    .await;
    Ok(())
}

/// Serves a socket until `stop`, to everyone whom its mode lets connect.
///
/// # Errors
/// If the listener cannot be registered with the runtime.
pub(super) async fn by_mode(
    listener: UnixListener,
    app: Router,
    stop: CancellationToken,
) -> io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let serving = ListenerState::new(app, stop);
    let places = ConnectionLimit::new(MAX_CONNECTIONS, EvictionPolicy::Any);
    accepting(
        || listener.accept(),
        &places,
        &serving.stop,
        |stream: UnixStream, place| serving.clone().connection(stream, place, None),
    )
    .await;
    Ok(())
}

async fn forbidden() -> (StatusCode, &'static str) {
    (StatusCode::FORBIDDEN, "this socket is for root only\n")
}

/// Accepts until `stop`, and serves each connection in its own task.
async fn accepting<T, P, A, S>(
    accept: impl Fn() -> A,
    places: &Arc<ConnectionLimit>,
    stop: &CancellationToken,
    serve: impl Fn(T, ConnectionPermit) -> S,
) where
    A: Future<Output = io::Result<(T, P)>>,
    S: Future<Output = ()> + Send + 'static,
{
    loop {
        let accepted = stop.run_until_cancelled(async {
            let (stream, _peer) = accept().await?;
            Ok::<_, io::Error>((stream, places.take().await))
        });
        let Some(accepted) = accepted.await else {
            return;
        };
        match accepted {
            Ok((stream, place)) => drop(tokio::spawn(serve(stream, place))),
            Err(error) => {
                tracing::warn!(event = "admin.accept", error.message = %error, "connection not accepted");
                sleep(FAILED_ACCEPT_PAUSE).await;
            }
        }
    }
}

impl ListenerState {
    /// Serves one request.
    async fn connection<T>(self, stream: T, place: ConnectionPermit, caller: Option<UnixSocketPeer>)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // Held to the end of the connection, because the response is sent after the service returns.
        let held = OnceLock::new();
        let service = service_fn(|request: Request<Incoming>| {
            let busy = place.request();
            let (app, large, held) = (self.app.clone(), &self.large, &held);
            async move {
                let (response, room) = answer(app, large, request, caller).await;
                let _ = held.set((busy, room));
                Ok::<_, Infallible>(response)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_HEAD_TIMEOUT)
            .max_buf_size(MAX_REQUEST_HEAD_BYTES)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            // Errors here are the client's.
            _ = timeout(CONNECTION_LIFETIME, connection) => {}
            () = place.wanted() => {}
            () = self.stop.cancelled() => {}
        }
    }
}

/// The response, with a permit if it is large.
async fn answer(
    app: Router,
    large: &Arc<Semaphore>,
    request: Request<Incoming>,
    caller: Option<UnixSocketPeer>,
) -> (Response, Option<OwnedSemaphorePermit>) {
    let mut request = request.map(Body::new);
    if let Some(caller) = caller {
        request.extensions_mut().insert(caller);
    }
    let response = match app.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    if response
        .body()
        .size_hint()
        .upper()
        .is_some_and(|size| size <= LARGE_RESPONSE_BYTES)
    {
        return (response, None);
    }
    match Arc::clone(large).try_acquire_owned() {
        Ok(room) => (response, Some(room)),
        Err(_) => {
            let text = "too many large responses are being sent; try again\n";
            (
                (StatusCode::SERVICE_UNAVAILABLE, text).into_response(),
                None,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    use super::*;

    const REQUEST: &[u8] = b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n";

    fn serving() -> ListenerState {
        let large = || async { "x".repeat(10 << 20) };
        let app = Router::new()
            .route("/large", get(large))
            .route("/small", get(async || "small"));
        ListenerState::new(app, CancellationToken::new())
    }

    /// A connection to it that holds little unread, and its end.
    async fn connect(
        serving: &ListenerState,
        places: &Arc<ConnectionLimit>,
    ) -> (DuplexStream, JoinHandle<()>) {
        let (near, far) = tokio::io::duplex(1024);
        let place = places.take().await;
        (
            near,
            tokio::spawn(serving.clone().connection(far, place, None)),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_or_reads_nothing_is_cut_off() {
        let (serving, places) = (serving(), ConnectionLimit::new(4, EvictionPolicy::Any));
        for (said, limit) in [
            (&b""[..], REQUEST_HEAD_TIMEOUT),
            (b"GET / HTTP/1.1\r\nhost", REQUEST_HEAD_TIMEOUT),
            (REQUEST, CONNECTION_LIFETIME),
        ] {
            let begin = Instant::now();
            let (mut client, served) = connect(&serving, &places).await;
            client.write_all(said).await.expect("sent");
            served.await.expect("no panic");
            assert_eq!(begin.elapsed().as_secs(), limit.as_secs());
            drop(client);
        }
        assert_eq!(serving.large.available_permits(), MAX_LARGE_RESPONSES);
    }

    #[tokio::test(start_paused = true)]
    async fn large_answers_that_are_not_read_are_few() {
        let (serving, places) = (serving(), ConnectionLimit::new(100, EvictionPolicy::Any));
        let mut unread = Vec::new();
        for _ in 0..MAX_LARGE_RESPONSES {
            let (mut client, served) = connect(&serving, &places).await;
            client.write_all(REQUEST).await.expect("sent");
            let mut first = [0; 12];
            client.read_exact(&mut first).await.expect("it begins");
            assert_eq!(&first, b"HTTP/1.1 200");
            unread.push((client, served));
        }
        let status = async |path: &str| {
            let (mut client, _) = connect(&serving, &places).await;
            let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
            client.write_all(request.as_bytes()).await.expect("sent");
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.expect("whole");
            answer.split(' ').nth(1).map(str::to_owned)
        };
        assert_eq!(status("/large").await.as_deref(), Some("503"));
        assert_eq!(
            status("/small").await.as_deref(),
            Some("200"),
            "metrics, say"
        );
        drop(unread.pop().expect("one").0);
        while serving.large.available_permits() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(status("/large").await.as_deref(), Some("200"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_says_nothing_makes_room() {
        let (serving, places) = (serving(), ConnectionLimit::new(2, EvictionPolicy::Any));
        let (_reading, slow) = {
            let (mut client, served) = connect(&serving, &places).await;
            client.write_all(REQUEST).await.expect("sent");
            let mut first = [0; 12];
            client.read_exact(&mut first).await.expect("it begins");
            (client, served)
        };
        let begin = Instant::now();
        let (_silent, cut) = connect(&serving, &places).await;
        let (_third, _) = connect(&serving, &places).await;
        cut.await.expect("no panic");
        assert!(begin.elapsed() < REQUEST_HEAD_TIMEOUT && !slow.is_finished());
    }
}
