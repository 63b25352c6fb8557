//! A SPDY/3.1 client, frame by frame. Like Kubernetes clients, it neither sends nor honours flow control windows: only the
//! connection exerts back pressure.

use std::io;

use bytes::{Bytes, BytesMut};
use flate2::{Compress, Compression, FlushCompress};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};

use crate::spdy::{HEADER_DICTIONARY, frame};

/// Size of the read buffer, in bytes.
const READ_BUFFER_LEN: usize = 64 << 10;

/// The writing half of a connection.
#[derive(Debug)]
pub struct SpdySender<W> {
    io: W,
    deflate: Compress,
    next_stream: u32,
    frame: Vec<u8>,
}

impl<W: AsyncWrite + Unpin> SpdySender<W> {
    /// Wraps the writing half of an upgraded connection.
    ///
    /// # Errors
    /// If the compression context cannot be created.
    pub fn new(io: W) -> io::Result<Self> {
        let mut deflate = Compress::new(Compression::fast(), true);
        deflate.set_dictionary(&HEADER_DICTIONARY)?;
        Ok(Self {
            io,
            deflate,
            next_stream: 1,
            frame: Vec::new(),
        })
    }

    /// Opens a stream with these headers (SYN_STREAM) and returns its id, without waiting for the reply.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn open(&mut self, headers: &[(&str, &str)]) -> io::Result<u32> {
        let stream = self.next_stream;
        self.next_stream += 2;
        let mut plain = length(headers.len())?.to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend(length(text.len())?);
            plain.extend(text.bytes());
        }
        let mut block = Vec::with_capacity(plain.len() + 256);
        self.deflate
            .compress_vec(&plain, &mut block, FlushCompress::Sync)?;
        self.frame.clear();
        frame::syn_stream(&mut self.frame, stream, &block);
        self.io.write_all(&self.frame).await?;
        Ok(stream)
    }

    /// Sends one data frame; `is_last` ends our half of the stream.
    ///
    /// # Errors
    /// If the connection has ended, or the data does not fit a frame (16 MiB).
    pub async fn data(&mut self, stream: u32, bytes: &[u8], is_last: bool) -> io::Result<()> {
        if bytes.len() >= 1 << 24 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = if is_last { frame::FIN } else { 0 };
        self.frame.clear();
        self.frame
            .extend(frame::data_head(stream, flags, bytes.len()));
        self.frame.extend(bytes);
        self.io.write_all(&self.frame).await
    }

    /// Resets a stream (RST_STREAM with CANCEL).
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn reset(&mut self, stream: u32) -> io::Result<()> {
        self.frame.clear();
        frame::reset(&mut self.frame, stream, frame::ResetStatus::Cancel);
        self.io.write_all(&self.frame).await
    }

    /// Sends a PING; a client's PINGs have odd ids.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn ping(&mut self, id: u32) -> io::Result<()> {
        self.frame.clear();
        frame::ping(&mut self.frame, id);
        self.io.write_all(&self.frame).await
    }

    /// Announces that no further streams will be opened (GOAWAY).
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn go_away(&mut self) -> io::Result<()> {
        self.frame.clear();
        frame::go_away(&mut self.frame, 0, false);
        self.io.write_all(&self.frame).await
    }

    /// The connection itself, for bytes that are not a frame of this client.
    pub fn io(&mut self) -> &mut W {
        &mut self.io
    }
}

fn length(len: usize) -> io::Result<[u8; 4]> {
    let len = u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(len.to_be_bytes())
}

/// A frame of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpdyFrame {
    /// The server accepts a stream (SYN_REPLY).
    Reply {
        /// The stream.
        stream: u32,
    },
    /// Data of a stream.
    Data {
        /// The stream.
        stream: u32,
        /// The data; may be empty.
        bytes: Bytes,
        /// Set if the frame ends the server's half of the stream (FIN).
        is_last: bool,
    },
    /// The server resets a stream (RST_STREAM).
    Reset {
        /// The stream.
        stream: u32,
    },
    /// A PING or the answer to one.
    Ping {
        /// The id of the PING.
        id: u32,
    },
    /// The server ends the connection (GOAWAY).
    GoAway,
    /// A control frame of another type.
    Other {
        /// The type.
        kind: u16,
    },
}

/// The reading half of a connection.
#[derive(Debug)]
pub struct SpdyReceiver<R> {
    io: BufReader<R>,
}

impl<R: AsyncRead + Unpin> SpdyReceiver<R> {
    /// Wraps the reading half of an upgraded connection.
    pub fn new(io: R) -> Self {
        Self {
            io: BufReader::with_capacity(READ_BUFFER_LEN, io),
        }
    }

    /// Returns the next frame; `None` at the end of the connection. Dropping the future may lose a part of a frame.
    ///
    /// # Errors
    /// If the connection breaks within a frame, or with [`io::ErrorKind::InvalidData`] if the frame is malformed.
    pub async fn next(&mut self) -> io::Result<Option<SpdyFrame>> {
        let mut head = [0; frame::FRAME_HEAD_LEN];
        if self.io.read(&mut head[..1]).await? == 0 {
            return Ok(None);
        }
        self.io.read_exact(&mut head[1..]).await?;
        let head = frame::FrameHead::read(&head).map_err(invalid)?;
        let (frame::FrameHead::Data { len, .. } | frame::FrameHead::Control { len, .. }) = head;
        let mut payload = BytesMut::zeroed(len);
        self.io.read_exact(&mut payload).await?;
        let word = payload
            .first_chunk()
            .map_or(0, |id| u32::from_be_bytes(*id));
        Ok(Some(match head {
            frame::FrameHead::Data { id, flags, .. } => SpdyFrame::Data {
                stream: id,
                bytes: payload.freeze(),
                is_last: flags & frame::FIN != 0,
            },
            frame::FrameHead::Control { kind, .. } => match kind {
                frame::SYN_REPLY => SpdyFrame::Reply { stream: word },
                frame::RST_STREAM => SpdyFrame::Reset { stream: word },
                frame::PING => SpdyFrame::Ping { id: word },
                frame::GOAWAY => SpdyFrame::GoAway,
                kind => SpdyFrame::Other { kind },
            },
        }))
    }
}

fn invalid(error: crate::spdy::MalformedFrame) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
