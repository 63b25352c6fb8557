//! Reads messages from a connection, and answers pings.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::decode::{WebSocketDecoder, WebSocketEvent};
use super::write::ControlQueue;

/// Size of a read, in bytes: a piece of a message is no larger.
const READ_LEN: usize = 64 << 10;

/// A piece of a message.
pub(crate) struct MessagePiece {
    /// Set if the message is text.
    pub(crate) text: bool,
    /// Set for the last piece of a message.
    pub(crate) last: bool,
    /// May be empty.
    pub(crate) bytes: Bytes,
}

/// The reading half of a connection.
pub(crate) struct WebSocketReader<R> {
    io: R,
    control: ControlQueue,
    decoder: WebSocketDecoder,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> WebSocketReader<R> {
    pub(crate) fn new(io: R, control: ControlQueue) -> Self {
        Self {
            io,
            control,
            decoder: WebSocketDecoder::default(),
            buffer: BytesMut::new(),
        }
    }

    /// Returns the next piece of a message; `None` once the client has closed. Cancel safe.
    ///
    /// # Errors
    /// If reading fails, with [`io::ErrorKind::UnexpectedEof`] if the connection ends without a close frame, or with
    /// [`io::ErrorKind::InvalidData`] if the client violated the protocol.
    pub(crate) async fn next(&mut self) -> io::Result<Option<MessagePiece>> {
        loop {
            let event = self.decoder.decode(&mut self.buffer);
            match event
                .map_err(|violation| io::Error::new(io::ErrorKind::InvalidData, violation))?
            {
                Some(WebSocketEvent::Data {
                    text, last, bytes, ..
                }) => return Ok(Some(MessagePiece { text, last, bytes })),
                Some(WebSocketEvent::Close) => return Ok(None),
                Some(WebSocketEvent::Ping(content)) => self.control.pong(content),
                Some(WebSocketEvent::Pong) => {}
                None => {
                    // A buffer shared with pieces in use is left to them.
                    self.buffer.reserve(READ_LEN / 2);
                    if self.io.read_buf(&mut self.buffer).await? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        }
    }
}
