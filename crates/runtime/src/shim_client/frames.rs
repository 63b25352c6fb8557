//! Frames from a socket.

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::AsyncReadExt as _;

use criscope_shim::protocol::{self, MAX_FRAME};

/// Reads frames from a socket. [`Frames::next`] is cancel safe.
#[derive(Debug)]
pub(super) struct Frames<R> {
    from: R,
    bytes: BytesMut,
    /// Size of the read buffer, in bytes.
    room: usize,
}

impl<R: tokio::io::AsyncRead + Unpin> Frames<R> {
    /// `room` is the size of the read buffer: small for the control connection, which is long-lived and mostly idle.
    pub(super) fn new(from: R, room: usize) -> Self {
        Self {
            from,
            bytes: BytesMut::new(),
            room,
        }
    }

    /// Returns the next frame without its length; `None` at the end, and after an invalid length.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(len) = protocol::frame_len(&self.bytes).ok()?
                && self.bytes.len() >= len
            {
                let mut frame = self.bytes.split_to(len).freeze();
                frame.advance(4);
                return Some(frame);
            }
            debug_assert!(self.bytes.len() <= MAX_FRAME + 4 + self.room);
            self.bytes.reserve(self.room);
            if self.from.read_buf(&mut self.bytes).await.ok()? == 0 {
                return None;
            }
        }
    }
}
