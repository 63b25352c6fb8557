//! A body whose frames an observer sees. The body itself is forwarded unchanged, so a layer contains only its own work on the
//! frames.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};

use super::BoxError;

/// A frame of a body, or why it broke off.
pub type FrameResult = Result<Frame<Bytes>, BoxError>;

/// The part of a layer in the body of a response.
pub trait BodyObserver<B>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    /// Takes the next frame from the body, and may replace it.
    fn poll_frame(&mut self, body: &mut B, cx: &mut Context<'_>) -> Poll<Option<FrameResult>> {
        Pin::new(body).poll_frame(cx).map_err(Into::into)
    }

    /// Returns whether no frame follows. A connection does not poll a body that says so.
    fn is_end_stream(&self, body: &B) -> bool {
        body.is_end_stream()
    }
}

/// A body and its observer. The size is never announced; see [`super::Body`].
#[derive(Debug)]
pub struct ObservedBody<B, O> {
    body: B,
    observer: O,
}

impl<B, O> ObservedBody<B, O> {
    /// Passes the frames of `body` through the observer.
    pub const fn new(body: B, observer: O) -> Self {
        Self { body, observer }
    }
}

impl<B, O> HttpBody for ObservedBody<B, O>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin,
    O: BodyObserver<B> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<FrameResult>> {
        let Self { body, observer } = &mut *self;
        observer.poll_frame(body, cx)
    }

    fn is_end_stream(&self) -> bool {
        self.observer.is_end_stream(&self.body)
    }
}
