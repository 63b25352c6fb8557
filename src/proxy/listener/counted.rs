//! A service whose calls are counted in the permit of their connection, from the request to the end of the response body.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower::Service;

use crate::uds::limit::{ConnectionPermit, RequestInProgress};

/// Counts its calls in the permit of their connection.
#[derive(Clone, Debug)]
pub(super) struct CountedService<S> {
    inner: S,
    permit: Arc<ConnectionPermit>,
}

impl<S> CountedService<S> {
    pub(super) fn new(inner: S, permit: Arc<ConnectionPermit>) -> Self {
        Self { inner, permit }
    }
}

impl<S, Q, B> Service<Request<Q>> for CountedService<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
{
    type Response = Response<CountedBody<B>>;
    type Error = S::Error;
    type Future = CountedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        CountedFuture {
            busy: Some(self.permit.request()),
            inner: self.inner.call(request),
        }
    }
}

pin_project! {
    /// A response future.
    pub(super) struct CountedFuture<F> {
        #[pin]
        inner: F,
        busy: Option<RequestInProgress>,
    }
}

impl<F, B, E> Future for CountedFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<CountedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(this.inner.poll(cx));
        let busy = this.busy.take();
        Poll::Ready(answer.map(|answer| answer.map(|inner| CountedBody { inner, _busy: busy })))
    }
}

pin_project! {
    /// A response body.
    pub(super) struct CountedBody<B> {
        #[pin]
        inner: B,
        _busy: Option<RequestInProgress>,
    }
}

impl<B: Body> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.project().inner.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
