//! Watches the answer pass, until its end.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Sleep, sleep_until};
use tonic::Code;

use super::classify::{self, End};
use super::future::last_moment;
use super::guard::Guard;
use crate::cri::outcome::Source;
use crate::wire::status::Status;
use crate::wire::{Body, BoxError};

/// See [`crate::instrument`].
#[derive(Debug)]
pub struct InstrumentBody {
    inner: Body,
    guard: Option<Guard>,
    source: Source,
    /// What it means if the body ends without trailers.
    fallback: Option<End>,
    /// Ends an answer that stops half-way; set up when there is something to wait for.
    last_moment: Option<Pin<Box<Sleep>>>,
}

impl InstrumentBody {
    pub(super) fn new(inner: Body, guard: Option<Guard>, source: Source, fallback: End) -> Self {
        Self {
            inner,
            guard,
            source,
            fallback: Some(fallback),
            last_moment: None,
        }
    }

    /// Nothing comes: is it time to say so ourselves?
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Frame<Bytes>> {
        if self.last_moment.is_none() {
            let at = self.guard.as_ref().and_then(|g| last_moment(g.call()));
            self.last_moment = at.map(|at| Box::pin(sleep_until(at)));
        }
        let Some(sleep) = &mut self.last_moment else {
            return Poll::Pending;
        };
        ready!(sleep.as_mut().poll(cx));
        // The backend's stream is reset with its body.
        self.inner = Body::Empty;
        self.source = Source::Proxy;
        let status = Status::new(
            Code::DeadlineExceeded,
            "the answer was not complete before the deadline",
        );
        Poll::Ready(Frame::trailers(status.to_headers()))
    }

    fn finish(&mut self, end: impl FnOnce(&mut Self) -> Option<End>) {
        if let Some(guard) = self.guard.take() {
            match end(self) {
                Some(end) => guard.finish(end),
                None => drop(guard),
            }
        }
    }

    fn see(&mut self, frame: &Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            if let Some(guard) = &self.guard {
                guard.call().add_response_bytes(data.len());
            }
            // hyper does not poll a body again that says it is at its end.
            if self.inner.is_end_stream() {
                self.finish(|body| body.fallback.take());
            }
        } else if let Some(trailers) = frame.trailers_ref() {
            let end = classify::status(trailers, self.source);
            self.finish(|body| end.or_else(|| body.fallback.take()));
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
        let frame = match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => Some(Ok(ready!(self.poll_late(cx)))),
        };
        match &frame {
            Some(Ok(frame)) => self.see(frame),
            Some(Err(error)) => self.finish(|_| Some(classify::broken(error))),
            None => self.finish(|body| body.fallback.take()),
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
