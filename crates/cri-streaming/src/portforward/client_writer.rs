//! Writing to a client.

use std::io;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

use crate::channels::{ChannelWriter, MAX_MESSAGE};
use crate::spdy::Writer;

/// The writer of one forwarded connection, of which a client may have hundreds. Data that waits for the client is left in
/// its source and not buffered here: capacity is reserved before anything is read.
pub(super) trait ClientWriter: AsyncWrite + Unpin {
    /// Returns how many bytes it accepts at once, as soon as it accepts any.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;
}

impl ClientWriter for Writer {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        Writer::poll_room(self, cx)
    }
}

/// Capacity for a message would have to be reserved while the pod sends nothing, and there is not enough for every channel.
/// There are few channels, and each holds one message.
impl ClientWriter for ChannelWriter {
    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(MAX_MESSAGE))
    }
}
