//! Writing to a client.

use std::io;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

use crate::channels::{ChannelWriter, MAX_MESSAGE_LEN};
use crate::spdy::SpdyWriter;

/// The writer of one forwarded connection. A client may have hundreds of them, so data that waits for the client is left in
/// its source and not buffered here: capacity is reserved before anything is read.
pub(super) trait ClientWriter: AsyncWrite + Unpin {
    /// Returns how many bytes it accepts at once, as soon as it accepts any.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;
}

impl ClientWriter for SpdyWriter {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        SpdyWriter::poll_room(self, cx)
    }
}

/// Capacity for a message would have to be reserved while the pod sends nothing, and there is not enough for every channel.
/// There are few channels, and each holds one message.
impl ClientWriter for ChannelWriter {
    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(MAX_MESSAGE_LEN))
    }
}
