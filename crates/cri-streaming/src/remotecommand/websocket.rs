//! Standard streams over WebSocket channels.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::resize::SizeDecoder;
use super::run::{ClientStreams, run};
use crate::channels::{ChannelDecoder, ChannelEncoding, ChannelEvent, ChannelWriter};
use crate::context::{LINGER_TIMEOUT, SessionContext};
use crate::heartbeat::HeartbeatSender;
use crate::observe::SessionOutcome;
use crate::pipe::{pipe, sizes};
use crate::request::{SessionTarget, StreamOptions};
use crate::runtime::{InputStream, OutputStream, TerminalSize};
use crate::session::SessionResult;
use crate::websocket::{self, ControlQueue, GOING_AWAY, PROTOCOL_ERROR, WebSocketReader};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;

/// Serves one session.
pub(crate) async fn serve<T>(
    context: &SessionContext,
    io: T,
    (command, wanted): (SessionTarget, StreamOptions),
    (version, base64): (u8, bool),
) -> SessionResult
where
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let encoding = ChannelEncoding {
        base64,
        closes: version >= 5,
    };
    let gone = CancellationToken::new();
    let gone_in_the_end = gone.clone().drop_guard();
    let (read, write) = tokio::io::split(io);
    let (frames, control, writing) = websocket::start(write);
    let [stdout, stderr, error] = [STDOUT, STDERR, ERROR].map(|channel| {
        Box::new(ChannelWriter::new(frames.clone(), channel, encoding)) as OutputStream
    });
    let (stdin, input) = wanted.stdin.then(pipe).unzip();
    let (newest, resize) = sizes();
    let wire = ClientStreams {
        stdin: input.map(|input| Box::new(input) as InputStream),
        stdout: wanted.stdout.then_some(stdout),
        stderr: wanted.stderr.then_some(stderr),
        error,
        resize,
        gone: gone.clone(),
    };
    // Lets the client start. The queue has space, because nothing else writes yet.
    let _ = frames.try_send(encoding.message(first_channel(wanted), b""));
    drop(frames);
    let reading = MessageReader {
        demux: ChannelDecoder::new(encoding),
        stdin,
        sizes: SizeDecoder::default(),
        newest: wanted.tty.then_some(newest),
        heartbeat: HeartbeatSender {
            control: control.clone(),
            activity: context.activity.clone(),
        },
    };
    let reading = read_to_end(
        reading,
        WebSocketReader::new(read, control.clone()),
        control.clone(),
        gone,
    );
    let mut reading = AbortOnDropHandle::new(tokio::spawn(reading));
    let mut writing = AbortOnDropHandle::new(tokio::spawn(writing));
    let mut is_written = false;
    let mut ended = tokio::select! {
        ended = run(context, command, version, wire) => ended,
        _ = &mut writing => {
            is_written = true;
            SessionOutcome::ClientGone.into()
        }
    };
    if matches!(
        ended.outcome,
        SessionOutcome::Shutdown | SessionOutcome::Idle
    ) {
        // Sent after the status, which contains the reason.
        control.end_with(GOING_AWAY);
        let _ = timeout(LINGER_TIMEOUT, writing).await;
        return ended;
    }
    if ended.outcome == SessionOutcome::ClientGone {
        // The client has disconnected; its last message may have been a protocol violation.
        drop(gone_in_the_end);
        let last = timeout(LINGER_TIMEOUT, &mut reading).await;
        if last.is_ok_and(|last| last.unwrap_or(false)) {
            ended = SessionOutcome::Protocol.into();
        }
        if !is_written {
            let _ = timeout(LINGER_TIMEOUT, writing).await;
        }
        return ended;
    }
    // A slow client still receives all output.
    let _ = writing.await;
    let _ = timeout(LINGER_TIMEOUT, reading).await;
    ended
}

/// The first channel that the client reads: it waits for an empty message there.
fn first_channel(wanted: StreamOptions) -> u8 {
    match wanted {
        StreamOptions { stdout: true, .. } => STDOUT,
        StreamOptions { stderr: true, .. } => STDERR,
        _ => ERROR,
    }
}

/// Reads until the client has gone, which cancels `gone`. Returns whether it violated the protocol.
async fn read_to_end<R: AsyncRead + Unpin>(
    reading: MessageReader,
    reader: WebSocketReader<R>,
    control: ControlQueue,
    gone: CancellationToken,
) -> bool {
    let result = reading.run(reader).await;
    let is_broken = result.is_err_and(|error| error.kind() == io::ErrorKind::InvalidData);
    if is_broken {
        // Before anything else ends; otherwise the connection would be closed with the normal close code.
        control.fail(PROTOCOL_ERROR);
    }
    gone.cancel();
    is_broken
}

/// Reads the client's messages.
struct MessageReader {
    demux: ChannelDecoder,
    stdin: Option<mpsc::Sender<Bytes>>,
    sizes: SizeDecoder,
    newest: Option<watch::Sender<Option<TerminalSize>>>,
    heartbeat: HeartbeatSender,
}

impl MessageReader {
    async fn run<R: AsyncRead + Unpin>(mut self, mut reader: WebSocketReader<R>) -> io::Result<()> {
        while let Some(piece) = reader.next().await? {
            if let Some(incoming) = self.demux.feed(piece.bytes, piece.last)? {
                self.take(incoming).await;
            }
        }
        Ok(())
    }

    async fn take(&mut self, incoming: ChannelEvent) {
        match incoming {
            ChannelEvent::Data(STDIN, bytes) => {
                // The reader is gone: further input is discarded.
                if let Some(stdin) = &self.stdin
                    && self.heartbeat.during(stdin.send(bytes)).await.is_err()
                {
                    self.stdin = None;
                }
            }
            ChannelEvent::Data(RESIZE, bytes) => {
                if let Some(newest) = &self.newest
                    && let Some(size) = self.sizes.feed(&bytes)
                {
                    newest.send_replace(Some(size));
                }
            }
            ChannelEvent::Close(STDIN) => self.stdin = None,
            ChannelEvent::Data(..) | ChannelEvent::Close(_) => {}
        }
    }
}
