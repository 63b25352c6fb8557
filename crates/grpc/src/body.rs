//! The body of a request or response. Bytes are reference counted and forwarded as they arrived.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::Reason;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame};
use hyper::body::Incoming;

use super::BoxError;
use super::observed::FrameResult;

/// The body of a request or response.
///
/// The size is never announced: hyper would make a known size a `content-length` header that the sender did not send.
#[derive(Default)]
pub enum Body {
    /// No data; together with `grpc-status` among the headers this is a trailers-only response.
    #[default]
    Empty,
    /// Frames that arrive from the connection.
    Incoming(Incoming),
    /// The beginning that was read for inspection, then the rest from the connection.
    Prefixed(BodyPrefix, Incoming),
    /// A body created or wrapped by a layer.
    Boxed(Pin<Box<dyn HttpBody<Data = Bytes, Error = BoxError> + Send>>),
}

/// The beginning of a body, as it arrived.
#[derive(Debug, Default)]
pub struct BodyPrefix {
    /// Data.
    pub pieces: VecDeque<Bytes>,
    /// Trailers, if the body ended before its message was complete.
    pub trailers: Option<Box<HeaderMap>>,
}

impl BodyPrefix {
    fn next(&mut self) -> Option<Frame<Bytes>> {
        let data = self.pieces.pop_front().map(Frame::data);
        data.or_else(|| Some(Frame::trailers(*self.trailers.take()?)))
    }

    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.trailers.is_none()
    }
}

impl Body {
    /// A body created or wrapped by a layer.
    pub fn boxed(body: impl HttpBody<Data = Bytes, Error = BoxError> + Send + 'static) -> Self {
        Self::Boxed(Box::pin(body))
    }

    /// The whole body, if it is one piece that has arrived already.
    pub fn take_whole(&mut self) -> Option<Bytes> {
        match self {
            Self::Prefixed(prefix, rest)
                if prefix.pieces.len() == 1
                    && prefix.trailers.is_none()
                    && rest.is_end_stream() =>
            {
                prefix.pieces.pop_front()
            }
            _ => None,
        }
    }

    /// One piece of data.
    pub fn full(data: impl Into<Bytes>) -> Self {
        Self::boxed(http_body_util::BodyExt::map_err(
            http_body_util::Full::new(data.into()),
            |never| match never {},
        ))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<FrameResult>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Incoming(rest) => poll_incoming(rest, cx),
            Self::Prefixed(prefix, rest) => match prefix.next() {
                Some(frame) => Poll::Ready(Some(Ok(frame))),
                None => poll_incoming(rest, cx),
            },
            Self::Boxed(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Incoming(rest) => rest.is_end_stream(),
            Self::Prefixed(prefix, rest) => prefix.is_empty() && rest.is_end_stream(),
            Self::Boxed(body) => body.is_end_stream(),
        }
    }
}

fn poll_incoming(body: &mut Incoming, cx: &mut Context<'_>) -> Poll<Option<FrameResult>> {
    let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
    Poll::Ready(match frame {
        // hyper treats a reset with NO_ERROR as an early end of the body. A truncated request must not look complete.
        None if !body.is_end_stream() => Some(Err(h2::Error::from(Reason::NO_ERROR).into())),
        frame => frame.map(|frame| frame.map_err(Into::into)),
    })
}
