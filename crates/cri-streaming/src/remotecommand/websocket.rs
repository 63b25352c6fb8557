//! Standard streams over WebSocket channels.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::resize::Sizes;
use super::{ClientStreams, run};
use crate::channels::{ChannelWriter, Demux, Encoding, Incoming};
use crate::context::{LINGER, SessionContext};
use crate::heartbeat::Heartbeat;
use crate::observe::Outcome;
use crate::pipe::{pipe, sizes};
use crate::request::{Command, StreamOptions};
use crate::runtime::{Input, Output, Size};
use crate::session::SessionResult;
use crate::websocket::{self, Control, Event, Reader};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;

/// The close code for a protocol violation by the client.
const PROTOCOL_ERROR: u16 = 1002;
/// The close code of a server that shuts down.
const GOING_AWAY: u16 = 1001;

/// Serves one session.
pub(crate) async fn serve<T>(
    context: &SessionContext,
    io: T,
    (command, wanted): (Command, StreamOptions),
    (version, base64): (u8, bool),
) -> SessionResult
where
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let encoding = Encoding {
        base64,
        closes: version >= 5,
    };
    let gone = CancellationToken::new();
    let gone_in_the_end = gone.clone().drop_guard();
    let (read, write) = tokio::io::split(io);
    let (frames, control, writing) = websocket::start(write);
    let writer =
        |channel| Box::new(ChannelWriter::new(frames.clone(), channel, encoding)) as Output;
    let (stdin, input) = wanted.stdin.then(pipe).unzip();
    let (newest, resize) = sizes();
    let wire = ClientStreams {
        stdin: input.map(|input| Box::new(input) as Input),
        stdout: wanted.stdout.then(|| writer(STDOUT)),
        stderr: wanted.stderr.then(|| writer(STDERR)),
        error: writer(ERROR),
        resize,
        gone: gone.clone(),
    };
    // Lets the client start. The queue has space, because nothing else writes yet.
    let _ = frames.try_send(encoding.message(first_channel(wanted), b""));
    drop(frames);
    let reading = Reading {
        demux: Demux::new(encoding),
        stdin,
        sizes: Sizes::default(),
        newest: wanted.tty.then_some(newest),
        heartbeat: Heartbeat {
            control: control.clone(),
            activity: context.activity.clone(),
        },
    };
    let reading = read_to_end(reading, Reader::new(read), control.clone(), gone);
    let mut reading = AbortOnDropHandle::new(tokio::spawn(reading));
    let mut writing = AbortOnDropHandle::new(tokio::spawn(writing));
    let mut is_written = false;
    let mut ended = tokio::select! {
        ended = run(context, command, version, wire) => ended,
        _ = &mut writing => {
            is_written = true;
            Outcome::ClientGone.into()
        }
    };
    if matches!(ended.outcome, Outcome::Shutdown | Outcome::Idle) {
        // Sent after the status, which contains the reason.
        control.end_with(GOING_AWAY);
        let _ = timeout(LINGER, writing).await;
        return ended;
    }
    if ended.outcome == Outcome::ClientGone {
        // The client has disconnected; its last message may have been a protocol violation.
        drop(gone_in_the_end);
        let last = timeout(LINGER, &mut reading).await;
        if last.is_ok_and(|last| last.unwrap_or(false)) {
            ended = Outcome::Protocol.into();
        }
        if !is_written {
            let _ = timeout(LINGER, writing).await;
        }
        return ended;
    }
    // A slow client still receives all output.
    let _ = writing.await;
    let _ = timeout(LINGER, reading).await;
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
    reading: Reading,
    reader: Reader<R>,
    control: Control,
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
struct Reading {
    demux: Demux,
    stdin: Option<mpsc::Sender<Bytes>>,
    sizes: Sizes,
    newest: Option<watch::Sender<Option<Size>>>,
    heartbeat: Heartbeat,
}

impl Reading {
    async fn run<R: AsyncRead + Unpin>(mut self, mut reader: Reader<R>) -> io::Result<()> {
        while let Some(event) = reader.next().await? {
            match event {
                Event::Ping(content) => self.heartbeat.control.pong(content),
                Event::Pong => {}
                Event::Close => break,
                Event::Data { bytes, last, .. } => {
                    if let Some(incoming) = self.demux.feed(bytes, last)? {
                        self.take(incoming).await;
                    }
                }
            }
        }
        Ok(())
    }

    async fn take(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Data(STDIN, bytes) => {
                // The reader is gone: further input is discarded.
                if let Some(stdin) = &self.stdin
                    && self.heartbeat.during(stdin.send(bytes)).await.is_err()
                {
                    self.stdin = None;
                }
            }
            Incoming::Data(RESIZE, bytes) => {
                if let Some(newest) = &self.newest
                    && let Some(size) = self.sizes.feed(&bytes)
                {
                    newest.send_replace(Some(size));
                }
            }
            Incoming::Close(STDIN) => self.stdin = None,
            Incoming::Data(..) | Incoming::Close(_) => {}
        }
    }
}
