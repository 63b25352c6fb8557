//! The one place where an error of a layer below becomes a gRPC status.
//!
//! A stream that the backend reset is not such an error: it passes unchanged, and the listener resets the caller's stream
//! with the same reason.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::grpc::status::Status;
use crate::grpc::{BoxError, Request, Response};
use crate::proxy::backend::remote;

/// Adds [`RescueService`].
#[derive(Clone, Copy, Debug)]
pub struct RescueLayer;

impl<S> Layer<S> for RescueLayer {
    type Service = RescueService<S>;

    fn layer(&self, inner: S) -> RescueService<S> {
        RescueService { inner }
    }
}

/// Turns errors of the service below into gRPC statuses.
#[derive(Clone, Debug)]
pub struct RescueService<S> {
    inner: S,
}

impl<S> Service<Request> for RescueService<S>
where
    S: Service<Request, Response = Response, Error = BoxError>,
{
    type Response = Response;
    type Error = BoxError;
    type Future = RescueFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        RescueFuture {
            inner: self.inner.call(request),
        }
    }
}

pin_project! {
    /// The response, or the status that stands for an error.
    #[derive(Debug)]
    pub struct RescueFuture<F> {
        #[pin]
        inner: F,
    }
}

impl<F: Future<Output = Result<Response, BoxError>>> Future for RescueFuture<F> {
    type Output = Result<Response, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let error = match ready!(self.project().inner.poll(cx)) {
            Ok(response) => return Poll::Ready(Ok(response)),
            Err(error) => error,
        };
        Poll::Ready(answer(error).map(Status::into_response))
    }
}

/// The status for an error, or the error itself if it is not criscope's.
fn answer(error: BoxError) -> Result<Status, BoxError> {
    let error = match error.downcast::<Status>() {
        Ok(status) => return Ok(*status),
        Err(error) => error,
    };
    match error.downcast::<remote::Error>() {
        Ok(error) => Ok(Status::unavailable(error.to_string())),
        Err(error) => Err(error),
    }
}
