//! Opens a call for each request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use http::Response;
use tower::Service;

use super::body::InstrumentBody;
use super::future::InstrumentFuture;
use super::guard::CancellationGuard;
use super::in_flight::InFlightCalls;
use super::signals::CallSignals;
use crate::call::{Call, Peer};
use crate::cri::Method;
use crate::cri::method::ApiVersion;
use crate::cri::secrets::Secrets;
use crate::grpc::{self, BoxError, frame};

/// State that all connections share.
#[derive(Clone, Debug)]
pub struct InstrumentState {
    /// Metrics, log lines and spans.
    pub signals: Arc<CallSignals>,
    /// The calls in flight.
    pub in_flight: Arc<InFlightCalls>,
    /// The number of the next call.
    pub seq: Arc<AtomicU64>,
    /// Secrets that error texts must not show.
    pub secrets: Arc<Secrets>,
}

/// See [`crate::proxy::instrument`].
#[derive(Clone, Debug)]
pub struct InstrumentService<S> {
    inner: S,
    shared: InstrumentState,
    peer: Arc<Peer>,
}

impl<S> InstrumentService<S> {
    /// Records the calls on the connection of `peer`.
    pub fn new(inner: S, shared: InstrumentState, peer: Arc<Peer>) -> Self {
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
        let trace = self.shared.signals.trace(request.headers(), method);
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

/// An unknown path, without characters that a log or page must not show.
fn printable(path: &str) -> Box<str> {
    path.chars()
        .take(128)
        .map(|c| if c.is_ascii_graphic() { c } else { '?' })
        .collect()
}

impl<S> Service<grpc::Request> for InstrumentService<S>
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
        let guard = CancellationGuard::new(Arc::clone(&call), &self.shared);
        request.extensions_mut().insert(call);
        InstrumentFuture::new(self.inner.call(request), guard)
    }
}
