//! A retry joins the call that its caller gave up (`join_retries`).
//!
//! A kubelet gives up a RunPodSandbox after four minutes and a CreateContainer after two, and tries again some seconds later. The
//! runtime has not undone the first call by then, or cannot, and answers "failed to reserve name". Here the first call goes on at
//! the runtime after the kubelet's deadline, and the retry waits for it. Only a deadline keeps a call: a kubelet that
//! cancels earlier deletes the pod or stops, and does not repeat the request.
//!
//! PullImage is left out: the kubelet's has no deadline, and pulls reserve no name.

pub(crate) mod kept;
mod same;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderValue;
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full, Limited};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use self::kept::{CONTINUES_FOR, JoinableRequest, KeptCalls, UpstreamCall};
use crate::call::{Call, CallStage, JoinedCall, reached_deadline};
use crate::cri::method::Class;
use crate::cri::peek;
use crate::grpc::status::Status;
use crate::grpc::{
    Body, BoxError, CallHandler, CriService, Request, Response, ResponseFuture, frame,
};

/// The largest answer: an id, and trailers.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// How long a request takes to arrive, at most.
const MAX_TRANSIT: Duration = Duration::from_secs(1);

/// A backend whose sandboxes and containers may take longer than the kubelet waits. Other calls pass unchanged.
#[derive(Clone, Debug)]
pub(super) struct RetryJoining {
    inner: CriService,
    kept: Arc<KeptCalls>,
}

impl RetryJoining {
    pub(super) fn new(inner: CriService, kept: Arc<KeptCalls>) -> Self {
        Self { inner, kept }
    }

    /// Lets the request wait for the call that it repeats, or sends it.
    async fn join_or_begin(
        self,
        request: Request,
        call: Arc<Call>,
        joinable: JoinableRequest,
    ) -> Result<Response, BoxError> {
        let Some(earlier) = self.kept.take(&joinable) else {
            let upstream = self.begin(request, joinable);
            let answer = self.waiting(upstream, &call).answer().await;
            return answer.unwrap_or_else(|| Err(broken_off().into()));
        };
        report(&call, &earlier);
        call.joins(JoinedCall::new(earlier.request.deadline));
        call.set_stage(CallStage::Waiting);
        call.backend_begins();
        let answer = self.waiting(earlier, &call).answer().await;
        call.backend_ends();
        match answer {
            Some(answer) => answer,
            // What the earlier call made is gone.
            None => self.inner.answer(request).await,
        }
    }

    fn waiting(&self, upstream: UpstreamCall, call: &Arc<Call>) -> WaitingCaller {
        WaitingCaller {
            upstream: Some(upstream),
            call: Arc::clone(call),
            kept: Arc::clone(&self.kept),
        }
    }

    /// Sends a request, with more time than its caller has.
    fn begin(&self, mut request: Request, joinable: JoinableRequest) -> UpstreamCall {
        let lasts = joinable.deadline.saturating_add(CONTINUES_FOR);
        request
            .headers_mut()
            .insert("grpc-timeout", timeout_header(lasts));
        let made = Arc::<OnceLock<Arc<str>>>::default();
        let inner = self.inner.clone();
        let work = answer_of(inner, request, Arc::clone(&made));
        UpstreamCall {
            request: joinable,
            answer: AbortOnDropHandle::new(tokio::spawn(work)),
            made,
            until: Instant::now() + lasts,
            removed: Vec::new(),
        }
    }
}

impl CallHandler for RetryJoining {
    fn answer(&self, request: Request) -> ResponseFuture {
        let call = request.extensions().get::<Arc<Call>>();
        let Some(call) = call.filter(|call| call.method.class() == Class::Mutating) else {
            return self.inner.answer(request);
        };
        self.kept.subject_changes(call);
        let Some(joinable) = JoinableRequest::from_call(call) else {
            return self.inner.answer(request);
        };
        let call = Arc::clone(call);
        Box::pin(self.clone().join_or_begin(request, call, joinable))
    }
}

/// The caller of a call that goes on if this one gives up at its deadline.
struct WaitingCaller {
    upstream: Option<UpstreamCall>,
    call: Arc<Call>,
    kept: Arc<KeptCalls>,
}

impl WaitingCaller {
    /// The answer; `None` if what the call made was taken away meanwhile.
    async fn answer(mut self) -> Option<Result<Response, BoxError>> {
        let upstream = self.upstream.as_mut()?;
        let answered = (&mut upstream.answer).await;
        let is_removed = upstream.is_removed();
        // The answer is this caller's, and nobody else's, from here on.
        self.upstream = None;
        (!is_removed).then(|| answered.unwrap_or_else(|_| Err(broken_off().into())))
    }
}

impl Drop for WaitingCaller {
    fn drop(&mut self) {
        let Some(upstream) = self.upstream.take() else {
            return;
        };
        if gave_up_at_deadline(&self.call) && Instant::now() < upstream.until {
            self.kept.keep(upstream);
        }
    }
}

/// Returns whether a caller that leaves now has waited until its deadline. Its clock started before ours, by as much as the request
/// took to arrive on a busy node.
fn gave_up_at_deadline(call: &Call) -> bool {
    let late = call.deadline.map(|deadline| MAX_TRANSIT.min(deadline / 10));
    reached_deadline(call.age() + late.unwrap_or_default(), call.deadline)
}

fn broken_off() -> Status {
    Status::unavailable("the call ended without an answer")
}

/// The whole answer of the backend. Notes the id in a good one.
async fn answer_of(
    inner: CriService,
    request: Request,
    made: Arc<OnceLock<Arc<str>>>,
) -> Result<Response, BoxError> {
    let method = request
        .extensions()
        .get::<Arc<Call>>()
        .map(|call| call.method);
    let (head, body) = inner.answer(request).await?.into_parts();
    if body.is_end_stream() {
        return Ok(Response::from_parts(head, body));
    }
    let collected = Limited::new(body, MAX_ANSWER_BYTES).collect().await?;
    let trailers = collected.trailers().cloned();
    let status = trailers.as_ref().and_then(frame::status);
    let is_good = status.is_some_and(|(code, _)| code == tonic::Code::Ok);
    let bytes = collected.to_bytes();
    if let (true, Some(method), Some(message)) = (is_good, method, frame::message(&bytes)) {
        let answer = peek::answer(method, message);
        if let Some(id) = answer.sandbox_id.or(answer.container_id) {
            let _ = made.set(id);
        }
    }
    let body = Full::new(bytes).with_trailers(async move { trailers.map(Ok) });
    let body = body.map_err(|never| match never {});
    Ok(Response::from_parts(head, Body::boxed(body)))
}

/// `grpc-timeout` in seconds, rounded up: up to eight digits.
fn timeout_header(lasts: Duration) -> HeaderValue {
    let seconds = lasts.as_secs().saturating_add(1).min(99_999_999);
    HeaderValue::from_str(&format!("{seconds}S"))
        .unwrap_or_else(|_| HeaderValue::from_static("99999999S"))
}

fn report(call: &Call, upstream: &UpstreamCall) {
    let subject = call.subject.get();
    let pod = subject.and_then(|subject| subject.pod.as_deref());
    tracing::info!(
        event = "retry.joined",
        seq = call.seq,
        rpc.method = call.method.full_name(),
        k8s.namespace.name = pod.map(|pod| &*pod.namespace),
        k8s.pod.name = pod.map(|pod| &*pod.name),
        deadline_ms = u64::try_from(upstream.request.deadline.as_millis()).unwrap_or(u64::MAX),
        "the kubelet's retry joined the call that it had given up at its deadline"
    );
}
