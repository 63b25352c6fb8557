//! The path of a connection to `runtime.containerd_socket`: containerd's own services, and the CRI as on every other socket.

use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http_body::Body as HttpBody;
use http_body_util::Either;
use hyper::body::Incoming;
use tower::Service;

use crate::grpc::{Body, BoxError, CriService};

/// The paths of containerd's own services begin with this prefix.
const CONTAINERD_PATH_PREFIX: &str = "/containerd.";

/// Routes calls of containerd's own services to one service, and all others to the CRI.
#[derive(Clone, Debug)]
pub(super) struct ContainerdRoutes<S> {
    cri: S,
    containerd: CriService,
}

impl<S> ContainerdRoutes<S> {
    pub(super) fn new(cri: S, containerd: CriService) -> Self {
        Self { cri, containerd }
    }
}

impl<S, B> Service<http::Request<Incoming>> for ContainerdRoutes<S>
where
    S: Service<http::Request<Incoming>, Response = http::Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = bytes::Bytes, Error = BoxError>,
{
    type Response = http::Response<Either<B, Body>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.cri.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Incoming>) -> Self::Future {
        if request.uri().path().starts_with(CONTAINERD_PATH_PREFIX) {
            let answer = self.containerd.answer(request.map(Body::Incoming));
            return Box::pin(async move { Ok(answer.await?.map(Either::Right)) });
        }
        let answer = self.cri.call(request);
        Box::pin(async move { Ok(answer.await?.map(Either::Left)) })
    }
}
