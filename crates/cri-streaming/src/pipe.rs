//! Pipes within the process, between the task that reads a connection and the user of one of its streams.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use futures_util::future::poll_fn;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, watch};
use tokio_util::io::InspectReader;

use super::observe::Direction;
use super::runtime::{InputStream, OutputStream, TerminalSize};
use super::session::SessionMeter;

/// Maximum number of pieces that wait to be read. A piece is at most as large as one read of the connection.
const MAX_PIECES: usize = 4;

/// Creates one stream of a connection: pieces enter at one end, and bytes are read at the other. It ends when the sender is
/// dropped; the sender gets an error once the reader is dropped.
pub(super) fn pipe() -> (mpsc::Sender<Bytes>, StreamPipe) {
    let (sender, pieces) = mpsc::channel(MAX_PIECES);
    let pipe = StreamPipe {
        pieces,
        rest: Bytes::new(),
    };
    (sender, pipe)
}

/// The reading end.
pub(super) struct StreamPipe {
    pieces: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl AsyncBufRead for StreamPipe {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        while this.rest.is_empty() {
            match ready!(this.pieces.poll_recv(cx)) {
                Some(piece) => this.rest = piece,
                None => break,
            }
        }
        Poll::Ready(Ok(&this.rest))
    }

    fn consume(mut self: Pin<&mut Self>, n: usize) {
        self.rest.advance(n);
        if self.rest.is_empty() {
            // Releases the memory of the whole read that the piece belongs to.
            self.rest = Bytes::new();
        }
    }
}

impl AsyncRead for StreamPipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let there = ready!(self.as_mut().poll_fill_buf(cx))?;
        let n = there.len().min(buf.remaining());
        buf.put_slice(&there[..n]);
        self.consume(n);
        Poll::Ready(Ok(()))
    }
}

/// Counts bytes from the client.
pub(super) fn counted(input: InputStream, meter: Arc<SessionMeter>) -> InputStream {
    Box::new(InspectReader::new(input, move |bytes: &[u8]| {
        meter.count(Direction::In, bytes.len());
    }))
}

#[derive(Default)]
struct RevocableState {
    output: Option<OutputStream>,
    /// The task waiting to write, woken when the output is revoked.
    waiting: Option<Waker>,
}

impl RevocableState {
    fn take(&mut self) -> Option<OutputStream> {
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
        self.output.take()
    }
}

/// An output that can be revoked: the output of a command is closed at the end of the session, even if a process that the
/// command left behind still holds it.
pub(super) struct RevocableOutput {
    slot: Arc<Mutex<RevocableState>>,
}

fn lock(slot: &Mutex<RevocableState>) -> MutexGuard<'_, RevocableState> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RevocableOutput {
    /// Lends an output, and counts the bytes written to it.
    pub(super) fn new(output: OutputStream, meter: Arc<SessionMeter>) -> (Self, OutputStream) {
        let slot = Arc::new(Mutex::new(RevocableState {
            output: Some(output),
            waiting: None,
        }));
        let lent = Self {
            slot: Arc::clone(&slot),
        };
        (lent, Box::new(RevocableWriter { slot, meter }))
    }

    /// Revokes the output and closes it.
    pub(super) async fn finish(self) -> io::Result<()> {
        let taken = lock(&self.slot).take();
        match taken {
            Some(mut output) => poll_fn(|cx| Pin::new(&mut output).poll_shutdown(cx)).await,
            None => Ok(()),
        }
    }
}

impl Drop for RevocableOutput {
    fn drop(&mut self) {
        lock(&self.slot).take();
    }
}

struct RevocableWriter {
    slot: Arc<Mutex<RevocableState>>,
    meter: Arc<SessionMeter>,
}

impl RevocableWriter {
    fn with<T>(
        &self,
        cx: &mut Context<'_>,
        act: impl FnOnce(Pin<&mut OutputStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut slot = lock(&self.slot);
        let Some(output) = &mut slot.output else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let result = act(Pin::new(output), cx);
        if result.is_pending() {
            match &mut slot.waiting {
                Some(waiting) => waiting.clone_from(cx.waker()),
                None => slot.waiting = Some(cx.waker().clone()),
            }
        }
        result
    }
}

impl AsyncWrite for RevocableWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(cx, |output, cx| {
            let n = ready!(output.poll_write(cx, buf))?;
            // Counted before the output can be revoked; otherwise a session might end before its last bytes are counted.
            self.meter.count(Direction::Out, n);
            Poll::Ready(Ok(n))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(cx, |output, cx| output.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(cx, |output, cx| output.poll_shutdown(cx))
    }
}

/// Passes terminal sizes from the task that reads the connection to the runtime. If they arrive faster than they are
/// received, only the last one matters.
pub(super) fn sizes() -> (
    watch::Sender<Option<TerminalSize>>,
    mpsc::Receiver<TerminalSize>,
) {
    let (newest, mut seen) = watch::channel(None);
    let (sizes, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        while seen.changed().await.is_ok() {
            // The permit first, then the size: this sends the newest size, not the one from before the wait.
            let Ok(permit) = sizes.reserve().await else {
                return;
            };
            let size = *seen.borrow_and_update();
            if let Some(size) = size {
                permit.send(size);
            }
        }
    });
    (newest, receiver)
}

#[cfg(test)]
mod tests {
    use http::Extensions;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::observe::{SessionKind, SessionObservers, Transport};
    use super::super::session::{ObservedSession, SessionInfo};
    use super::*;

    fn meter() -> Arc<SessionMeter> {
        let info = SessionInfo {
            kind: SessionKind::PortForward,
            id: "s".into(),
            command: vec![],
            extensions: Extensions::new(),
        };
        ObservedSession::begin(info, Transport::Spdy, "p", &SessionObservers(Arc::new([]))).meter()
    }

    #[tokio::test]
    async fn a_pipe_ends_with_its_sender() {
        let (sender, mut pipe) = pipe();
        for piece in [&b"ab"[..], b"", b"cde"] {
            sender.send(Bytes::from_static(piece)).await.expect("open");
        }
        let mut three = [0; 3];
        pipe.read_exact(&mut three).await.expect("read");
        drop(sender);
        let mut rest = Vec::new();
        pipe.read_to_end(&mut rest).await.expect("end");
        assert_eq!((&three, &rest[..]), (b"abc", &b"de"[..]));
    }

    #[tokio::test]
    async fn a_pending_write_fails_when_the_output_is_revoked() {
        let (near, _far) = tokio::io::duplex(1);
        let (lent, mut output) = RevocableOutput::new(Box::new(near), meter());
        let writing = tokio::spawn(async move { output.write_all(b"more than one").await });
        tokio::task::yield_now().await;
        lent.finish().await.expect("ended");
        let error = writing.await.expect("no panic").expect_err("revoked");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn the_last_size_is_never_lost() {
        let (newest, mut sizes) = sizes();
        for width in 1..=1000 {
            newest.send_replace(Some(TerminalSize { width, height: 1 }));
            tokio::task::yield_now().await;
        }
        drop(newest);
        let mut last = None;
        while let Some(size) = sizes.recv().await {
            last = Some(size.width);
        }
        assert_eq!(last, Some(1000));
    }
}
