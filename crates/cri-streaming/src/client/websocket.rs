//! A WebSocket client (RFC 6455), frame by frame: it masks its frames and supports no extensions.

use std::io;

use bytes::{Bytes, BytesMut};
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};

pub use crate::websocket::opcode::{BINARY, CLOSE, PING, PONG, TEXT};
use crate::websocket::{put_head, unmask};

/// The bit in the first byte that marks the last frame of a message.
const FIN: u8 = 0x80;
/// Maximum payload of a received frame, in bytes.
const MAX_PAYLOAD_LEN: u64 = 16 << 20;
/// Size of the read buffer, in bytes.
const READ_BUFFER_LEN: usize = 64 << 10;

/// Encodes a masked frame (RFC 6455 section 5.2) from its first byte (flags and opcode) and its payload.
pub fn encode_frame(first: u8, mask: [u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut frame = Vec::with_capacity(14 + length);
    put_head(&mut frame, first, 0x80, length);
    frame.extend(mask);
    let payload = frame.len();
    parts.iter().for_each(|part| frame.extend(*part));
    // Masking and unmasking are the same operation.
    unmask(&mut frame[payload..], mask, 0);
    frame
}

/// The writing half of a connection.
#[derive(Debug)]
pub struct WebSocketSender<W> {
    io: W,
    random: SystemRandom,
}

impl<W: AsyncWrite + Unpin> WebSocketSender<W> {
    /// Wraps the writing half of an upgraded connection.
    pub fn new(io: W) -> Self {
        Self {
            io,
            random: SystemRandom::new(),
        }
    }

    /// Sends a message or control frame whose payload consists of these parts.
    ///
    /// # Errors
    /// If the connection has ended, or the system provides no random numbers for the mask.
    pub async fn send(&mut self, opcode: u8, parts: &[&[u8]]) -> io::Result<()> {
        let mut mask = [0; 4];
        self.random
            .fill(&mut mask)
            .map_err(|_| io::Error::other("no random number for the mask of a frame"))?;
        let frame = encode_frame(FIN | opcode, mask, parts);
        self.io.write_all(&frame).await?;
        self.io.flush().await
    }

    /// Sends a close frame with this code (RFC 6455 section 7.4).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn close(&mut self, code: u16) -> io::Result<()> {
        self.send(CLOSE, &[&code.to_be_bytes()]).await
    }

    /// The connection itself, for bytes that are not a frame of this client.
    pub fn io(&mut self) -> &mut W {
        &mut self.io
    }
}

/// A frame of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketFrame {
    /// The opcode: [`TEXT`], [`BINARY`], [`CLOSE`], [`PING`], [`PONG`] or 0 for the continuation of a message.
    pub opcode: u8,
    /// Set if the frame is the last one of its message.
    pub is_last: bool,
    /// The payload, unmasked.
    pub payload: Bytes,
}

/// The reading half of a connection.
#[derive(Debug)]
pub struct WebSocketReceiver<R> {
    io: BufReader<R>,
}

impl<R: AsyncRead + Unpin> WebSocketReceiver<R> {
    /// Wraps the reading half of an upgraded connection.
    pub fn new(io: R) -> Self {
        Self {
            io: BufReader::with_capacity(READ_BUFFER_LEN, io),
        }
    }

    /// Returns the next frame; `None` at the end of the connection. Dropping the future may lose part of a frame.
    ///
    /// # Errors
    /// If the connection breaks within a frame, or with [`io::ErrorKind::InvalidData`] if the frame is malformed.
    pub async fn next(&mut self) -> io::Result<Option<WebSocketFrame>> {
        let mut first = [0];
        if self.io.read(&mut first).await? == 0 {
            return Ok(None);
        }
        let length = match self.io.read_u8().await? {
            126 => u64::from(self.io.read_u16().await?),
            127 => self.io.read_u64().await?,
            short => u64::from(short),
        };
        // The mask bit is part of the length byte: servers do not mask.
        let length = usize::try_from(length)
            .ok()
            .filter(|len| *len as u64 <= MAX_PAYLOAD_LEN);
        let [first] = first;
        let (Some(length), 0) = (length, first & 0x70) else {
            let what = "malformed WebSocket frame of a server";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        };
        let mut payload = BytesMut::zeroed(length);
        self.io.read_exact(&mut payload).await?;
        Ok(Some(WebSocketFrame {
            opcode: first & 0x0f,
            is_last: first & FIN != 0,
            payload: payload.freeze(),
        }))
    }
}
