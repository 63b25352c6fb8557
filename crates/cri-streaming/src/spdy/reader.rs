//! The peer's half of a stream.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

use super::core::SharedConnection;
use super::stream_state::IncomingEnd;

/// Reads the peer's data on a stream. It ends with the stream, however that ends, and with the connection; data that
/// arrived earlier can be read first, and [`is_lost`](SpdyReader::is_lost) then returns whether it is truncated. Only a stream
/// that the server reset because it was not read fails, with [`TimedOut`](io::ErrorKind::TimedOut). After a drop, further
/// data is drained.
#[derive(Debug)]
pub struct SpdyReader {
    shared: Arc<SharedConnection>,
    id: u32,
    /// The piece that was taken and not yet read completely.
    current: BytesMut,
}

impl SpdyReader {
    pub(super) fn new(shared: Arc<SharedConnection>, id: u32) -> Self {
        Self {
            shared,
            id,
            current: BytesMut::new(),
        }
    }

    /// Returns whether the connection was lost before the peer ended its half, reset the stream or sent GOAWAY: the data
    /// may then be truncated.
    pub fn is_lost(&self) -> bool {
        let core = self.shared.lock();
        let state = core.states.get(&self.id);
        state.is_some_and(|state| state.received == Some(IncomingEnd::Lost))
    }
}

impl AsyncBufRead for SpdyReader {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        if this.current.is_empty() {
            let mut core = this.shared.lock();
            if let Some(piece) = core.take(this.id) {
                this.current = piece;
            } else if let Some(state) = core.states.get_mut(&this.id) {
                match state.received {
                    Some(IncomingEnd::All | IncomingEnd::Lost) => {}
                    Some(IncomingEnd::Stalled) => {
                        let what = "the stream was not read for too long and held back others";
                        return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, what)));
                    }
                    None => {
                        state.reader = Some(cx.waker().clone());
                        return Poll::Pending;
                    }
                }
            }
        }
        Poll::Ready(Ok(&this.current))
    }

    fn consume(mut self: Pin<&mut Self>, len: usize) {
        self.current.advance(len);
        if len > 0 && self.current.is_empty() {
            // Releases the memory of the whole read that the piece belongs to.
            self.current = BytesMut::new();
            self.shared.lock().let_go(self.id);
        }
    }
}

impl AsyncRead for SpdyReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let there = ready!(self.as_mut().poll_fill_buf(cx))?;
        let len = there.len().min(buf.remaining());
        buf.put_slice(&there[..len]);
        self.consume(len);
        Poll::Ready(Ok(()))
    }
}

impl Drop for SpdyReader {
    fn drop(&mut self) {
        self.shared.lock().drop_reader(self.id);
    }
}
