//! Streams within the process: from whoever reads a connection to whoever wants one stream of it, and back.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use futures_util::future::poll_fn;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, watch};

use super::observe::Direction;
use super::runtime::{Input, Output, Size};
use super::session::Meter;

/// Pieces that wait to be read; each is at most as large as what is read from a connection at once.
const PIECES: usize = 4;

/// What one stream of a connection brings: pieces put in at one end, bytes read at the other. It ends when the sender is
/// dropped; the sender sees by its errors that nobody reads any more.
pub(super) fn pipe() -> (mpsc::Sender<Bytes>, Pipe) {
    let (sender, pieces) = mpsc::channel(PIECES);
    let pipe = Pipe {
        pieces,
        rest: Bytes::new(),
    };
    (sender, pipe)
}

/// The reading end.
pub(super) struct Pipe {
    pieces: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl AsyncBufRead for Pipe {
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
            // The memory of the whole read behind it.
            self.rest = Bytes::new();
        }
    }
}

impl AsyncRead for Pipe {
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

/// Bytes from the client, counted.
pub(super) fn counted(input: Input, meter: Arc<Meter>) -> Input {
    Box::new(CountedInput { input, meter })
}

struct CountedInput {
    input: Input,
    meter: Arc<Meter>,
}

impl AsyncRead for CountedInput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.input).poll_read(cx, buf))?;
        self.meter.count(Direction::In, buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

#[derive(Default)]
struct RevocableState {
    output: Option<Output>,
    /// Who waits to write: to be woken when the output is taken away.
    waiting: Option<Waker>,
}

impl RevocableState {
    fn take(&mut self) -> Option<Output> {
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
        self.output.take()
    }
}

/// An output that is lent out and can be taken back: what a command was given is ended by us, even if something the
/// command left behind still holds it.
pub(super) struct RevocableOutput {
    slot: Arc<Mutex<RevocableState>>,
}

fn lock(slot: &Mutex<RevocableState>) -> MutexGuard<'_, RevocableState> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RevocableOutput {
    /// Lends an output, with what is written to it counted.
    pub(super) fn new(output: Output, meter: Arc<Meter>) -> (Self, Output) {
        let slot = Arc::new(Mutex::new(RevocableState {
            output: Some(output),
            waiting: None,
        }));
        let lent = Self {
            slot: Arc::clone(&slot),
        };
        (lent, Box::new(RevocableWriter { slot, meter }))
    }

    /// Takes it back and ends it.
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
    meter: Arc<Meter>,
}

impl RevocableWriter {
    fn with<T>(
        &self,
        cx: &mut Context<'_>,
        act: impl FnOnce(Pin<&mut Output>, &mut Context<'_>) -> Poll<io::Result<T>>,
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
            // Before it can be taken back, or a session might end whose last bytes are not counted.
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

/// Sizes of a terminal, from who reads the connection to the target: if they come faster than they are taken, the last
/// one is what counts.
pub(super) fn sizes() -> (watch::Sender<Option<Size>>, mpsc::Receiver<Size>) {
    let (newest, mut seen) = watch::channel(None);
    let (sizes, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        while seen.changed().await.is_ok() {
            // First a place, then the size: the newest when there is room, not when there was none.
            let Ok(place) = sizes.reserve().await else {
                return;
            };
            let size = *seen.borrow_and_update();
            if let Some(size) = size {
                place.send(size);
            }
        }
    });
    (newest, receiver)
}

#[cfg(test)]
mod tests {
    use http::Extensions;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::observe::{Observers, SessionKind, Transport};
    use super::super::session::{ObservedSession, SessionInfo};
    use super::*;

    fn meter() -> Arc<Meter> {
        let about = SessionInfo {
            kind: SessionKind::PortForward,
            id: "s".into(),
            command: vec![],
            extensions: Extensions::new(),
        };
        ObservedSession::begin(about, Transport::Spdy, "p", &Observers(Arc::new([]))).meter()
    }

    #[tokio::test]
    async fn a_pipe_ends_with_its_sender() {
        let (sender, mut pipe) = pipe();
        for piece in [&b"ab"[..], b"", b"cde"] {
            sender.send(Bytes::from_static(piece)).await.expect("open");
        }
        let mut three = [0; 3];
        pipe.read_exact(&mut three).await.expect("there");
        drop(sender);
        let mut rest = Vec::new();
        pipe.read_to_end(&mut rest).await.expect("end");
        assert_eq!((&three, &rest[..]), (b"abc", &b"de"[..]));
    }

    #[tokio::test]
    async fn who_waits_to_write_is_told_that_the_output_was_taken_back() {
        let (near, _far) = tokio::io::duplex(1);
        let (lent, mut output) = RevocableOutput::new(Box::new(near), meter());
        let writing = tokio::spawn(async move { output.write_all(b"more than one").await });
        tokio::task::yield_now().await;
        lent.finish().await.expect("ended");
        let error = writing.await.expect("no panic").expect_err("taken back");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn the_last_size_is_never_lost() {
        let (newest, mut sizes) = sizes();
        for width in 1..=1000 {
            newest.send_replace(Some(Size { width, height: 1 }));
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
