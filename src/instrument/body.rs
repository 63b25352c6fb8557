//! Watches the answer pass, until its end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::classify::{self, End};
use super::guard::Guard;
use crate::cri::outcome::Source;
use crate::wire::{Body, BoxError};

/// What the head of an answer says about its end, in case nothing else does.
#[derive(Debug)]
pub(super) struct Unfinished {
    /// The HTTP status.
    pub(super) status: http::StatusCode,
    /// Who answers.
    pub(super) source: Source,
    /// `grpc-status` among the headers.
    pub(super) in_headers: Option<End>,
}

impl Unfinished {
    fn end(&mut self) -> End {
        let in_headers = self.in_headers.take();
        in_headers.unwrap_or_else(|| classify::no_status(self.status, self.source))
    }
}

/// See [`crate::instrument`].
#[derive(Debug)]
pub struct InstrumentBody {
    inner: Body,
    guard: Option<Guard>,
    unfinished: Unfinished,
}

impl InstrumentBody {
    pub(super) fn new(inner: Body, guard: Option<Guard>, unfinished: Unfinished) -> Self {
        Self {
            inner,
            guard,
            unfinished,
        }
    }

    fn finish(&mut self, end: impl FnOnce(&mut Unfinished) -> End) {
        if let Some(guard) = self.guard.take() {
            guard.finish(end(&mut self.unfinished));
        }
    }

    fn see(&mut self, frame: &Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            if let Some(guard) = &self.guard {
                guard.call().add_response_bytes(data.len());
            }
            // hyper does not poll a body again that says it is at its end.
            if self.inner.is_end_stream() {
                self.finish(Unfinished::end);
            }
        } else if let Some(trailers) = frame.trailers_ref() {
            self.finish(|unfinished| {
                classify::status(trailers, unfinished.source).unwrap_or_else(|| unfinished.end())
            });
        }
    }
}

impl HttpBody for InstrumentBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => self.see(frame),
            Some(Err(error)) => self.finish(|_| classify::broken(error)),
            None => self.finish(Unfinished::end),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
