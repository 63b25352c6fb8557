//! Port-forward over SPDY: two streams per connection.

use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

use super::copy::copy;
use super::dial;
use super::pairs::{PairKey, Pairing, Pairs, StreamType};
use crate::context::{LINGER, SessionContext};
use crate::observe::Outcome;
use crate::session::SessionResult;
use crate::spdy::{Limits, Reader, Reason, Stream};
use crate::spdy_session::SpdySession;

/// How often streams without a counterpart are looked for, as a fraction of their timeout.
const CHECKS: u32 = 10;

/// A stream, and the port named in its headers.
struct PortStream {
    port: u16,
    stream: Stream,
}

/// Serves one session.
pub(crate) async fn serve<T>(context: &SessionContext, io: T, sandbox: String) -> SessionResult
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = Limits::port_forward(context.idle_timeout);
    let (mut streams, carrier) = SpdySession::begin(context, io, limits);
    let sandbox: Arc<str> = sandbox.into();
    let mut pairs = Pairs::new();
    let mut forwards = JoinSet::new();
    let gone = CancellationToken::new();
    let mut checks = interval(context.creation_timeout / CHECKS);
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
                    if half == StreamType::Error {
                        let message = "the stream of data did not come in time".to_owned();
                        forwards.spawn(complain(opened.stream, message));
                    }
                }
            }
            ending = context.stop.fired() => {
                // Their last bytes must be counted before the session ends.
                forwards.shutdown().await;
                carrier.close(context).await;
                return Outcome::from(ending).into();
            }
        }
    }
    gone.cancel();
    // Data that the client sent before it disconnected is still being written to the pod.
    let rest = async { while forwards.join_next().await.is_some() {} };
    let _ = timeout(LINGER, rest).await;
    forwards.shutdown().await;
    outcome(&carrier.reason().await).into()
}

/// The outcome of a session: the client always ends port-forwarding.
fn outcome(reason: &Reason) -> Outcome {
    match reason {
        Reason::ClientGone | Reason::GoAway | Reason::Closed => Outcome::Done,
        Reason::Malformed(_) => Outcome::Protocol,
        Reason::Idle => Outcome::Idle,
        Reason::Io(_) => Outcome::ClientGone,
    }
}

/// Pairs a stream with its counterpart. Dropped streams are reset.
fn take(pairs: &mut Pairs<PortStream>, stream: Stream) -> Option<(PortStream, PortStream)> {
    let headers = &stream.headers;
    let half = StreamType::named(headers.get("streamtype")?)?;
    let port = headers
        .get("port")?
        .parse()
        .ok()
        .filter(|port| *port != 0)?;
    let key = PairKey::of(headers.get("requestid"), half, stream.id);
    match pairs.put(key, half, PortStream { port, stream }) {
        Pairing::Both { error, data } => Some((error, data)),
        Pairing::Double(_, key) => {
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
        Pairing::Waits | Pairing::Refused(_) => None,
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
            let _ = copy(halves, pod, &context.meter, Reader::is_lost, gone).await;
            let _ = errors.shutdown().await;
        }
        Err(message) => complain(error.stream, message).await,
    }
}

/// Sends an error message. Failures are ignored, because they mean that the client has disconnected.
async fn complain(error: Stream, message: String) {
    let (_, mut errors) = error.split();
    let _ = errors.write_all(message.as_bytes()).await;
    let _ = errors.shutdown().await;
}
