//! A backend whose sessions go through the session proxy.

use std::sync::Arc;

use http::Extensions;
use prost::Message as _;

use super::SessionProxy;
use super::metrics::UrlRewriteOutcome;
use super::response::BufferedResponse;
use super::url::{self, UrlMessage};
use crate::call::Call;
use crate::cri::{Method, v1};
use crate::grpc::{BoxError, CallHandler, CriService, Request, Response, ResponseFuture};
use cri_streaming::SessionInfo;
use cri_streaming::SessionKind;

/// Replaces the URLs of sessions by URLs of the session proxy. Other calls pass unchanged.
#[derive(Clone, Debug)]
pub(super) struct UrlRewriteService {
    inner: CriService,
    proxy: SessionProxy,
}

impl UrlRewriteService {
    pub(super) fn new(inner: CriService, proxy: SessionProxy) -> Self {
        Self { inner, proxy }
    }
}

impl CallHandler for UrlRewriteService {
    fn answer(&self, request: Request) -> ResponseFuture {
        let call = request.extensions().get::<Arc<Call>>();
        let session = call.and_then(|call| Some((kind(call.method)?, Arc::clone(call))));
        let answering = self.inner.answer(request);
        let Some((kind, call)) = session else {
            return answering;
        };
        let proxy = self.proxy.clone();
        Box::pin(async move { rewrite(&proxy, answering.await?, kind, call).await })
    }
}

fn kind(method: Method) -> Option<SessionKind> {
    match method {
        Method::Exec => Some(SessionKind::Exec),
        Method::Attach => Some(SessionKind::Attach),
        Method::PortForward => Some(SessionKind::PortForward),
        _ => None,
    }
}

async fn rewrite(
    proxy: &SessionProxy,
    response: Response,
    kind: SessionKind,
    call: Arc<Call>,
) -> Result<Response, BoxError> {
    let answer = BufferedResponse::read(response).await;
    let bytes = answer.message();
    let ours = match bytes.as_deref().and_then(UrlMessage::split) {
        Some(message) => issue(proxy, &message, kind, call).map(|url| (message, url)),
        // An error response carries no URL.
        None if answer.is_error() => return Ok(answer.untouched()),
        None => Err(UrlRewriteOutcome::Unread),
    };
    match ours {
        Ok((message, url)) => {
            proxy.verdict(UrlRewriteOutcome::Proxied);
            Ok(answer.with(&message, &url))
        }
        Err(verdict) => {
            proxy.verdict(verdict);
            Ok(answer.untouched())
        }
    }
}

/// Issues a URL of criscope for one of the upstream's.
fn issue(
    proxy: &SessionProxy,
    message: &UrlMessage<'_>,
    kind: SessionKind,
    call: Arc<Call>,
) -> Result<String, UrlRewriteOutcome> {
    let upstream = url::parse(message.url)?;
    let about = about(kind, call).ok_or(UrlRewriteOutcome::Unread)?;
    proxy.issue(upstream, about)
}

/// Identity and command of the session.
fn about(kind: SessionKind, call: Arc<Call>) -> Option<SessionInfo> {
    let request = call.message.get()?.bytes();
    let (id, command) = match kind {
        SessionKind::Exec => {
            let request = v1::ExecRequest::decode(request).ok()?;
            (request.container_id, request.cmd)
        }
        SessionKind::Attach => {
            let request = v1::AttachRequest::decode(request).ok()?;
            (request.container_id, Vec::new())
        }
        SessionKind::PortForward => {
            let request = v1::PortForwardRequest::decode(request).ok()?;
            (request.pod_sandbox_id, Vec::new())
        }
    };
    let mut extensions = Extensions::new();
    extensions.insert(call);
    Some(SessionInfo {
        kind,
        id,
        command,
        extensions,
    })
}
