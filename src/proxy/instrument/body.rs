//! Observes the response body until its end.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame};
use tokio::time::{Sleep, sleep_until};
use tonic::Code;

use super::classify::{self, CallOutcome};
use super::deadline::last_moment;
use super::guard::CancellationGuard;
use crate::call::Source;
use crate::grpc::Body;
use crate::grpc::observed::{BodyObserver, FrameResult, ObservedBody};
use crate::grpc::status::Status;

/// The ending of a call whose body has no status: taken from the response headers.
#[derive(Debug)]
pub(super) struct UnfinishedCall {
    /// The HTTP status.
    pub(super) status: http::StatusCode,
    /// Who produced the response.
    pub(super) source: Source,
    /// `grpc-status` among the headers.
    pub(super) in_headers: Option<CallOutcome>,
}

impl UnfinishedCall {
    fn end(&mut self) -> CallOutcome {
        let in_headers = self.in_headers.take();
        in_headers.unwrap_or_else(|| classify::no_status(self.status, self.source))
    }
}

/// See [`crate::proxy::instrument`].
pub type InstrumentBody = ObservedBody<Body, CallEndObserver>;

/// Ends a call at the end of its response body.
#[derive(Debug)]
pub struct CallEndObserver {
    guard: Option<CancellationGuard>,
    unfinished: UnfinishedCall,
    /// Ends a response that stalls; created at the first wait.
    last_moment: Option<Pin<Box<Sleep>>>,
}

impl CallEndObserver {
    pub(super) fn new(guard: Option<CancellationGuard>, unfinished: UnfinishedCall) -> Self {
        Self {
            guard,
            unfinished,
            last_moment: None,
        }
    }

    /// Resolves when an unfinished response is past its deadline.
    fn poll_late(&mut self, body: &mut Body, cx: &mut Context<'_>) -> Poll<Frame<Bytes>> {
        if self.last_moment.is_none() {
            let at = self.guard.as_ref().and_then(|g| last_moment(g.call()));
            self.last_moment = at.map(|at| Box::pin(sleep_until(at)));
        }
        let Some(sleep) = &mut self.last_moment else {
            return Poll::Pending;
        };
        ready!(sleep.as_mut().poll(cx));
        // Dropping the body resets the backend's stream.
        *body = Body::Empty;
        self.unfinished.source = Source::Proxy;
        let status = Status::new(
            Code::DeadlineExceeded,
            "the answer was not complete before the deadline",
        );
        Poll::Ready(Frame::trailers(status.to_headers()))
    }

    fn finish(&mut self, end: impl FnOnce(&mut UnfinishedCall) -> CallOutcome) {
        if let Some(guard) = self.guard.take() {
            guard.finish(end(&mut self.unfinished));
        }
    }

    fn see(&mut self, frame: &Frame<Bytes>, body: &Body) {
        if let Some(data) = frame.data_ref() {
            if let Some(guard) = &self.guard {
                guard.call().add_response_bytes(data.len());
            }
            // A connection does not poll a body again that reports its end.
            if body.is_end_stream() {
                self.finish(UnfinishedCall::end);
            }
        } else if let Some(trailers) = frame.trailers_ref() {
            self.finish(|unfinished| {
                classify::status(trailers, unfinished.source).unwrap_or_else(|| unfinished.end())
            });
        }
    }
}

impl BodyObserver<Body> for CallEndObserver {
    fn poll_frame(&mut self, body: &mut Body, cx: &mut Context<'_>) -> Poll<Option<FrameResult>> {
        let frame = match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => Some(Ok(ready!(self.poll_late(body, cx)))),
        };
        match &frame {
            Some(Ok(frame)) => self.see(frame, body),
            Some(Err(error)) => {
                if let Some(guard) = self.guard.take() {
                    guard.broken(error);
                }
            }
            None => self.finish(UnfinishedCall::end),
        }
        Poll::Ready(frame)
    }
}
