//! Channels in WebSocket messages: each message begins with the number of its channel.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use tokio::io::AsyncWrite;
use tokio_util::sync::PollSender;

use super::websocket::{FrameSender, binary, text};

/// The channels of exec and attach.
pub(super) const STDIN: u8 = 0;
pub(super) const STDOUT: u8 = 1;
pub(super) const STDERR: u8 = 2;
pub(super) const ERROR: u8 = 3;
pub(super) const RESIZE: u8 = 4;
/// The control channel for closing other channels, from version 5 on.
pub(super) const CLOSE_CHANNEL: u8 = 255;
/// Maximum size of a message, in bytes. Clients have buffers of 32 KiB and one byte.
pub(super) const MAX_MESSAGE_LEN: usize = 32 << 10;

/// Encoding of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChannelEncoding {
    /// Text messages: the channel as a digit, then the data in base64. Otherwise the channel is a byte and the data follows
    /// unchanged.
    pub(super) base64: bool,
    /// Set if the client can close a channel.
    pub(super) closes: bool,
}

impl ChannelEncoding {
    /// A message on a channel.
    pub(super) fn message(self, channel: u8, bytes: &[u8]) -> Bytes {
        if self.base64 {
            text(
                &[b'0'.wrapping_add(channel)],
                STANDARD.encode(bytes).as_bytes(),
            )
        } else {
            binary(&[channel], bytes)
        }
    }
}

/// An event from the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChannelEvent {
    /// Bytes on a channel, at least one.
    Data(u8, Bytes),
    /// The client has closed this channel.
    Close(u8),
}

