//! Frames from a socket.

use tokio::io::AsyncReadExt as _;

use crate::shim::protocol::{self, MAX_FRAME};

/// Frames from a socket. Dropping [`Frames::next`] loses nothing.
#[derive(Debug)]
pub(super) struct Frames<R> {
    from: R,
    bytes: Vec<u8>,
}

impl<R: tokio::io::AsyncRead + Unpin> Frames<R> {
    pub(super) fn new(from: R) -> Self {
        Self {
            from,
            bytes: Vec::new(),
        }
    }

    /// The next one without its length; `None` at the end, and after a length that cannot be.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(len) = protocol::frame_len(&self.bytes).ok()?
                && self.bytes.len() >= len
            {
                let rest = self.bytes.split_off(len);
                let mut frame = std::mem::replace(&mut self.bytes, rest);
                frame.drain(..4);
                return Some(frame);
            }
            debug_assert!(self.bytes.len() <= MAX_FRAME + 4 + (64 << 10));
            self.bytes.reserve(4096);
            if self.from.read_buf(&mut self.bytes).await.ok()? == 0 {
                return None;
            }
        }
    }
}
