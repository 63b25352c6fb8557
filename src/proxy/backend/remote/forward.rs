//! Sends one call to the runtime and returns the response.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use h2::Reason;
use h2::client::SendRequest;
use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

use super::body::forwarded;
use super::error::{ConnectionFault, was_reset_by_runtime};
use super::exchange::{ExchangeError, ResponseBody, exchange};
use super::{Error, RemoteBackend};
use crate::call::{Call, CallStage};
use crate::cri::Method;
use crate::cri::method::{ApiVersion, Class};
use crate::grpc::{BoxError, CallHandler, Request, Response, ResponseFuture};
use crate::telemetry::propagation;

/// The runtime as seen from one connection of a caller. See [`crate::proxy::backend::remote`].
#[derive(Clone, Debug)]
pub struct RemoteConnection {
    remote: Arc<RemoteBackend>,
    sender: Arc<Mutex<Option<SendRequest<Bytes>>>>,
}

impl RemoteConnection {
    /// For a new connection of a caller.
    pub fn new(remote: Arc<RemoteBackend>) -> Self {
        Self {
            remote,
            sender: Arc::default(),
        }
    }

    /// This caller's connection to the runtime; opened if there is no working one.
    async fn shared(&self) -> Result<SendRequest<Bytes>, Error> {
        let existing = self
            .sender
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(sender) = existing {
            return Ok(sender);
        }
        // Two calls may both connect here; the second connection replaces the first and both work. Boxed, like the other
        // rare branches of this path: it would enlarge the future of every call.
        let sender = Box::pin(self.remote.connect()).await?;
        *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender.clone());
        Ok(sender)
    }

    async fn sender_for(&self, method: Method) -> Result<SendRequest<Bytes>, Error> {
        match method.class() {
            Class::Watch => Box::pin(self.remote.connect()).await,
            _ => self.shared().await,
        }
    }

    async fn forward(self, mut request: Request) -> Result<Response, BoxError> {
        let call = request.extensions().get::<Arc<Call>>().cloned();
        let method = call.as_ref().map_or(Method::Other, |c| c.method);
        self.address(&mut request, call.as_deref());
        if let Some(call) = &call {
            call.set_stage(CallStage::Connecting);
            if let Some(placement) = call.placement() {
                propagation::inject(&placement, request.headers_mut());
            }
        }
        let sender = self.sender_for(method).await?;
        if let Some(call) = &call {
            call.backend_begins();
            call.set_stage(CallStage::Waiting);
        }
        match self.send(sender, request, method).await {
            Ok(response) => Ok(response.map(|body| forwarded(body, call, self.remote))),
            Err(error) => {
                if let Some(call) = &call {
                    call.backend_ends();
                }
                Err(error)
            }
        }
    }

    /// Sends the request; once more on a new connection if the runtime closed the old one before it processed the call.
    async fn send(
        &self,
        sender: SendRequest<Bytes>,
        request: Request,
        method: Method,
    ) -> Result<http::Response<ResponseBody>, BoxError> {
        let fault = match exchange(sender, request).await {
            Ok(response) => return Ok(response),
            Err(fault) => fault,
        };
        let error = match fault {
            ExchangeError::Broken(error) => error,
            ExchangeError::NotProcessed(request, _) => {
                *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = None;
                let sender = self.sender_for(method).await?;
                match Box::pin(exchange(sender, *request)).await {
                    Ok(response) => return Ok(response),
                    Err(ExchangeError::Broken(error) | ExchangeError::NotProcessed(_, error)) => {
                        error
                    }
                }
            }
        };
        Err(self.remote.explain(error))
    }

    /// Sets the URI that HTTP/2 needs, with the version of the CRI that this runtime serves.
    fn address(&self, request: &mut Request, call: Option<&Call>) {
        let uri = request.uri();
        let api = self.remote.health.api();
        let as_it_is = call.is_some_and(|c| c.api == api || c.method == Method::Other);
        let other_spelling = if as_it_is {
            None
        } else {
            respell(uri.path(), api)
        };
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

/// The path of a CRI call in the given version; `None` if it has that version already.
fn respell(path: &str, api: ApiVersion) -> Option<PathAndQuery> {
    let rest = path.strip_prefix("/runtime.")?;
    let (version, service) = rest.split_once('.')?;
    if api.package().strip_prefix("runtime.") == Some(version) {
        return None;
    }
    format!("/{}.{service}", api.package()).parse().ok()
}

impl RemoteBackend {
    /// A stream that the runtime reset is reset for the caller with the same reason; a broken connection becomes an
    /// [`Error`].
    fn explain(&self, source: h2::Error) -> BoxError {
        if was_reset_by_runtime(&source) {
            return source.into();
        }
        // h2 rejected bytes of the runtime.
        let is_fault =
            source.is_library() && source.reason().is_some_and(|r| r != Reason::NO_ERROR);
        let fault = if is_fault {
            ConnectionFault::Protocol(source)
        } else {
            ConnectionFault::Lost(source)
        };
        self.error(fault).into()
    }
}

impl CallHandler for RemoteConnection {
    fn answer(&self, request: Request) -> ResponseFuture {
        Box::pin(self.clone().forward(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_the_cri_version_of_the_runtime() {
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
