//! The server's half of a stream.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

use super::core::SharedConnection;
use super::stream_state::OutgoingEnd;

/// Sends data to the peer on a stream. Accepted bytes are sent without a flush, which does nothing. A shutdown ends this
/// half after the data (FIN); dropping the writer earlier resets the stream.
///
/// Writes fail with [`BrokenPipe`](io::ErrorKind::BrokenPipe) once the stream or the connection has ended.
#[derive(Debug)]
pub struct SpdyWriter {
    shared: Arc<SharedConnection>,
    id: u32,
}

impl SpdyWriter {
    pub(super) fn new(shared: Arc<SharedConnection>, id: u32) -> Self {
        Self { shared, id }
    }

    /// Returns how many bytes are accepted at once, as soon as that is at least half of
    /// [`SpdyLimits::unsent`](super::SpdyLimits::unsent). A caller that waits for this before it reads needs no buffer.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut core = self.shared.lock();
        let least = core.limits.unsent / 2;
        core.poll_room(self.id, least, cx)
    }

    /// Defers this stream: its frames, including its end, are sent when no other stream has any queued. What is written to it
    /// after the end of another stream thus arrives after that end.
    pub fn defer(&mut self) {
        if let Some(state) = self.shared.lock().states.get_mut(&self.id) {
            state.is_deferred = true;
        }
    }

    /// Ends both halves of the stream after the data written so far (RST_STREAM with CANCEL), even after a shutdown.
    pub fn reset(self) {
        self.shared.lock().reset(self.id);
    }
}

impl AsyncWrite for SpdyWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut core = self.shared.lock();
        if buf.is_empty() && core.writable(self.id).is_some() {
            return Poll::Ready(Ok(0));
        }
        let room = ready!(core.poll_room(self.id, 1, cx))?;
        let len = buf.len().min(room);
        core.send(self.id, &buf[..len]);
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.lock().finish(self.id, OutgoingEnd::Fin);
        Poll::Ready(Ok(()))
    }
}

impl Drop for SpdyWriter {
    fn drop(&mut self) {
        self.shared.lock().drop_writer(self.id);
    }
}
