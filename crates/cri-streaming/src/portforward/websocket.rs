//! Port-forward over WebSocket channels, for old clients: two channels and one connection for each port in the request.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::copy::copy;
use super::dial::{dial, failed};
use crate::channels::{ChannelDecoder, ChannelEncoding, ChannelEvent, ChannelWriter};
use crate::context::{LINGER_TIMEOUT, SessionContext};
use crate::heartbeat::HeartbeatSender;
use crate::observe::SessionOutcome;
use crate::pipe::{StreamPipe, pipe};
use crate::session::SessionResult;
use crate::websocket::{
    self, ControlQueue, FrameSender, GOING_AWAY, PROTOCOL_ERROR, WebSocketReader,
};

/// Maximum number of ports per session: each has two channels, and channel numbers are one byte.
pub(crate) const MAX_PORTS: usize = 127;

/// Serves one session.
pub(crate) async fn serve<T>(
    context: &SessionContext,
    io: T,
    sandbox: String,
    ports: Vec<u16>,
    base64: bool,
) -> SessionResult
where
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let encoding = ChannelEncoding {
        base64,
        closes: false,
    };
    let (read, write) = tokio::io::split(io);
    let (frames, control, writing) = websocket::start(write);
    let writing = AbortOnDropHandle::new(tokio::spawn(writing));
    let (lost, gone) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
    let first = ForwardedPort {
        context: context.clone(),
        sandbox: sandbox.into(),
        port: 0,
        channel: 0,
        frames,
        encoding,
        lost: Arc::clone(&lost),
        gone: gone.clone(),
    };
    let (forwards, inputs) = forward_all(&first, ports);
    // Writing ends with the last port.
    drop(first);
    let heartbeat = HeartbeatSender {
        control: control.clone(),
        activity: context.activity.clone(),
    };
    let input = ClientInput {
        demux: ChannelDecoder::new(encoding),
        forwards: inputs,
        lost: Arc::clone(&lost),
        heartbeat,
    };
    let reader = WebSocketReader::new(read, control.clone());
    let reading = AbortOnDropHandle::new(tokio::spawn(input.run(reader)));
    let session = ForwardTasks {
        context,
        control,
        writing,
        reading,
        forwards,
        lost,
        gone,
    };
    session.finish().await
}

/// Begins to forward each port, like `first` but for its port and channel. Returns the inputs of the ports.
fn forward_all(
    first: &ForwardedPort,
    ports: Vec<u16>,
) -> (JoinSet<()>, Vec<Option<mpsc::Sender<Bytes>>>) {
    let mut forwards = JoinSet::new();
    let mut inputs = Vec::new();
    for (i, port) in ports.into_iter().take(MAX_PORTS).enumerate() {
        let (sender, input) = pipe();
        inputs.push(Some(sender));
        let forward = ForwardedPort {
            port,
            // There are no more ports than channels.
            channel: u8::try_from(2 * i).unwrap_or(u8::MAX),
            ..first.clone()
        };
        forwards.spawn(forward.run(input));
    }
    (forwards, inputs)
}

/// The tasks of a session.
struct ForwardTasks<'a> {
    context: &'a SessionContext,
    control: ControlQueue,
    writing: AbortOnDropHandle<io::Result<()>>,
    reading: AbortOnDropHandle<SessionOutcome>,
    forwards: JoinSet<()>,
    /// Set if the connection ends without a close frame, so that the input is truncated.
    lost: Arc<AtomicBool>,
    /// Cancelled when the client has disconnected.
    gone: CancellationToken,
}

impl ForwardTasks<'_> {
    /// Waits for the first end: of the client, of all ports, of the connection or of the server.
    async fn finish(self) -> SessionResult {
        let Self {
            context,
            control,
            mut writing,
            mut reading,
            mut forwards,
            lost,
            gone,
        } = self;
        tokio::select! {
            // In this order: after a protocol violation the close code has been sent to the client, which also ends writing.
            biased;
            outcome = &mut reading => {
                gone.cancel();
                finish(forwards, Instant::now() + LINGER_TIMEOUT).await;
                let _ = timeout(LINGER_TIMEOUT, writing).await;
                return outcome.unwrap_or(SessionOutcome::Failed).into();
            }
            () = async { while forwards.join_next().await.is_some() {} } => {}
            _ = &mut writing => {
                // The reason may follow data that has not been read yet.
                let end = Instant::now() + LINGER_TIMEOUT;
                let outcome = timeout_at(end, &mut reading).await;
                lost.fetch_or(outcome.is_err(), Ordering::Relaxed);
                drop(reading);
                gone.cancel();
                finish(forwards, end).await;
                return match outcome {
                    Ok(Ok(outcome)) => outcome.into(),
                    _ => SessionOutcome::ClientGone.into(),
                };
            }
            ending = context.stop.fired() => {
                control.fail(GOING_AWAY);
                let _ = timeout(LINGER_TIMEOUT, writing).await;
                forwards.shutdown().await;
                return SessionOutcome::from(ending).into();
            }
        }
        let _ = writing.await;
        let _ = timeout(LINGER_TIMEOUT, reading).await;
        SessionOutcome::Done.into()
    }
}

