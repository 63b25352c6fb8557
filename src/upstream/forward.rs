//! Sends one call to the runtime and brings the answer back.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use hyper::client::conn::http2::SendRequest;
use tower::Service;

use super::body::UpstreamBody;
use super::{Error, Upstream};
use crate::cri::call::Phase;
use crate::cri::method::{ApiVersion, Class};
use crate::cri::{Call, Method};
use crate::telemetry::propagation;
use crate::wire::{Body, BoxError, Request, Response};

/// The runtime as seen from one connection of a caller. See [`crate::upstream`].
#[derive(Clone, Debug)]
pub struct Forward {
    upstream: Arc<Upstream>,
    sender: Arc<Mutex<Option<SendRequest<Body>>>>,
}

impl Forward {
    /// For a new connection of a caller.
    pub fn new(upstream: Arc<Upstream>) -> Self {
        Self {
            upstream,
            sender: Arc::default(),
        }
    }

    /// The connection of this caller, opened if there is none that works.
    async fn shared(&self) -> Result<SendRequest<Body>, Error> {
        let existing = self
            .sender
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(sender) = existing.filter(|s| !s.is_closed()) {
            return Ok(sender);
        }
        // Two calls may both connect here; the second connection takes the first one's place and both work.
        let sender = self.upstream.connect().await?;
        *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender.clone());
        Ok(sender)
    }

    async fn sender_for(&self, method: Method) -> Result<SendRequest<Body>, Error> {
        match method.class() {
            Class::Watch => self.upstream.connect().await,
            _ => self.shared().await,
        }
    }

    async fn forward(self, mut request: Request) -> Result<Response, BoxError> {
        let call = request.extensions().get::<Arc<Call>>().cloned();
        // Our own questions have no record.
        let method = match &call {
            Some(call) => call.method,
            None => Method::from_path(request.uri().path()).map_or(Method::Other, |(m, _)| m),
        };
        self.address(&mut request, method);
        if let Some(call) = &call {
            call.set_phase(Phase::Connecting);
            if let Some(trace) = &call.trace {
                propagation::inject(trace, request.headers_mut());
            }
        }
        let sender = self.sender_for(method).await?;
        if let Some(call) = &call {
            call.backend_begins();
            call.set_phase(Phase::Waiting);
        }
        let response = self.send(sender, request, method).await;
        match response {
            Ok(response) => Ok(response.map(|body| {
                Body::boxed(UpstreamBody::new(body, call, Arc::clone(&self.upstream)))
            })),
            Err(error) => {
                if let Some(call) = &call {
                    call.backend_ends();
                }
                Err(error)
            }
        }
    }

    /// Sends; once more on a new connection if the runtime closed the old one before it took the call.
    async fn send(
        &self,
        mut sender: SendRequest<Body>,
        request: Request,
        method: Method,
    ) -> Result<http::Response<hyper::body::Incoming>, BoxError> {
        let mut error = match sender.try_send_request(request).await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        let error = match error.take_message() {
            Some(unsent) => {
                let mut sender = match method.class() {
                    Class::Watch => self.upstream.connect().await?,
                    _ => {
                        *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = None;
                        self.shared().await?
                    }
                };
                match sender.send_request(unsent).await {
                    Ok(response) => return Ok(response),
                    Err(error) => error,
                }
            }
            None => error.into_error(),
        };
        Err(self.upstream.explain(error))
    }

    /// Gives the request what HTTP/2 needs, and the spelling of the service that this runtime knows.
    fn address(&self, request: &mut Request, method: Method) {
        let uri = request.uri();
        let other_spelling = (method != Method::Other)
            .then(|| respell(uri.path(), self.upstream.health().api()))
            .flatten();
        if uri.scheme().is_some() && uri.authority().is_some() && other_spelling.is_none() {
            return;
        }
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme.get_or_insert(Scheme::HTTP);
        parts
            .authority
            .get_or_insert(Authority::from_static("localhost"));
        if let Some(path) = other_spelling {
            parts.path_and_query = Some(path);
        }
        parts
            .path_and_query
            .get_or_insert(PathAndQuery::from_static("/"));
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
}

/// The path of a CRI call in the given version, if it is not in it already.
fn respell(path: &str, api: ApiVersion) -> Option<PathAndQuery> {
    let rest = path.strip_prefix("/runtime.")?;
    let (version, service) = rest.split_once('.')?;
    if api.package().strip_prefix("runtime.") == Some(version) {
        return None;
    }
    format!("/{}.{service}", api.package()).parse().ok()
}

impl Upstream {
    /// A stream that the runtime reset is passed on as a reset with the same reason; a connection that broke becomes
    /// an [`Error`].
    fn explain(&self, error: hyper::Error) -> BoxError {
        let path = || self.path().to_owned();
        let boxed: BoxError = error.into();
        if was_reset_by_peer(&boxed) {
            return boxed;
        }
        let error = match boxed.downcast::<hyper::Error>() {
            Ok(error) => *error,
            Err(boxed) => return boxed,
        };
        let protocol = is_protocol_error(&error);
        let name = self.name().clone();
        Box::new(match protocol {
            true => Error::Protocol {
                name,
                path: path(),
                source: error,
            },
            false => Error::Lost {
                name,
                path: path(),
                source: error,
            },
        })
    }
}

/// Whether the runtime reset this one stream.
pub(super) fn was_reset_by_peer(error: &BoxError) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&**error);
    while let Some(e) = cause {
        if let Some(h2) = e.downcast_ref::<h2::Error>() {
            return h2.is_reset() && h2.is_remote();
        }
        cause = e.source();
    }
    false
}

/// Whether our HTTP/2 implementation found the other end's bytes at fault.
fn is_protocol_error(error: &hyper::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(e) = cause {
        if let Some(h2) = e.downcast_ref::<h2::Error>() {
            return h2.is_library() && h2.reason().is_some_and(|r| r != h2::Reason::NO_ERROR);
        }
        cause = e.source();
    }
    false
}

impl Service<Request> for Forward {
    type Response = Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        Box::pin(self.clone().forward(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_is_spelled_as_the_runtime_knows_it() {
        let cases = [
            (
                "/runtime.v1alpha2.RuntimeService/Version",
                ApiVersion::V1,
                Some("/runtime.v1.RuntimeService/Version"),
            ),
            (
                "/runtime.v1.ImageService/ListImages",
                ApiVersion::V1Alpha2,
                Some("/runtime.v1alpha2.ImageService/ListImages"),
            ),
            ("/runtime.v1.ImageService/ListImages", ApiVersion::V1, None),
            ("/grpc.health.v1.Health/Check", ApiVersion::V1, None),
        ];
        for (path, api, want) in cases {
            let got = respell(path, api);
            assert_eq!(got.as_ref().map(PathAndQuery::as_str), want, "{path}");
        }
    }
}
