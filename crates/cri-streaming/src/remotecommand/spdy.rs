//! Standard streams over SPDY: one SPDY stream for each, and one for the result.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::resize::SizeDecoder;
use super::run::{ClientStreams, run};
use crate::context::SessionContext;
use crate::observe::SessionOutcome;
use crate::pipe;
use crate::request::{SessionTarget, StreamOptions};
use crate::runtime::{InputStream, OutputStream, TerminalSize};
use crate::session::SessionResult;
use crate::spdy::{CloseReason, SpdyLimits, SpdyReader, SpdyStream, SpdyStreams, SpdyWriter};
use crate::spdy_session::SpdySession;

/// The first version with a stream for terminal sizes.
const FIRST_RESIZE_VERSION: u8 = 3;

/// Serves one session.
pub(crate) async fn serve<T>(
    context: &SessionContext,
    io: T,
    (command, wanted): (SessionTarget, StreamOptions),
    version: u8,
) -> SessionResult
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = SpdyLimits::session(context.idle_timeout);
    let (mut streams, carrier) = SpdySession::begin(context, io, limits);
    let opening = PendingStreams::new(wanted, version).all(&mut streams);
    let opened = tokio::select! {
        opened = timeout(context.creation_timeout, opening) => opened,
        ending = context.stop.fired() => {
            carrier.close(context).await;
            return SessionOutcome::from(ending).into();
        }
    };
    let Ok(opened) = opened else {
        carrier.close(context).await;
        return SessionOutcome::NoStreams.into();
    };
    let gone = CancellationToken::new();
    let _gone_in_the_end = gone.clone().drop_guard();
    let Some((wire, held)) = opened.and_then(|opened| connect(opened, gone.clone())) else {
        return outcome(&carrier.reason().await).into();
    };
    let _watching = AbortOnDropHandle::new(tokio::spawn(async move {
        // The session has all its streams: an additional one is dropped, which resets it.
        while streams.next().await.is_some() {}
        gone.cancel();
    }));
    let ended = run(context, command, version, wire).await;
    if ended.outcome == SessionOutcome::ClientGone {
        return outcome(&carrier.reason().await).into();
    }
    held.finish().await;
    carrier.close(context).await;
    ended
}

/// The outcome of a session whose connection ended first.
fn outcome(reason: &CloseReason) -> SessionOutcome {
    match reason {
        CloseReason::Malformed(_) => SessionOutcome::Protocol,
        CloseReason::Idle => SessionOutcome::Idle,
        CloseReason::ClientGone
        | CloseReason::GoAway
        | CloseReason::Closed
        | CloseReason::Io(_) => SessionOutcome::ClientGone,
    }
}

/// The streams that the client opened: for the status, standard input, both outputs, and terminal sizes.
type OpenedStreams = [Option<SpdyStream>; 5];

/// The streams that the client must open, and the streams that it has opened.
struct PendingStreams {
    wanted: [(&'static str, bool); 5],
    there: OpenedStreams,
}

impl PendingStreams {
    fn new(wanted: StreamOptions, version: u8) -> Self {
        Self {
            wanted: [
                ("error", true),
                ("stdin", wanted.stdin),
                ("stdout", wanted.stdout),
                ("stderr", wanted.stderr),
                ("resize", wanted.tty && version >= FIRST_RESIZE_VERSION),
            ],
            there: [const { None }; 5],
        }
    }

    fn is_complete(&self) -> bool {
        let mut both = self.wanted.iter().zip(&self.there);
        both.all(|((_, wanted), there)| !wanted || there.is_some())
    }

    /// Takes an expected stream. Unexpected streams and duplicates are dropped, which resets them.
    fn take(&mut self, stream: SpdyStream) {
        let Some(name) = stream.headers.get("streamtype") else {
            return;
        };
        let place = self
            .wanted
            .iter()
            .position(|(wanted, is_wanted)| *is_wanted && *wanted == name);
        if let Some(place) = place.and_then(|place| self.there.get_mut(place))
            && place.is_none()
        {
            *place = Some(stream);
        }
    }

    /// Waits for all streams; `None` if the connection ends first.
    async fn all(mut self, streams: &mut SpdyStreams) -> Option<OpenedStreams> {
        while !self.is_complete() {
            self.take(streams.next().await?);
        }
        Some(self.there)
    }
}

/// The server's halves of the streams that only the client writes to. They stay open while the command runs, because a
/// client treats the end of this half of its stdin stream as the end of stdin.
struct IdleWriters {
    writers: Vec<SpdyWriter>,
    _resizing: Option<AbortOnDropHandle<()>>,
}

impl IdleWriters {
    async fn finish(self) {
        for mut writer in self.writers {
            let _ = writer.shutdown().await;
        }
    }
}

/// Connects the streams with the command; `None` without a stream for the status.
fn connect(
    [error, stdin, stdout, stderr, sizes]: OpenedStreams,
    gone: CancellationToken,
) -> Option<(ClientStreams, IdleWriters)> {
    let mut error = error?;
    let (newest, resize) = pipe::sizes();
    let (stdin, stdin_writer) = stdin.map(SpdyStream::split).unzip();
    let (sizes, sizes_writer) = sizes.map(SpdyStream::split).unzip();
    let writers = stdin_writer.into_iter().chain(sizes_writer).collect();
    let resizing =
        sizes.map(|reader| AbortOnDropHandle::new(tokio::spawn(resizes(reader, newest))));
    // Some clients take the result for the end of the session, and it must not overtake output.
    error.writer().defer();
    let wire = ClientStreams {
        stdin: stdin.map(|reader| Box::new(reader) as InputStream),
        stdout: stdout.map(output),
        stderr: stderr.map(output),
        error: output(error),
        resize,
        gone,
    };
    let held = IdleWriters {
        writers,
        _resizing: resizing,
    };
    Some((wire, held))
}

/// The server's half of a stream that the client only reads.
fn output(stream: SpdyStream) -> OutputStream {
    Box::new(stream.split().1)
}

/// Reads terminal sizes until the stream ends.
async fn resizes(mut reader: SpdyReader, newest: watch::Sender<Option<TerminalSize>>) {
    let (mut sizes, mut buffer) = (SizeDecoder::default(), [0; 512]);
    while let Ok(n @ 1..) = reader.read(&mut buffer).await {
        if let Some(size) = sizes.feed(&buffer[..n]) {
            newest.send_replace(Some(size));
        }
    }
}
