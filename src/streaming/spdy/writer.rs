//! Our half of a stream.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

use super::core::Shared;
use super::slot::Last;

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
        let most = core.limits.unsent;
        let Some(slot) = core.writable(self.id) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let len = buf.len().min(most.saturating_sub(slot.unsent));
        if len == 0 && !buf.is_empty() {
            slot.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if len > 0 {
            slot.send(&buf[..len]);
            core.queue(self.id);
        }
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.lock().finish(self.id, Last::Fin);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().drop_writer(self.id);
    }
}
