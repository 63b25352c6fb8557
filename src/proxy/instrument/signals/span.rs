//! The spans of a call: SERVER, the call as criscope serves it, and its child CLIENT, the call to the backend. Both are
//! built when the call has ended, from ids chosen when it began.
//!
//! Names and attributes follow the semantic conventions for gRPC spans, and criscope's own `criscope.*` ([`otlp::ATTRIBUTES`]).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::SpanData;
use opentelemetry_semantic_conventions::attribute as key;

use super::SignalSettings;
use super::log::cut;
use crate::call::steps::{RuntimeStep, RuntimeSteps, StepOutcome, StepRecord, Worker};
use crate::call::trace::SpanPlacement;
use crate::call::{Call, Outcome, trace};
use crate::cri::Method;
use crate::cri::status::{Code, code_name, is_server_fault};
use crate::cri::subject::Subject;
use crate::telemetry::otlp::{self, SpanSink};

/// Longest text in an attribute, in bytes.
const MAX_TEXT_BYTES: usize = 256;

/// Builds and exports spans.
#[derive(Debug)]
pub(super) struct CallSpanBuilder {
    sink: SpanSink,
    scope: InstrumentationScope,
    listen: Arc<str>,
    /// Names of the backends and the paths of their sockets.
    backends: Vec<(String, Arc<str>)>,
}

impl CallSpanBuilder {
    pub(super) fn new(sink: SpanSink, settings: &SignalSettings) -> Self {
        Self {
            sink,
            scope: otlp::scope(),
            listen: Arc::clone(&settings.listen),
            backends: settings.endpoints.clone(),
        }
    }

    /// Exports the spans of a call, whether or not the backend was asked to sample. Returns false if the queue is full.
    pub(super) fn export(
        &self,
        call: &Call,
        outcome: &Outcome,
        placement: &SpanPlacement<'_>,
    ) -> bool {
        let common = attributes(call, outcome);
        if let Some((began, took)) = call.backend_span(outcome.elapsed) {
            self.sink
                .export(self.client(call, outcome, placement, common.clone(), (began, took)));
        }
        if let Some(phases) = call.steps.get() {
            self.export_phases(phases, placement);
        }
        self.sink
            .export(self.server(call, outcome, placement, common))
    }

    /// Exports the built-in runtime's steps of a call: ended steps now, and the rest when they end.
    fn export_phases(&self, phases: &RuntimeSteps, placement: &SpanPlacement<'_>) {
        let steps = StepSpanBuilder {
            trace_id: placement.trace_id,
            state: placement.state.cloned().unwrap_or(TraceState::NONE),
            scope: self.scope.clone(),
        };
        let (late, sink) = (steps.clone(), self.sink.clone());
        let late = Box::new(move |record: &StepRecord| {
            let _counted_if_lost = sink.export(late.span(record));
        });
        for record in phases.close(Some(late)) {
            if record.ended.is_some() {
                self.sink.export(steps.span(&record));
            }
        }
    }

    fn server(
        &self,
        call: &Call,
        outcome: &Outcome,
        placement: &SpanPlacement<'_>,
        mut attributes: Vec<KeyValue>,
    ) -> SpanData {
        attributes.push(text(key::SERVER_ADDRESS, &self.listen));
        let failed = is_server_fault(outcome.code);
        let times = (call.started_at, call.started_at + outcome.elapsed);
        let mut span = self.span(call, outcome, placement, attributes, failed, times);
        span.parent_span_id = placement.parent;
        span.parent_span_is_remote = placement.parent_is_remote;
        span.span_kind = SpanKind::Server;
        if let Some(link) = placement.link {
            span.links.links.push(Link::with_context(linked(link)));
        }
        span
    }

    fn client(
        &self,
        call: &Call,
        outcome: &Outcome,
        placement: &SpanPlacement<'_>,
        mut attributes: Vec<KeyValue>,
        (began, took): (Duration, Duration),
    ) -> SpanData {
        let route = call.route.get();
        let backend =
            route.and_then(|r| self.backends.iter().find(|(name, _)| **name == *r.backend));
        if let Some((_, path)) = backend {
            attributes.push(text(key::SERVER_ADDRESS, path));
            attributes.push(text(key::NETWORK_PEER_ADDRESS, path));
        }
        let failed = outcome.code != Code::Ok;
        let begin = call.started_at + began;
        let mut span = self.span(
            call,
            outcome,
            placement,
            attributes,
            failed,
            (begin, begin + took),
        );
        span.span_context = context(placement, placement.client);
        span.parent_span_id = placement.server;
        span.span_kind = SpanKind::Client;
        span
    }

