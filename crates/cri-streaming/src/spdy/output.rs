//! Output: many frames per write.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

/// With this many bytes, the output buffer accepts no more data from streams.
pub(super) const OUTPUT_FULL_LEN: usize = 128 * 1024;

/// Frames that are being written.
#[derive(Debug, Default)]
pub(super) struct FrameOutput {
    /// Buffers of whole frames.
    queue: VecDeque<Vec<u8>>,
    /// How much of the first buffer has been written.
    written: usize,
    queued: usize,
    must_flush: bool,
}

impl FrameOutput {
    /// Appends whole frames.
    pub(super) fn push(&mut self, frames: Vec<u8>) {
        self.queued += frames.len();
        self.queue.push_back(frames);
    }

    pub(super) fn has_room(&self) -> bool {
        self.queued < OUTPUT_FULL_LEN
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && !self.must_flush
    }

    /// Writes once, or flushes if everything is written. Returns the number of bytes.
    pub(super) fn poll_write<T: AsyncWrite + Unpin + ?Sized>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.queue.is_empty() {
            if self.must_flush {
                ready!(Pin::new(io).poll_flush(cx))?;
                self.must_flush = false;
            }
            return Poll::Ready(Ok(0));
        }
        let mut bufs = [IoSlice::new(&[]); 16];
        let mut used = 0;
        for (buf, frames) in bufs.iter_mut().zip(&self.queue) {
            let from = if used == 0 { self.written } else { 0 };
            *buf = IoSlice::new(&frames[from..]);
            used += 1;
        }
        let n = ready!(Pin::new(io).poll_write_vectored(cx, &bufs[..used]))?;
        if n == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.must_flush = true;
        self.advance(n);
        Poll::Ready(Ok(n))
    }

    fn advance(&mut self, n: usize) {
        self.queued -= n;
        self.written += n;
        while let Some(first) = self.queue.front()
            && self.written >= first.len()
        {
            self.written -= first.len();
            self.queue.pop_front();
        }
    }
}
