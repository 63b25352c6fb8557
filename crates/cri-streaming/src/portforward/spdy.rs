//! Port-forward over SPDY: two streams per connection.

use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

use super::copy::copy;
use super::dial::dial;
use super::pairs::{PairResult, PortStreamType, StreamPairKey, StreamPairs};
use crate::context::{LINGER_TIMEOUT, SessionContext};
use crate::observe::SessionOutcome;
use crate::session::SessionResult;
use crate::spdy::{CloseReason, SpdyLimits, SpdyReader, SpdyStream};
use crate::spdy_session::SpdySession;

/// How often streams without a counterpart are looked for, as a fraction of their timeout.
const CHECKS_PER_TIMEOUT: u32 = 10;

/// A stream, and the port named in its headers.
struct PortStream {
    port: u16,
    stream: SpdyStream,
}

/// Serves one session.
pub(crate) async fn serve<T>(context: &SessionContext, io: T, sandbox: String) -> SessionResult
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = SpdyLimits::port_forward(context.idle_timeout);
    let (mut streams, carrier) = SpdySession::begin(context, io, limits);
    let sandbox: Arc<str> = sandbox.into();
    let mut pairs = StreamPairs::new();
    let mut forwards = JoinSet::new();
    let gone = CancellationToken::new();
    let mut checks = interval(context.creation_timeout / CHECKS_PER_TIMEOUT);
    loop {
        tokio::select! {
            stream = streams.next() => {
                let Some(stream) = stream else { break };
                if let Some((error, data)) = take(&mut pairs, stream) {
                    let (context, sandbox) = (context.clone(), Arc::clone(&sandbox));
                    let gone = gone.clone();
                    forwards.spawn(async move { forward(&context, &sandbox, error, data, &gone).await });
                }
            }
            Some(_) = forwards.join_next() => {}
            _ = checks.tick() => {
                for (half, opened) in pairs.overdue(context.creation_timeout) {
                    if half == PortStreamType::Error {
                        let message = "the stream of data did not come in time".to_owned();
                        forwards.spawn(complain(opened.stream, message));
                    }
                }
            }
            ending = context.stop.fired() => {
                // The last bytes of the connections must be counted before the session ends.
                forwards.shutdown().await;
                carrier.close(context).await;
                return SessionOutcome::from(ending).into();
            }
        }
    }
    gone.cancel();
    // Data that the client sent before it disconnected is still being written to the pod.
    let rest = async { while forwards.join_next().await.is_some() {} };
    let _ = timeout(LINGER_TIMEOUT, rest).await;
    forwards.shutdown().await;
    outcome(&carrier.reason().await).into()
}

/// The outcome of a session: the client always ends port-forwarding.
fn outcome(reason: &CloseReason) -> SessionOutcome {
    match reason {
        CloseReason::ClientGone | CloseReason::GoAway | CloseReason::Closed => SessionOutcome::Done,
        CloseReason::Malformed(_) => SessionOutcome::Protocol,
        CloseReason::Idle => SessionOutcome::Idle,
        CloseReason::Io(_) => SessionOutcome::ClientGone,
    }
}

/// Pairs a stream with its counterpart. Dropped streams are reset.
fn take(
    pairs: &mut StreamPairs<PortStream>,
    stream: SpdyStream,
) -> Option<(PortStream, PortStream)> {
    let headers = &stream.headers;
    let half = PortStreamType::from_name(headers.get("streamtype")?)?;
    let port = headers
        .get("port")?
        .parse()
        .ok()
        .filter(|port| *port != 0)?;
    let key = StreamPairKey::from_headers(headers.get("requestid"), half, stream.id);
    match pairs.put(key, half, PortStream { port, stream }) {
        PairResult::Both { error, data } => Some((error, data)),
        PairResult::Double(_, key) => {
            // A second data stream has no error stream yet.
            if let Some(first) = pairs.errors(&key) {
                let message = format!(
                    "error processing stream for request {key}: error stream already assigned"
                );
                let errors = first.stream.writer();
                // A client that does this and does not read the error is not waited for.
                let _ = errors.write_all(message.as_bytes()).now_or_never();
            }
            None
        }
        PairResult::Waits | PairResult::Refused(_) => None,
    }
}

/// Forwards one connection. The client waits for the end of both streams.
async fn forward(
    context: &SessionContext,
    sandbox: &str,
    error: PortStream,
    data: PortStream,
    gone: &CancellationToken,
) {
    match dial(context, sandbox, data.port).await {
        Ok(pod) => {
            let (_, mut errors) = error.stream.split();
            let halves = data.stream.split();
            // A reset by the pod is reported by resetting the data stream only: on any message on the error stream,
            // Kubernetes clients end all connections of the session (kubernetes/kubernetes#111825).
            let _ = copy(halves, pod, &context.meter, SpdyReader::is_lost, gone).await;
            let _ = errors.shutdown().await;
        }
        Err(message) => complain(error.stream, message).await,
    }
}

/// Sends an error message. Failures are ignored, because they mean that the client has disconnected.
async fn complain(error: SpdyStream, message: String) {
    let (_, mut errors) = error.split();
    let _ = errors.write_all(message.as_bytes()).await;
    let _ = errors.shutdown().await;
}
