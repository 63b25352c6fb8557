//! The way to a client.

use std::io;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

use crate::channels::{ChannelWriter, MAX_MESSAGE};
use crate::spdy::Writer;

/// What takes the bytes of one connection, of which a client may have hundreds. What waits for the client to read is left
/// where it comes from, and not held here: it is asked for room before anything is read.
pub(super) trait ClientWriter: AsyncWrite + Unpin {
    /// How many bytes are taken at once, when some are.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;
}

impl ClientWriter for Writer {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        Writer::poll_room(self, cx)
    }
}

/// Room for a message would have to be kept while the pod says nothing, and there is not enough for every channel. There are
/// few of them, and each holds one message.
impl ClientWriter for ChannelWriter {
    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(MAX_MESSAGE))
    }
}
