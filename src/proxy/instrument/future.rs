//! Waits for the response headers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;
use http_body::Body as _;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep_until};
use tonic::Code;

use super::body::{CallEndObserver, InstrumentBody, UnfinishedCall};
use super::classify;
use super::deadline::last_moment;
use super::guard::CancellationGuard;
use crate::call::{CallStage, Source};
use crate::grpc::status::{LocalStatusMarker, Status};
use crate::grpc::{self, BoxError};

pin_project! {
    /// See [`crate::proxy::instrument`].
    #[derive(Debug)]
    pub struct InstrumentFuture<F> {
        #[pin]
        inner: F,
        #[pin]
        deadline: Option<Sleep>,
        guard: Option<CancellationGuard>,
    }
}

impl<F> InstrumentFuture<F> {
    pub(super) fn new(inner: F, guard: CancellationGuard) -> Self {
        let deadline = last_moment(guard.call());
        Self {
            inner,
            deadline: deadline.map(sleep_until),
            guard: Some(guard),
        }
    }
}

impl<F> Future for InstrumentFuture<F>
where
    F: Future<Output = Result<grpc::Response, BoxError>>,
{
    type Output = Result<Response<InstrumentBody>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let result = match this.inner.poll(cx) {
            Poll::Ready(result) => result,
            Poll::Pending => match this.deadline.as_mut().as_pin_mut().map(|d| d.poll(cx)) {
                Some(Poll::Ready(())) => Ok(Status::new(
                    Code::DeadlineExceeded,
                    "the backend did not answer before the deadline",
                )
                .into_response()),
                _ => return Poll::Pending,
            },
        };
        let guard = this.guard.take();
        Poll::Ready(match result {
            Ok(response) => Ok(answer(response, guard)),
            Err(error) => {
                if let Some(guard) = guard {
                    guard.broken(&error);
                }
                Err(error)
            }
        })
    }
}

fn answer(response: grpc::Response, guard: Option<CancellationGuard>) -> Response<InstrumentBody> {
    let (head, body) = response.into_parts();
    let source = match head.extensions.get::<LocalStatusMarker>() {
        Some(_) => Source::Proxy,
        None => Source::Backend,
    };
    let in_headers = classify::status(&head.headers, source);
    let mut guard = guard;
    if body.is_end_stream() {
        if let Some(guard) = guard.take() {
            guard.finish(
                in_headers
                    .clone()
                    .unwrap_or_else(|| classify::no_status(head.status, source)),
            );
        }
    } else if let Some(guard) = &guard {
        guard.call().set_stage(CallStage::Answering);
    }
    let unfinished = UnfinishedCall {
        status: head.status,
        source,
        in_headers,
    };
    Response::from_parts(
        head,
        InstrumentBody::new(body, CallEndObserver::new(guard, unfinished)),
    )
}
