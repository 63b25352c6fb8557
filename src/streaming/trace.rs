//! Sessions as spans: children of the call that requested them, if that call's own spans are exported.

use std::time::SystemTime;

use opentelemetry::trace::{SpanContext, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SpanData, SpanEvents, SpanLinks};
use opentelemetry_semantic_conventions::attribute as key;

use crate::telemetry::otlp::{self, SpanSink};
use cri_streaming::{SessionEnd, SessionKind, SessionObserver, SessionOutcome};

/// Exports a span at the end of each session.
#[derive(Debug)]
pub struct SessionSpans {
    sink: SpanSink,
    scope: InstrumentationScope,
}

impl SessionSpans {
    /// Exports to `sink`.
    pub fn new(sink: SpanSink) -> Self {
        Self {
            sink,
            scope: otlp::scope(),
        }
    }
}

impl SessionObserver for SessionSpans {
    fn ended(&self, end: &SessionEnd<'_>) {
        let Some(call) = super::call(end.extensions).filter(|call| call.is_kept()) else {
            return;
        };
        let Some(placement) = call.placement() else {
            return;
        };
        let end_time = SystemTime::now();
        let span = RandomIdGenerator::default().new_span_id();
        self.sink.export(SpanData {
            span_context: SpanContext::new(
                placement.trace_id,
                span,
                TraceFlags::SAMPLED,
                false,
                placement.state.cloned().unwrap_or(TraceState::NONE),
            ),
            parent_span_id: placement.server,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name(end.kind).into(),
            start_time: end_time - end.duration,
            end_time,
            attributes: attributes(end),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: if is_failed(end.outcome) {
                Status::error("")
            } else {
                Status::Unset
            },
            instrumentation_scope: self.scope.clone(),
        });
    }
}

fn is_failed(outcome: SessionOutcome) -> bool {
    use SessionOutcome::{Failed, NoStreams, Protocol};
    matches!(outcome, Failed | NoStreams | Protocol)
}

fn name(kind: SessionKind) -> &'static str {
    match kind {
        SessionKind::Exec => "cri.stream.exec",
        SessionKind::Attach => "cri.stream.attach",
        SessionKind::PortForward => "cri.stream.portforward",
    }
}

/// Identity, sizes and outcome; neither the command nor its output.
fn attributes(end: &SessionEnd<'_>) -> Vec<KeyValue> {
    let [bytes_in, bytes_out] =
        [end.bytes_in, end.bytes_out].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    let mut out = vec![
        KeyValue::new("criscope.stream.transport", end.transport.name()),
        KeyValue::new("criscope.stream.protocol", end.protocol),
        KeyValue::new("criscope.stream.outcome", end.outcome.name()),
        KeyValue::new("criscope.stream.bytes.in", bytes_in),
        KeyValue::new("criscope.stream.bytes.out", bytes_out),
    ];
    if is_failed(end.outcome) {
        out.push(KeyValue::new(key::ERROR_TYPE, end.outcome.name()));
    }
    if let Some(code) = end.exit_code {
        out.push(KeyValue::new(key::PROCESS_EXIT_CODE, i64::from(code)));
    }
    let subject = super::call(end.extensions).and_then(|call| call.subject.get());
    if let Some(pod) = subject.and_then(|s| s.pod.as_ref()) {
        let names = [
            (key::K8S_NAMESPACE_NAME, &pod.namespace),
            (key::K8S_POD_NAME, &pod.name),
            (key::K8S_POD_UID, &pod.uid),
        ];
        out.extend(names.map(|(key, value)| KeyValue::new(key, value.to_string())));
    }
    if let Some(container) = subject.and_then(|s| s.container.as_ref()) {
        let name = container.name.to_string();
        out.push(KeyValue::new(key::K8S_CONTAINER_NAME, name));
    }
    out
}
