//! Reads the request message of a call, identifies its pod and container, and forwards the same bytes.
//!
//! A CRI call has exactly one request message. It is read as it arrives, up to a limit, and forwarded in the same pieces. A
//! larger message, a compressed one, or one that never becomes complete is forwarded unread; an unknown method may be
//! bidirectional and is not waited for at all.

pub mod answer;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tower::Service;

use crate::call::{Call, CallStage, Sealed, episode};
use crate::cri::secrets::Secrets;
use crate::cri::subject::Subject;
use crate::cri::{Method, peek};
use crate::grpc::body::BodyPrefix;
use crate::grpc::frame::{self, FrameHeader};
use crate::grpc::{Body, BoxError, Request, Response};
use crate::proxy::backend::Backend;
use crate::proxy::pod_index::PodIndex;

/// What messages are read with, and what is learned from them.
#[derive(Debug)]
pub struct Inspector {
    /// Completes identities, and learns new ids.
    pub index: Arc<PodIndex>,
    /// Remembers the secrets of requests.
    pub secrets: Arc<Secrets>,
    /// The backends, which learn their conditions.
    pub backends: Vec<Arc<Backend>>,
    /// Largest message that is read, in bytes.
    pub limit: usize,
}

/// Identifies the pod and container of each call from its request message.
#[derive(Clone, Debug)]
pub struct InspectService<S> {
    inner: S,
    inspector: Arc<Inspector>,
}

impl<S> InspectService<S> {
    /// Inspects the calls of one connection.
    pub fn new(inner: S, inspector: Arc<Inspector>) -> Self {
        Self { inner, inspector }
    }
}

impl<S> Service<Request> for InspectService<S>
where
    S: Service<Request, Response = Response, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // The service that is ready must make the call; its clone becomes ready before the next.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let inspector = Arc::clone(&self.inspector);
        Box::pin(async move {
            let Some(call) = request.extensions().get::<Arc<Call>>().cloned() else {
                return inner.call(request).await;
            };
            let request = inspector.inspect(&call, request).await?;
            let response = inner.call(request);
            let response = match inspector.unremembered(&call) {
                Some(secrets) => join(response, secrets.remember()).await.0?,
                None => response.await?,
            };
            if !answer::is_wanted(call.method) || response.body().is_end_stream() {
                return Ok(response);
            }
            Ok(response.map(|body| answer::inspected(body, call, inspector)))
        })
    }
}

impl Inspector {
    fn unremembered(&self, call: &Arc<Call>) -> Option<UnrememberedSecrets> {
        Secrets::are_in(call.method).then(|| UnrememberedSecrets {
            call: Arc::clone(call),
            secrets: Arc::clone(&self.secrets),
        })
    }

    async fn inspect(&self, call: &Call, request: Request) -> Result<Request, BoxError> {
        let (head, body) = request.into_parts();
        let body = match body {
            Body::Incoming(body) if call.method != Method::Other => self.read(call, body).await?,
            body => body,
        };
        Ok(Request::from_parts(head, body))
    }

    async fn read(&self, call: &Call, mut body: Incoming) -> Result<Body, BoxError> {
        let mut pieces = BodyBeginning::default();
        let mut trailers = None;
        while pieces.wants_more(self.limit) && !body.is_end_stream() {
            match body.frame().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => pieces.push(data),
                    // No gRPC caller sends trailers; if there are any, they are forwarded.
                    Err(frame) => {
                        trailers = frame.into_trailers().ok().map(Box::new);
                        break;
                    }
                },
                Some(Err(e)) => return Err(e.into()),
                None => break,
            }
        }
        // Many callers end the stream with a separate frame, which nearly always has arrived by now.
        if trailers.is_none()
            && !body.is_end_stream()
            && let Some(Some(Ok(frame))) = body.frame().now_or_never()
        {
            match frame.into_data() {
                Ok(data) => pieces.push(data),
                Err(frame) => trailers = frame.into_trailers().ok().map(Box::new),
            }
        }
        call.add_request_bytes(pieces.len);
        let mut subject = match pieces.message() {
            Some(message) => {
                let subject = peek::request(call.method, &message);
                let _ = call.message.set(Sealed::new(message));
                subject
            }
            None => Subject::default(),
        };
        self.index.complete(&mut subject);
        let (pod, container) = (subject.pod.as_deref(), subject.container.as_deref());
        let sandbox_id = subject.sandbox_id.as_deref();
        if let Some(ids) = episode::Ids::for_call(call.method, pod, container, sandbox_id) {
            let _ = call.episode.set(ids);
        }
        let _ = call.subject.set(subject);
        call.set_stage(CallStage::Routing);
        let prefix = BodyPrefix {
            pieces: pieces.pieces,
            trailers,
        };
        Ok(Body::Prefixed(prefix, body))
    }
}

