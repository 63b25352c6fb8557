//! Sessions as spans: children of the call that requested them, if that call's own spans are exported.

use std::time::SystemTime;

use opentelemetry::trace::Status;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use opentelemetry_semantic_conventions::attribute as key;

use crate::telemetry::otlp::{self, SpanSink};
use cri_streaming::{SessionBegin, SessionEnd, SessionKind, SessionObserver, SessionOutcome};

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
    fn ended(&self, begin: &SessionBegin<'_>, end: &SessionEnd) {
        let Some(call) = super::call(begin.extensions).filter(|call| call.is_kept()) else {
            return;
        };
        let Some(placement) = call.placement() else {
            return;
        };
        let now = SystemTime::now();
        let own = RandomIdGenerator::default().new_span_id();
        let mut span = otlp::span(
            &self.scope,
            otlp::context(placement.trace_id, own, placement.state),
            placement.server,
            name(begin.kind),
            (now - end.duration, now),
        );
        span.attributes = attributes(begin, end);
        if is_failed(end.outcome) {
            span.status = Status::error("");
        }
        self.sink.export(span);
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
fn attributes(begin: &SessionBegin<'_>, end: &SessionEnd) -> Vec<KeyValue> {
    let [bytes_in, bytes_out] =
        [end.bytes_in, end.bytes_out].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    let mut out = vec![
        KeyValue::new("criscope.stream.transport", begin.transport.name()),
        KeyValue::new("criscope.stream.protocol", begin.protocol),
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
    let subject = super::call(begin.extensions).and_then(|call| call.subject.get());
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