/// Waits for data that the client sent and is still being written to the pod; output no longer has a receiver.
async fn finish(mut forwards: JoinSet<()>, end: Instant) {
    let rest = async { while forwards.join_next().await.is_some() {} };
    let _ = timeout_at(end, rest).await;
    forwards.shutdown().await;
}

/// The client's input, for all ports.
struct ClientInput {
    demux: ChannelDecoder,
    /// The inputs of the ports, until the receiver accepts no more.
    forwards: Vec<Option<mpsc::Sender<Bytes>>>,
    /// Set if the connection ends without a close frame, so that the input is truncated.
    lost: Arc<AtomicBool>,
    heartbeat: HeartbeatSender,
}

impl ClientInput {
    /// Reads the client's messages until it closes. Only then do the inputs of the ports end.
    async fn run<R: AsyncRead + Unpin>(mut self, mut reader: WebSocketReader<R>) -> SessionOutcome {
        let outcome = self.read(&mut reader).await;
        self.lost
            .fetch_or(outcome == SessionOutcome::ClientGone, Ordering::Relaxed);
        outcome
    }

    async fn read<R: AsyncRead + Unpin>(
        &mut self,
        reader: &mut WebSocketReader<R>,
    ) -> SessionOutcome {
        loop {
            let incoming = match reader.next().await {
                Ok(Some(piece)) => self.demux.feed(piece.bytes, piece.last),
                Ok(None) => return SessionOutcome::Done,
                Err(error) => Err(error),
            };
            match incoming {
                Ok(Some(ChannelEvent::Data(channel, bytes))) => {
                    // Error channels have odd numbers, and only the server writes to them.
                    let input = self.forwards.get_mut(usize::from(channel / 2));
                    if let Some(input) = input
                        && channel % 2 == 0
                        && let Some(sender) = input
                        && self.heartbeat.during(sender.send(bytes)).await.is_err()
                    {
                        *input = None;
                    }
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    self.heartbeat.control.fail(PROTOCOL_ERROR);
                    return SessionOutcome::Protocol;
                }
                Err(_) => return SessionOutcome::ClientGone,
            }
        }
    }
}

/// One port.
#[derive(Clone)]
struct ForwardedPort {
    context: SessionContext,
    sandbox: Arc<str>,
    port: u16,
    channel: u8,
    frames: FrameSender,
    encoding: ChannelEncoding,
    /// Set if the input was truncated, before the input ends.
    lost: Arc<AtomicBool>,
    /// Cancelled when the client has disconnected.
    gone: CancellationToken,
}

impl ForwardedPort {
    fn writer(&self, channel: u8) -> ChannelWriter {
        ChannelWriter::new(self.frames.clone(), channel, self.encoding)
    }

    async fn run(self, input: StreamPipe) {
        let (mut data, mut error) = (self.writer(self.channel), self.writer(self.channel + 1));
        // The protocol starts each channel with the number of its port.
        let port = self.port.to_le_bytes();
        if data.write_all(&port).await.is_err() || error.write_all(&port).await.is_err() {
            return;
        }
        let ended = match dial(&self.context, &self.sandbox, self.port).await {
            Ok(pod) => {
                let copied = copy(
                    (input, data),
                    pod,
                    &self.context.meter,
                    |_| self.lost.load(Ordering::Relaxed),
                    &self.gone,
                );
                let copied = copied.await;
                // A channel cannot be closed on its own, so this end cannot be reported.
                copied.map_err(|error| failed(&self.sandbox, self.port, &error))
            }
            Err(message) => Err(message),
        };
        if let Err(message) = ended {
            // Failures are ignored, because they mean that the client has disconnected.
            let _ = error.write_all(message.as_bytes()).await;
        }
    }
}
