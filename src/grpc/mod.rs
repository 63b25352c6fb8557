//! What both ends of the request path share: the message body, gRPC frames and statuses, HTTP/2 limits, and responses that
//! criscope makes itself. A leaf.

pub mod body;
pub mod frame;
pub mod limits;
pub mod status;
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

/// Its answer.
pub type Response = http::Response<Body>;

/// An answer to come.
pub type Answering = BoxFuture<'static, Result<Response, BoxError>>;

/// What answers CRI calls: the seam between the router and its backends. Handlers keep no queue, so there is nothing to
/// be ready for, and a call needs no clone.
pub trait Handler: fmt::Debug + Send + Sync {
    /// Answers a call.
    fn answer(&self, request: Request) -> Answering;
}

/// A backend as a tower service.
#[derive(Clone, Debug)]
pub struct CriService(Arc<dyn Handler>);

impl CriService {
    /// Wraps a backend.
    pub fn new(backend: impl Handler + 'static) -> Self {
        Self(Arc::new(backend))
    }

    /// Answers a call.
    pub fn answer(&self, request: Request) -> Answering {
        self.0.answer(request)
    }
}

impl tower::Service<Request> for CriService {
    type Response = Response;
    type Error = BoxError;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Answering {
        self.answer(request)
    }
}
