//! gRPC messages as HTTP bodies, for the client and for the fake upstream.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame};
use prost::Message;

/// Length of the prefix of each message: a flag and four bytes of length.
pub(crate) const PREFIX: usize = 5;

/// One gRPC message, uncompressed, with its prefix.
pub(crate) fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    bytes.put(message.encode_to_vec().as_slice());
    bytes.freeze()
}

/// A body of one chunk and optional trailers. It reports no length, so that hyper adds no `content-length`: gRPC-Go, which
/// the kubelet uses, sends none.
pub(crate) struct Once {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Once {
    /// A request: one message.
    pub(crate) fn request(data: Bytes) -> Self {
        Self {
            data: Some(data),
            trailers: None,
        }
    }

    /// A reply: a message, then trailers.
    pub(crate) fn reply(data: Bytes, trailers: HeaderMap) -> Self {
        Self {
            data: Some(data),
            trailers: Some(trailers),
        }
    }

    /// No body: the headers end the reply.
    pub(crate) fn empty() -> Self {
        Self {
            data: None,
            trailers: None,
        }
    }
}

impl Body for Once {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = match self.data.take() {
            Some(data) => Some(Frame::data(data)),
            None => self.trailers.take().map(Frame::trailers),
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.trailers.is_none()
    }
}
