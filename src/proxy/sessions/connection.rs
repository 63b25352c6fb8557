//! One connection of a client: its request, the upstream's response, and the session.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::copy::{FirstClosed, both};
use super::exit_sniffer::{ExitReport, ExitSniffer};
use super::head::{HttpHead, HttpHeadError};
use super::metrics::UpstreamAnswer;
use super::{PendingProxy, SessionProxyState};
use crate::uds::limit::ConnectionPermit;
use cri_streaming::protocol_name;
use cri_streaming::{
    Direction, FirstToClose, ProxiedSession, SessionKind, SessionOutcome, Transport,
};
use cri_streaming::{HEAD_TIMEOUT, socket};
use cri_streaming::{ObservedSession, SessionInfo, SessionResult};

/// Timeout of a connect on loopback.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Silence after which a response other than 101 is over.
const REST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a refused client may take to close: closing first could discard the response before the client reads it.
const REFUSED_CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves a client until its session or response is over, or `stop` fires.
pub(super) async fn serve(
    shared: &SessionProxyState,
    mut client: TcpStream,
    connection: &ConnectionPermit,
    stop: &CancellationToken,
) {
    // A broken connection is noticed soon enough.
    let _ = socket::configure(&client);
    let request = tokio::select! {
        read = timeout(HEAD_TIMEOUT, HttpHead::read(&mut client)) => match read {
            Ok(Ok(request)) => request,
            Ok(Err(HttpHeadError::TooLarge(_))) => {
                return refuse(client, "431 Request Header Fields Too Large").await;
            }
            Ok(Err(HttpHeadError::Ended(_) | HttpHeadError::Broken)) => return,
            Err(_) => return refuse(client, "408 Request Timeout").await,
        },
        () = connection.wanted() => return,
        () = stop.cancelled() => return,
    };
    let Some(target) = request.target() else {
        return refuse(client, "400 Bad Request").await;
    };
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let Some(waiting) = shared.tokens.take(path) else {
        // The response is sent; the client's close is awaited only while no other connection needs the slot.
        tokio::select! {
            () = refuse(client, "404 Not Found") => {}
            () = connection.wanted() => {}
        }
        return;
    };
    let _busy = connection.request();
    let PendingProxy {
        upstream,
        about,
        slot: _slot,
    } = waiting;
    let mut target = upstream.target;
    if let Some(query) = query {
        target.push(if target.contains('?') { '&' } else { '?' });
        target.push_str(query);
    }
    let began = Instant::now();
    let asked = ask(upstream.address, &request, &target);
    let answered = tokio::select! {
        answered = asked => answered,
        () = gone(&client) => None,
        () = stop.cancelled() => return,
    };
    let upgrade = began.elapsed();
    let Some((upstream, answer)) = answered else {
        shared.metrics.answered(UpstreamAnswer::Nothing, upgrade);
        warn_refused(&about, None);
        return refuse(client, "502 Bad Gateway").await;
    };
    let status = answer.as_ref().ok().and_then(HttpHead::status);
    shared
        .metrics
        .answered(UpstreamAnswer::from_status(status), upgrade);
    match answer {
        Ok(answer) if status == Some(101) => {
            let session = begin(shared, about, &request, &answer);
            EstablishedSession {
                client,
                upstream,
                upgrade,
            }
            .run(session, &request, &answer, stop)
            .await;
        }
        answer => {
            warn_refused(&about, status);
            tokio::select! {
                () = no_session(client, upstream, answer) => {}
                () = stop.cancelled() => {}
            }
        }
    }
}

/// The head of the upstream's response, or the bytes it sent in place of one.
type UpstreamHead = Result<HttpHead, Vec<u8>>;

/// A connection to an upstream; `None` if it does not accept.
pub(super) async fn dial(address: SocketAddr) -> Option<TcpStream> {
    let dialled = timeout(DIAL_TIMEOUT, TcpStream::connect(address)).await;
    let upstream = dialled.ok()?.ok()?;
    let _ = socket::configure(&upstream);
    Some(upstream)
}

/// Sends the request to the upstream; `None` if there is no response at all.
async fn ask(
    address: SocketAddr,
    request: &HttpHead,
    target: &str,
) -> Option<(TcpStream, UpstreamHead)> {
    let mut upstream = dial(address).await?;
    upstream.write_all(&request.aimed_at(target)).await.ok()?;
    // Without a timeout: without a proxy the client would wait as long.
    let answer = match HttpHead::read(&mut upstream).await {
        Ok(head) => Ok(head),
        Err(HttpHeadError::TooLarge(bytes)) => Err(bytes),
        Err(HttpHeadError::Ended(bytes)) if !bytes.is_empty() => Err(bytes),
        Err(HttpHeadError::Ended(_) | HttpHeadError::Broken) => return None,
    };
    Some((upstream, answer))
}

/// Returns when the client has closed; never if it sends data, which is read later.
async fn gone(client: &TcpStream) {
    let mut byte = [0];
    if let Ok(1..) = client.peek(&mut byte).await {
        std::future::pending().await
    }
}

pub(super) fn warn_refused(about: &SessionInfo, status: Option<u16>) {
    let is_pod = about.kind == SessionKind::PortForward;
    tracing::warn!(
        event = "stream.refused",
        stream.kind = about.kind.name(),
        container.id = (!is_pod).then_some(&*about.id),
        criscope.sandbox.id = is_pod.then_some(&*about.id),
        http.response.status_code = status,
        "no session: the upstream refused it, or cannot be reached"
    );
}