/// A request whose secrets are not remembered yet. They are at the latest when it is dropped, because the backend may have
/// the request even if the caller does not wait for the answer.
struct UnrememberedSecrets {
    call: Arc<Call>,
    secrets: Arc<Secrets>,
}

impl UnrememberedSecrets {
    /// Lets the request be sent first.
    async fn remember(self) {
        tokio::task::yield_now().await;
    }
}

impl Drop for UnrememberedSecrets {
    fn drop(&mut self) {
        let call = &self.call;
        let message = call.message.get().map(Sealed::bytes);
        self.secrets
            .remember(call.method, message, call.subject.get());
    }
}

/// The beginning of a body.
#[derive(Default)]
struct BodyBeginning {
    pieces: VecDeque<Bytes>,
    len: usize,
}

impl BodyBeginning {
    fn push(&mut self, data: Bytes) {
        self.len += data.len();
        if !data.is_empty() {
            self.pieces.push_back(data);
        }
    }

    fn head(&self) -> Option<FrameHeader> {
        let mut start = [0; frame::HEADER_LENGTH];
        let mut have = 0;
        for piece in &self.pieces {
            let n = piece.len().min(start.len() - have);
            start[have..have + n].copy_from_slice(&piece[..n]);
            have += n;
        }
        FrameHeader::read(&start[..have])
    }

    /// Returns whether the message is incomplete, and small enough to wait for.
    fn wants_more(&self, limit: usize) -> bool {
        match self.head() {
            Some(head) => {
                !head.compressed && head.len <= limit && self.len < frame::HEADER_LENGTH + head.len
            }
            None => true,
        }
    }

    /// The message, if it is complete and readable. Copies only if it came in several pieces.
    fn message(&self) -> Option<Bytes> {
        let head = self.head()?;
        let end = frame::HEADER_LENGTH.checked_add(head.len)?;
        if head.compressed || self.len < end {
            return None;
        }
        let whole = match self.pieces.len() {
            1 => self.pieces.front()?.clone(),
            _ => {
                let mut all = bytes::BytesMut::with_capacity(self.len);
                self.pieces.iter().for_each(|p| all.extend_from_slice(p));
                all.freeze()
            }
        };
        let mut message = whole.slice(..end);
        message.advance(frame::HEADER_LENGTH);
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(parts: &[&[u8]]) -> BodyBeginning {
        let mut pieces = BodyBeginning::default();
        parts
            .iter()
            .for_each(|p| pieces.push(Bytes::copy_from_slice(p)));
        pieces
    }

    #[test]
    fn a_message_may_come_in_any_pieces() {
        let whole = frame::frame(b"hello").expect("small");
        for at in 0..=whole.len() {
            let p = pieces(&[&whole[..at], &whole[at..]]);
            assert!(!p.wants_more(100));
            assert_eq!(
                p.message().as_deref(),
                Some(b"hello".as_slice()),
                "cut at {at}"
            );
            if at < whole.len() {
                let p = pieces(&[&whole[..at]]);
                assert!(p.wants_more(100), "cut at {at}");
                assert_eq!(p.message(), None);
            }
        }
    }

    #[test]
    fn large_and_compressed_messages_are_not_waited_for() {
        assert!(!pieces(&[b"\0\0\0\x01\x00"]).wants_more(255));
        assert!(pieces(&[b"\0\0\0\x01\x00"]).wants_more(256));
        let compressed = pieces(&[b"\x01\0\0\0\x02ab"]);
        assert!(!compressed.wants_more(255));
        assert_eq!(compressed.message(), None);
    }

    #[test]
    fn bytes_after_the_message_are_not_part_of_it() {
        let p = pieces(&[b"\0\0\0\0\x01ab"]);
        assert_eq!(p.message().as_deref(), Some(b"a".as_slice()));
    }
}