    /// The common parts of both spans.
    fn span(
        &self,
        call: &Call,
        outcome: &Outcome,
        placement: &SpanPlacement<'_>,
        mut attributes: Vec<KeyValue>,
        failed: bool,
        times: (SystemTime, SystemTime),
    ) -> SpanData {
        let mut status = Status::Unset;
        if failed {
            attributes.push(KeyValue::new(key::ERROR_TYPE, code_name(outcome.code)));
            let message = outcome.message.as_deref().unwrap_or_default();
            status = Status::error(cut(message, MAX_TEXT_BYTES).to_owned());
        }
        let server = context(placement, placement.server);
        let name = name(call.method);
        let span = otlp::span(&self.scope, server, SpanId::INVALID, name, times);
        SpanData {
            attributes,
            status,
            ..span
        }
    }
}

/// Builds the spans of the built-in runtime's steps.
#[derive(Clone)]
struct StepSpanBuilder {
    trace_id: TraceId,
    state: TraceState,
    scope: InstrumentationScope,
}

impl StepSpanBuilder {
    fn span(&self, record: &StepRecord) -> SpanData {
        let phase = record.step;
        let mut attributes = Vec::new();
        if let Some(name) = &record.name {
            let key = match phase.worker() {
                Worker::Cni => "criscope.cni.plugin",
                Worker::Oci => key::CONTAINER_RUNTIME_NAME,
                _ => match phase {
                    RuntimeStep::Nri => "criscope.nri.plugin",
                    RuntimeStep::ImageVerify => "criscope.image.verifier",
                    _ => "criscope.image.layer",
                },
            };
            attributes.push(text(key, name));
        }
        let mut status = Status::Unset;
        let outcome = record.ended.map(|(_, outcome)| outcome);
        if let Some(outcome) = outcome.filter(|outcome| *outcome != StepOutcome::Ok) {
            attributes.push(KeyValue::new(key::ERROR_TYPE, outcome.name()));
            // The error text is in the span of the call.
            status = Status::error("");
        }
        let own = otlp::context(self.trace_id, record.span, Some(&self.state));
        let times = (record.began, record.began + record.took());
        let span = otlp::span(&self.scope, own, record.parent, phase.name(), times);
        SpanData {
            attributes,
            status,
            ..span
        }
    }
}

fn context(placement: &SpanPlacement<'_>, span: SpanId) -> SpanContext {
    otlp::context(placement.trace_id, span, placement.state)
}

fn linked(link: trace::Link<'_>) -> SpanContext {
    match link {
        trace::Link::Caller(context) => context.clone(),
        trace::Link::Episode(ids) => otlp::context(ids.trace_id, ids.root, None),
    }
}

const fn name(method: Method) -> &'static str {
    match method {
        Method::Other => "grpc",
        known => known.full_name(),
    }
}

/// The attributes of both spans.
fn attributes(call: &Call, outcome: &Outcome) -> Vec<KeyValue> {
    let mut out = Vec::with_capacity(24);
    out.push(KeyValue::new(key::RPC_SYSTEM_NAME, "grpc"));
    out.push(KeyValue::new(key::RPC_METHOD, call.method.full_name()));
    if let Some(path) = &call.other_path {
        out.push(owned(
            key::RPC_METHOD_ORIGINAL,
            path.strip_prefix('/').unwrap_or(path),
        ));
    }
    out.push(KeyValue::new(
        otlp::RPC_STATUS_CODE,
        code_name(outcome.code),
    ));
    let mode = match call.steps.get() {
        Some(_) => "runtime",
        None => "proxy",
    };
    out.push(KeyValue::new("criscope.mode", mode));
    if let Some(route) = call.route.get() {
        out.push(text("criscope.backend", &route.backend));
    }
    out.push(KeyValue::new("criscope.client", call.peer.client.name()));
    if let Some(pid) = call.peer.pid {
        out.push(KeyValue::new("criscope.client.pid", i64::from(pid)));
    }
    if let Some(deadline) = call.deadline {
        out.push(KeyValue::new(
            "criscope.deadline_ms",
            number(deadline.as_millis()),
        ));
    }
    out.push(KeyValue::new(
        "criscope.request.bytes",
        number(call.request_bytes()),
    ));
    out.push(KeyValue::new(
        "criscope.response.bytes",
        number(call.response_bytes()),
    ));
    if let Some(id) = call.sandbox_id() {
        out.push(text("criscope.sandbox.id", id));
    }
    if let Some(id) = call.container_id() {
        out.push(text(key::CONTAINER_ID, id));
    }
    if let Some(subject) = call.subject.get() {
        describe(subject, &mut out);
    }
    out
}