fn malformed(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Decodes channels from pieces of messages.
#[derive(Debug)]
pub(super) struct ChannelDecoder {
    encoding: ChannelEncoding,
    /// State of the current message.
    channel: Option<u8>,
    /// Up to three base64 characters that wait for the fourth.
    rest: Vec<u8>,
    /// The channel named by a close message.
    closed: Option<u8>,
}

impl ChannelDecoder {
    pub(super) fn new(encoding: ChannelEncoding) -> Self {
        Self {
            encoding,
            channel: None,
            rest: Vec::new(),
            closed: None,
        }
    }

    /// Decodes the next piece; `last` marks the last one of its message.
    ///
    /// # Errors
    /// If it is not base64 or not a valid close message.
    pub(super) fn feed(
        &mut self,
        mut bytes: Bytes,
        last: bool,
    ) -> io::Result<Option<ChannelEvent>> {
        let channel = match self.channel {
            Some(channel) => Some(channel),
            None if bytes.is_empty() => None,
            None => {
                let first = bytes.split_to(1)[0];
                let zero = if self.encoding.base64 { b'0' } else { 0 };
                Some(first.wrapping_sub(zero))
            }
        };
        self.channel = channel.filter(|_| !last);
        // A message without a channel is empty and ignored.
        let Some(channel) = channel else {
            return Ok(None);
        };
        if channel == CLOSE_CHANNEL && self.encoding.closes {
            return self.close(&bytes, last);
        }
        if self.encoding.base64 {
            bytes = self.decode(&bytes, last)?;
        }
        Ok((!bytes.is_empty()).then_some(ChannelEvent::Data(channel, bytes)))
    }

    fn close(&mut self, bytes: &[u8], last: bool) -> io::Result<Option<ChannelEvent>> {
        for byte in bytes {
            if self.closed.replace(*byte).is_some() {
                return Err(malformed("close message too long"));
            }
        }
        if !last {
            return Ok(None);
        }
        match self.closed.take() {
            Some(channel) => Ok(Some(ChannelEvent::Close(channel))),
            None => Err(malformed("close message without a channel")),
        }
    }

    fn decode(&mut self, bytes: &[u8], last: bool) -> io::Result<Bytes> {
        self.rest.extend_from_slice(bytes);
        let whole = if last {
            self.rest.len()
        } else {
            self.rest.len() / 4 * 4
        };
        let decoded = STANDARD
            .decode(&self.rest[..whole])
            .map_err(|_| malformed("not base64"))?;
        self.rest.drain(..whole);
        Ok(decoded.into())
    }
}

/// Writes to one channel. Shutdown sends nothing: a server's channels end with the connection.
pub(super) struct ChannelWriter {
    frames: PollSender<Bytes>,
    channel: u8,
    encoding: ChannelEncoding,
}

impl ChannelWriter {
    pub(super) fn new(frames: FrameSender, channel: u8, encoding: ChannelEncoding) -> Self {
        Self {
            frames: PollSender::new(frames),
            channel,
            encoding,
        }
    }
}

impl AsyncWrite for ChannelWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.frames.poll_reserve(cx)).map_err(|_| io::ErrorKind::BrokenPipe)?;
        // In base64, four characters represent three bytes.
        let most = if self.encoding.base64 {
            MAX_MESSAGE_LEN / 4 * 3
        } else {
            MAX_MESSAGE_LEN
        };
        let part = &buf[..buf.len().min(most)];
        let message = self.encoding.message(self.channel, part);
        let sent = self.frames.send_item(message);
        sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
        Poll::Ready(Ok(part.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.frames.close();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINARY: ChannelEncoding = ChannelEncoding {
        base64: false,
        closes: false,
    };
    const TEXT: ChannelEncoding = ChannelEncoding {
        base64: true,
        closes: false,
    };
    const V5: ChannelEncoding = ChannelEncoding {
        base64: false,
        closes: true,
    };

    /// Feeds messages, each as a list of pieces.
    fn feed(
        encoding: ChannelEncoding,
        messages: &[&[&'static [u8]]],
    ) -> io::Result<Vec<ChannelEvent>> {
        let mut demux = ChannelDecoder::new(encoding);
        let mut all = Vec::new();
        for message in messages {
            for (i, piece) in message.iter().enumerate() {
                let last = i + 1 == message.len();
                all.extend(demux.feed(Bytes::from_static(piece), last)?);
            }
        }
        Ok(all)
    }

    fn data(channel: u8, bytes: &'static [u8]) -> ChannelEvent {
        ChannelEvent::Data(channel, Bytes::from_static(bytes))
    }

    #[test]
    fn the_first_byte_of_a_message_is_its_channel_at_any_split() {
        let all = feed(
            BINARY,
            &[
                &[b"\x00abc"],
                &[b"", b"\x00", b"d", b"e"],
                &[b""],
                &[b"\x00"],
                &[b"\x04{}", b""],
                &[b"\xffx"],
            ],
        );
        let expected = vec![
            data(0, b"abc"),
            data(0, b"d"),
            data(0, b"e"),
            data(4, b"{}"),
            data(255, b"x"),
        ];
        assert_eq!(all.expect("valid"), expected);
    }

    #[test]
    fn base64_may_be_split_anywhere() {
        let whole = feed(TEXT, &[&[b"0aGVsbG8="], &[b"4"]]).expect("valid");
        assert_eq!(whole, [data(0, b"hello")]);
        let cut = feed(TEXT, &[&[b"0a", b"GVsb", b"", b"G8", b"="]]).expect("valid");
        assert_eq!(cut, [data(0, b"hel"), data(0, b"lo")]);
        for wrong in [&b"0a"[..], b"0!!!!", b"0aGVsbG8"] {
            assert!(feed(TEXT, &[&[wrong]]).is_err());
        }
    }

    #[test]
    fn a_close_message_names_one_channel() {
        assert_eq!(
            feed(V5, &[&[b"\xff\x00"]]).expect("valid"),
            [ChannelEvent::Close(0)]
        );
        assert_eq!(
            feed(V5, &[&[b"\xff", b"\x02"]]).expect("valid"),
            [ChannelEvent::Close(2)]
        );
        for wrong in [
            &[&b"\xff"[..]][..],
            &[b"\xff\x00\x00"],
            &[b"\xff\x00", b"\x01"],
        ] {
            assert!(feed(V5, &[wrong]).is_err());
        }
    }

    #[test]
    fn messages_are_encoded_as_they_are_decoded() {
        assert_eq!(&BINARY.message(1, b"")[..], b"\x82\x01\x01");
        assert_eq!(&TEXT.message(1, b"hello")[..], b"\x81\x091aGVsbG8=");
    }
}
