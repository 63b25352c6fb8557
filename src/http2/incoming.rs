//! The body of a message as it comes in, and what is left to send of one that goes out.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::core::Shared;
use super::error::{Error, Reason};
use super::head::ResponseHead;
use super::stream::{Key, keep};

/// The body of a message as it comes. Reading it makes room for more; dropping it tells the other end, if nobody else
/// holds the stream, that no more is wanted.
#[derive(Debug)]
pub struct Incoming {
    shared: Arc<Shared>,
    key: Key,
}

impl Incoming {
    /// Takes over one of those that hold the stream.
    pub(super) fn new(shared: Arc<Shared>, key: Key) -> Self {
        Self { shared, key }
    }

    /// The head of the answer, once.
    pub(super) fn poll_head(&self, cx: &Context<'_>) -> Poll<Result<ResponseHead, Error>> {
        let mut core = self.shared.lock();
        let stream = &mut core.streams[self.key];
        if let Some(head) = stream.head.take() {
            return Poll::Ready(Ok(head));
        }
        if let Some(error) = &stream.error {
            return Poll::Ready(Err(error.clone()));
        }
        keep(&mut stream.reader, cx.waker());
        Poll::Pending
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut core = self.shared.lock();
        let stream = &mut core.streams[self.key];
        if let Some(data) = stream.data.pop_front() {
            core.took(Some(self.key), data.len());
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(trailers) = stream.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        if stream.received_all {
            return Poll::Ready(None);
        }
        if let Some(error) = &stream.error {
            return Poll::Ready(Some(Err(error.clone())));
        }
        keep(&mut stream.reader, cx.waker());
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.shared.lock().streams[self.key].is_at_end()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.shared.lock().unread(self.key);
    }
}

/// The sending half of a call.
#[derive(Debug)]
pub struct Outgoing {
    shared: Arc<Shared>,
    key: Key,
}

impl Outgoing {
    /// One more that holds the stream.
    pub(super) fn new(shared: Arc<Shared>, key: Key) -> Self {
        shared.lock().streams[key].handles += 1;
        Self { shared, key }
    }

    /// Sends data as far as the other end has room for it; ready once all is sent.
    ///
    /// # Errors
    /// If the stream broke; whoever reads the answer hears of it too.
    pub fn poll_data(
        &mut self,
        cx: &Context<'_>,
        data: &mut Bytes,
        is_end: bool,
    ) -> Poll<Result<(), Error>> {
        self.shared.lock().poll_data(cx, self.key, data, is_end)
    }

    /// Sends trailers, and with them the end.
    pub fn trailers(&mut self, trailers: &HeaderMap) {
        self.shared.lock().trailers(self.key, trailers);
    }

    /// Breaks the call off.
    pub fn reset(&mut self, reason: Reason) {
        self.shared.lock().reset(self.key, reason);
    }

    /// Ready if the other end wants no more.
    pub fn poll_closed(&mut self, cx: &Context<'_>) -> Poll<()> {
        let mut core = self.shared.lock();
        let stream = &mut core.streams[self.key];
        if !stream.is_open {
            return Poll::Ready(());
        }
        keep(&mut stream.writer, cx.waker());
        Poll::Pending
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.shared.lock().release(self.key);
    }
}
