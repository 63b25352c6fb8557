//! Our half of a stream.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

use super::core::Shared;
use super::stream_state::OutgoingEnd;

/// What is sent to the peer on a stream. Bytes that were taken leave on their own: flushing does nothing. Shutting it
/// down ends this half behind them (FIN); dropping it before resets the stream.
///
/// Writing fails with [`BrokenPipe`](io::ErrorKind::BrokenPipe) once the stream or the connection is over.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    id: u32,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, id: u32) -> Self {
        Self { shared, id }
    }

    /// How many bytes are taken at once, when it is worth it: half of [`Limits::unsent`](super::Limits::unsent) or more. Who
    /// waits for this before it reads holds nothing meanwhile.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut core = self.shared.lock();
        let least = core.limits.unsent / 2;
        core.poll_room(self.id, least, cx)
    }

    /// Ends both halves of the stream behind what was written (RST_STREAM with CANCEL), also after a shutdown.
    pub fn reset(self) {
        self.shared.lock().reset(self.id);
    }
}

impl AsyncWrite for Writer {
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

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().drop_writer(self.id);
    }
}
