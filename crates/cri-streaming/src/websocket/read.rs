//! Reads events from a connection.

use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::decode::{WebSocketDecoder, WebSocketEvent};

/// Size of a read, in bytes: a piece of a message is no larger.
const READ_LEN: usize = 64 << 10;

/// The reading half of a connection.
pub(crate) struct WebSocketReader<R> {
    io: R,
    decoder: WebSocketDecoder,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> WebSocketReader<R> {
    pub(crate) fn new(io: R) -> Self {
        Self {
            io,
            decoder: WebSocketDecoder::default(),
            buffer: BytesMut::new(),
        }
    }

    /// Returns the next event; `None` at the end of the connection. Cancel safe.
    ///
    /// # Errors
    /// If reading fails, or with [`io::ErrorKind::InvalidData`] if the client violated the protocol.
    pub(crate) async fn next(&mut self) -> io::Result<Option<WebSocketEvent>> {
        loop {
            let event = self.decoder.decode(&mut self.buffer);
            if let Some(event) =
                event.map_err(|violation| io::Error::new(io::ErrorKind::InvalidData, violation))?
            {
                return Ok(Some(event));
            }
            // A buffer shared with pieces in use is left to them.
            self.buffer.reserve(READ_LEN / 2);
            if self.io.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}
