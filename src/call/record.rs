//! What is kept of a call that has ended: identity, times and outcome, and nothing of its messages.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanContext, SpanId, TraceId};

use super::episode;
use super::live::Call;
use super::outcome::{Ending, Outcome, Source};
use super::peer::Peer;
use super::route::Route;
use super::steps::RuntimeSteps;
use crate::cri::method::{ApiVersion, Method};
use crate::cri::status::Code;
use crate::cri::subject::{ContainerIdentity, ContainerState, PodIdentity};

/// One finished call. Clones share the texts.
#[derive(Clone, Debug)]
pub struct CallRecord {
    /// Number of the call since the start of the process.
    pub seq: u64,
    /// The method.
    pub method: Method,
    /// The spelling the caller used.
    pub api: ApiVersion,
    /// When the request headers were read.
    pub began: SystemTime,
    /// From there to the end.
    pub elapsed: Duration,
    /// The caller's deadline, counted from `began`.
    pub deadline: Option<Duration>,
    /// The caller.
    pub peer: Arc<Peer>,
    /// The pod.
    pub pod: Option<Arc<PodIdentity>>,
    /// The sandbox id.
    pub sandbox_id: Option<Arc<str>>,
    /// The container.
    pub container: Option<Arc<ContainerIdentity>>,
    /// The container id.
    pub container_id: Option<Arc<str>>,
    /// The image reference, without user, password and query.
    pub image: Option<Arc<str>>,
    /// The runtime handler asked for.
    pub handler: Option<Arc<str>>,
    /// What a ContainerStatus said.
    pub state: Option<ContainerState>,
    /// Exit code of the command (ExecSync).
    pub exit_code: Option<i32>,
    /// Where it went, and why.
    pub route: Option<Route>,
    /// When the backend was asked, counted from `began`, and how long it took.
    pub backend: Option<(Duration, Duration)>,
    /// Bytes of request messages.
    pub request_bytes: u64,
    /// Bytes of response messages.
    pub response_bytes: u64,
    /// How it ended.
    pub ending: Ending,
    /// The status the caller saw.
    pub code: Code,
    /// Who made that status.
    pub source: Source,
    /// The error message, scrubbed.
    pub message: Option<Arc<str>>,
    /// Its spans, when traces are on.
    pub spans: Option<SpanIds>,
    /// The trace of its episode.
    pub episode: Option<episode::Ids>,
    /// The largest share of its deadline that was reported while it ran, in percent; 0 if none.
    pub share_used: u32,
    /// What the built-in runtime did for it. Not kept in the recorder.
    pub steps: Option<Arc<RuntimeSteps>>,
}

/// The spans of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanIds {
    /// The trace.
    pub trace_id: TraceId,
    /// The call as it was served.
    pub server: SpanId,
    /// The call as it was made to the backend.
    pub client: SpanId,
    /// The caller's own span, if it had one.
    pub caller: Option<SpanContext>,
    /// Whether the spans were handed to the exporter.
    pub kept: bool,
}

impl CallRecord {
    /// The record of a call that has just ended.
    pub fn of(call: &Call, outcome: &Outcome) -> Self {
        let subject = call.subject.get();
        let answer = call.answer.get();
        Self {
            seq: call.seq,
            method: call.method,
            api: call.api,
            began: call.started_at,
            elapsed: outcome.elapsed,
            deadline: call.deadline,
            peer: Arc::clone(&call.peer),
            pod: subject.and_then(|s| s.pod.clone()),
            sandbox_id: call.sandbox_id().cloned(),
            container: subject.and_then(|s| s.container.clone()),
            container_id: call.container_id().cloned(),
            image: subject.and_then(|s| s.image.clone()),
            handler: subject.and_then(|s| s.handler.clone()),
            state: answer.and_then(|a| a.state),
            exit_code: answer.and_then(|a| a.exit_code),
            route: call.route.get().cloned(),
            backend: call.backend_span(outcome.elapsed),
            request_bytes: call.request_bytes(),
            response_bytes: call.response_bytes(),
            ending: outcome.ending,
            code: outcome.code,
            source: outcome.source,
            message: outcome.message.clone(),
            spans: call.placement().map(|place| SpanIds {
                trace_id: place.trace_id,
                server: place.server,
                client: place.client,
                caller: call.trace.as_ref().and_then(|trace| trace.parent.clone()),
                kept: call.is_kept(),
            }),
            episode: call.episode.get().copied(),
            share_used: call.share_used(),
            steps: call.steps.get().cloned(),
        }
    }

    /// When it ended.
    pub fn ended(&self) -> SystemTime {
        self.began + self.elapsed
    }

    /// Whether it ended well.
    pub fn is_ok(&self) -> bool {
        self.ending == Ending::Ok
    }
}