/// A short response of criscope's, for a client without a session.
async fn refuse(mut client: TcpStream, status: &str) {
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    if client.write_all(answer.as_bytes()).await.is_ok() {
        hang_up(client).await;
    }
}

/// Shuts our half down, and waits a moment for the client's.
async fn hang_up(mut client: TcpStream) {
    if client.shutdown().await.is_ok() {
        let mut rest = tokio::io::sink();
        // Remaining bytes of the client do not matter.
        let _ = timeout(
            REFUSED_CLIENT_TIMEOUT,
            tokio::io::copy(&mut client, &mut rest),
        )
        .await;
    }
}

/// Forwards a response other than 101.
async fn no_session(mut client: TcpStream, mut upstream: TcpStream, answer: UpstreamHead) {
    let (bytes, left) = match &answer {
        Ok(head) => {
            let len = head.header("content-length").next();
            let len: Option<u64> = len.and_then(|len| len.parse().ok());
            let left = len.map(|len| len.saturating_sub(head.behind().len() as u64));
            (head.all(), left)
        }
        Err(bytes) => (&bytes[..], None),
    };
    if client.write_all(bytes).await.is_err() {
        return;
    }
    // Without a length it ends with the connection, or after a silence.
    let mut rest = (&mut upstream).take(left.unwrap_or(u64::MAX));
    if pass_on(&mut rest, &mut client).await.is_some() {
        hang_up(client).await;
    }
}

/// Copies until the end or a silence; returns `None` if the client is gone.
async fn pass_on(from: &mut (impl AsyncRead + Unpin), client: &mut TcpStream) -> Option<()> {
    let mut buffer = [0; 4096];
    while let Ok(Ok(n @ 1..)) = timeout(REST_TIMEOUT, from.read(&mut buffer)).await {
        client.write_all(&buffer[..n]).await.ok()?;
    }
    Some(())
}

/// The session for metrics, from the heads of both sides.
fn begin(
    shared: &SessionProxyState,
    about: SessionInfo,
    request: &HttpHead,
    answer: &HttpHead,
) -> (ObservedSession, ExitSniffer, SessionKind) {
    let kind = about.kind;
    let mut upgrades = request.header("upgrade");
    let is_websocket = upgrades.any(|value| value.to_ascii_lowercase().contains("websocket"));
    let (transport, header) = if is_websocket {
        (Transport::WebSocket, "sec-websocket-protocol")
    } else {
        (Transport::Spdy, "x-stream-protocol-version")
    };
    let chosen = answer.header(header).next();
    let protocol = protocol_name(kind, transport, chosen).unwrap_or("other");
    let watch = ExitSniffer::new(kind, transport);
    let session = ObservedSession::begin(about, transport, protocol, &shared.observers);
    (session, watch, kind)
}

/// The two ends of an established session.
struct EstablishedSession {
    client: TcpStream,
    upstream: TcpStream,
    upgrade: Duration,
}

impl EstablishedSession {
    async fn run(
        mut self,
        (session, mut watch, kind): (ObservedSession, ExitSniffer, SessionKind),
        request: &HttpHead,
        answer: &HttpHead,
        stop: &CancellationToken,
    ) {
        let meter = session.meter();
        meter.count(Direction::In, request.behind().len());
        watch.see(answer.behind());
        let copied = async {
            // In one piece, as it may have arrived.
            if self.client.write_all(answer.all()).await.is_err() {
                return FirstClosed::ClientBroke;
            }
            meter.count(Direction::Out, answer.behind().len());
            both(&mut self.client, &mut self.upstream, &meter, &mut watch).await
        };
        let first = tokio::select! {
            first = copied => first,
            () = stop.cancelled() => return session.end(SessionOutcome::Shutdown.into()),
        };
        session.end(ended(first, watch.report(kind), kind, Some(self.upgrade)));
    }
}

/// The outcome of a session, from who closed first and the result sent before.
pub(super) fn ended(
    first: FirstClosed,
    report: ExitReport,
    kind: SessionKind,
    upgrade: Option<Duration>,
) -> SessionResult {
    let outcome = match first {
        _ if report.failed => SessionOutcome::Failed,
        _ if report.complete => SessionOutcome::Done,
        // Everything the upstream sent has arrived.
        FirstClosed::Upstream | FirstClosed::Both => SessionOutcome::Done,
        // The client of a port-forward ends it when it is done.
        FirstClosed::Client if kind == SessionKind::PortForward => SessionOutcome::Done,
        FirstClosed::Client | FirstClosed::ClientBroke => SessionOutcome::ClientGone,
        FirstClosed::UpstreamBroke => SessionOutcome::Failed,
    };
    SessionResult {
        outcome,
        exit_code: report.exit_code,
        proxied: Some(ProxiedSession {
            upgrade,
            first: match first {
                FirstClosed::Client | FirstClosed::ClientBroke => FirstToClose::Client,
                FirstClosed::Upstream | FirstClosed::UpstreamBroke => FirstToClose::Upstream,
                FirstClosed::Both => FirstToClose::Both,
            },
        }),
    }
}
