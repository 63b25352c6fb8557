//! A backend whose sessions are led through this program.

use std::sync::Arc;

use prost::Message as _;

use super::Relay;
use super::answer::Answer;
use super::metrics::Verdict;
use super::url::{self, Message};
use crate::call::Call;
use crate::cri::{Method, v1};
use crate::grpc::{Answering, BoxError, CriService, Handler, Request, Response};
use crate::streaming::extensions;
use cri_streaming::About;
use cri_streaming::Kind;

/// See the module documentation. Every other call goes straight through.
#[derive(Clone, Debug)]
pub(super) struct Led {
    inner: CriService,
    relay: Relay,
}

impl Led {
    pub(super) fn new(inner: CriService, relay: Relay) -> Self {
        Self { inner, relay }
    }
}

impl Handler for Led {
    fn answer(&self, request: Request) -> Answering {
        let call = request.extensions().get::<Arc<Call>>();
        let led = call.and_then(|call| Some((kind(call.method)?, Arc::clone(call))));
        let answering = self.inner.answer(request);
        let Some((kind, call)) = led else {
            return answering;
        };
        let relay = self.relay.clone();
        Box::pin(async move { lead(&relay, answering.await?, kind, call).await })
    }
}

fn kind(method: Method) -> Option<Kind> {
    match method {
        Method::Exec => Some(Kind::Exec),
        Method::Attach => Some(Kind::Attach),
        Method::PortForward => Some(Kind::PortForward),
        _ => None,
    }
}

async fn lead(
    relay: &Relay,
    response: Response,
    kind: Kind,
    call: Arc<Call>,
) -> Result<Response, BoxError> {
    let answer = Answer::read(response).await;
    let bytes = answer.message();
    let ours = match bytes.as_deref().and_then(Message::split) {
        Some(message) => issue(relay, &message, kind, call).map(|url| (message, url)),
        // There is no session when the answer is an error.
        None if answer.is_error() => return Ok(answer.untouched()),
        None => Err(Verdict::Unread),
    };
    match ours {
        Ok((message, url)) => {
            relay.verdict(Verdict::Led);
            Ok(answer.with(&message, &url))
        }
        Err(verdict) => {
            relay.verdict(verdict);
            Ok(answer.untouched())
        }
    }
}

/// A URL of ours for one of the upstream's.
fn issue(
    relay: &Relay,
    message: &Message<'_>,
    kind: Kind,
    call: Arc<Call>,
) -> Result<String, Verdict> {
    let upstream = url::parse(message.url)?;
    let about = about(kind, call).ok_or(Verdict::Unread)?;
    relay.issue(upstream, about)
}

/// Whom the session is about, and what it is to run.
fn about(kind: Kind, call: Arc<Call>) -> Option<About> {
    let request = call.message.get()?.bytes();
    let (id, command) = match kind {
        Kind::Exec => {
            let request = v1::ExecRequest::decode(request).ok()?;
            (request.container_id, request.cmd)
        }
        Kind::Attach => {
            let request = v1::AttachRequest::decode(request).ok()?;
            (request.container_id, Vec::new())
        }
        Kind::PortForward => {
            let request = v1::PortForwardRequest::decode(request).ok()?;
            (request.pod_sandbox_id, Vec::new())
        }
    };
    Some(About {
        kind,
        id,
        command,
        extensions: extensions(Some(call)),
    })
}
