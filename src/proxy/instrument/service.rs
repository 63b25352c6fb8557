//! Opens a call for each request.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use http::Response;
use tower::Service;

use super::body::InstrumentBody;
use super::future::InstrumentFuture;
use super::guard::Guard;
use super::layer::Shared;
use crate::call::{Call, Peer};
use crate::cri::Method;
use crate::cri::method::ApiVersion;
use crate::grpc::{self, BoxError, frame};

/// See [`crate::proxy::instrument`].
#[derive(Clone, Debug)]
pub struct Instrument<S> {
    inner: S,
    shared: Shared,
    peer: Arc<Peer>,
}

impl<S> Instrument<S> {
    pub(super) fn new(inner: S, shared: Shared, peer: Arc<Peer>) -> Self {
        Self {
            inner,
            shared,
            peer,
        }
    }

    fn open<B>(&self, request: &http::Request<B>) -> Call {
        let path = request.uri().path();
        let known = Method::from_path(path);
        let (method, api) = known.unwrap_or((Method::Other, ApiVersion::V1));
        let trace = self.shared.observer.trace(request.headers(), method);
        let mut call = Call::new(
            self.shared.seq.fetch_add(1, Ordering::Relaxed),
            method,
            api,
            frame::timeout(request.headers()),
            Arc::clone(&self.peer),
            trace,
        );
        if known.is_none() {
            call.other_path = Some(printable(path));
        }
        call
    }
}

/// An unknown path, fit to be shown.
fn printable(path: &str) -> Box<str> {
    path.chars()
        .take(128)
        .map(|c| if c.is_ascii_graphic() { c } else { '?' })
        .collect()
}

impl<S> Service<grpc::Request> for Instrument<S>
where
    S: Service<grpc::Request, Response = grpc::Response, Error = BoxError>,
{
    type Response = Response<InstrumentBody>;
    type Error = BoxError;
    type Future = InstrumentFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: grpc::Request) -> Self::Future {
        let call = Arc::new(self.open(&request));
        let guard = Guard::new(
            Arc::clone(&call),
            Arc::clone(&self.shared.observer),
            &self.shared.in_flight,
        );
        request.extensions_mut().insert(call);
        InstrumentFuture::new(self.inner.call(request), guard)
    }
}