fn describe(subject: &Subject, out: &mut Vec<KeyValue>) {
    if let Some(pod) = &subject.pod {
        out.push(owned(key::K8S_NAMESPACE_NAME, &pod.namespace));
        out.push(owned(key::K8S_POD_NAME, &pod.name));
        out.push(owned(key::K8S_POD_UID, &pod.uid));
        out.push(KeyValue::new(
            "criscope.sandbox.attempt",
            i64::from(pod.attempt),
        ));
    }
    if let Some(container) = &subject.container {
        out.push(owned(key::K8S_CONTAINER_NAME, &container.name));
        out.push(KeyValue::new(
            key::K8S_CONTAINER_RESTART_COUNT,
            i64::from(container.attempt),
        ));
    }
    if let Some(handler) = &subject.handler {
        out.push(owned("criscope.runtime_handler", handler));
    }
    if let Some(image) = &subject.image {
        let image = ImageReferenceParts::parse(image);
        out.push(owned(key::CONTAINER_IMAGE_NAME, image.name));
        if let Some(tag) = image.tag {
            out.push(list(
                key::CONTAINER_IMAGE_TAGS,
                cut(tag, MAX_TEXT_BYTES).to_owned(),
            ));
        }
        if let Some(digest) = image.digest {
            let reference = format!("{}@{digest}", image.name);
            out.push(list(
                key::CONTAINER_IMAGE_REPO_DIGESTS,
                cut(&reference, MAX_TEXT_BYTES).to_owned(),
            ));
        }
    }
}

/// `NAME[:TAG][@DIGEST]`, as the OCI distribution specification writes references.
#[derive(Debug, PartialEq, Eq)]
struct ImageReferenceParts<'a> {
    name: &'a str,
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

impl<'a> ImageReferenceParts<'a> {
    fn parse(reference: &'a str) -> Self {
        let (rest, digest) = match reference.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (reference, None),
        };
        // A colon before the last slash belongs to the registry's port.
        match rest.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => Self {
                name,
                tag: Some(tag),
                digest,
            },
            _ => Self {
                name: rest,
                tag: None,
                digest,
            },
        }
    }
}

fn text(key: &'static str, value: &Arc<str>) -> KeyValue {
    if value.len() <= MAX_TEXT_BYTES {
        return KeyValue::new(key, Arc::clone(value));
    }
    owned(key, value)
}

fn owned(key: &'static str, value: &str) -> KeyValue {
    KeyValue::new(key, cut(value, MAX_TEXT_BYTES).to_owned())
}

fn list(key: &'static str, value: String) -> KeyValue {
    KeyValue::new(key, Value::Array(vec![StringValue::from(value)].into()))
}

fn number(n: impl TryInto<i64>) -> i64 {
    n.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_references_are_split() {
        let table = [
            ("busybox", ("busybox", None, None)),
            (
                "registry.k8s.io/pause:3.10",
                ("registry.k8s.io/pause", Some("3.10"), None),
            ),
            ("localhost:5000/a/b", ("localhost:5000/a/b", None, None)),
            (
                "localhost:5000/a:1@sha256:ab",
                ("localhost:5000/a", Some("1"), Some("sha256:ab")),
            ),
            ("a@sha256:ab", ("a", None, Some("sha256:ab"))),
            ("sha256:abcdef", ("sha256", Some("abcdef"), None)),
            ("", ("", None, None)),
        ];
        for (reference, (name, tag, digest)) in table {
            assert_eq!(
                ImageReferenceParts::parse(reference),
                ImageReferenceParts { name, tag, digest },
                "{reference}"
            );
        }
    }

    #[test]
    fn long_texts_are_cut() {
        let long: Arc<str> = "é".repeat(200).into();
        assert_eq!(text("k", &long).value.as_str().len(), 256);
        assert_eq!(owned("k", &"x".repeat(300)).value.as_str().len(), 256);
        let short: Arc<str> = "abc".into();
        assert_eq!(text("k", &short).value.as_str(), "abc");
    }
}
