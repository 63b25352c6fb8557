//! Shared by both ends of the request path: the message body, gRPC frames and statuses, HTTP/2 limits, and criscope's own
//! responses; and [`uds`], Unix sockets and the limit on connections.

pub mod body;
pub mod frame;
pub mod limits;
pub mod observed;
pub mod status;
pub mod uds;
pub mod unary;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;

pub use body::Body;

/// Any error on the request path.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A CRI call.
pub type Request = http::Request<Body>;

/// The response.
pub type Response = http::Response<Body>;

/// A response future.
pub type ResponseFuture = BoxFuture<'static, Result<Response, BoxError>>;

/// Serves CRI calls: the interface between the router and its backends. Handlers have no queue, so there is no readiness to
/// poll, and a call needs no clone.
pub trait CallHandler: fmt::Debug + Send + Sync {
    /// Serves a call.
    fn answer(&self, request: Request) -> ResponseFuture;
}

/// A backend as a tower service.
#[derive(Clone, Debug)]
pub struct CriService(Arc<dyn CallHandler>);

impl CriService {
    /// Wraps a backend.
    pub fn new(backend: impl CallHandler + 'static) -> Self {
        Self(Arc::new(backend))
    }

    /// Serves a call.
    pub fn answer(&self, request: Request) -> ResponseFuture {
        self.0.answer(request)
    }
}

impl tower::Service<Request> for CriService {
    type Response = Response;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> ResponseFuture {
        self.answer(request)
    }
}
