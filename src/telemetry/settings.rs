//! `[telemetry.log]`, `[telemetry.otlp]` and `[telemetry.sampling]`

use std::collections::HashMap;
use std::time::Duration;

use crate::cri::Method;
use crate::settings::value::{
    Choice, CollectorUrl, Directive, Maybe, MethodName, Ratio, Span, ms, secs,
};
use crate::settings::{Place, Problem, Reader, settings};

/// Format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, else JSON.
    Auto,
    /// One JSON object per line.
    Json,
    /// Human-readable text.
    Text,
}

/// What happens to a call whose caller has a trace and does not sample it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnsampledParent {
    /// It is treated as if there were no trace, and linked to the span of the caller.
    Episode,
    /// It is not sampled either.
    Respect,
}

settings! {
    /// The log.
    pub struct Log in "telemetry.log" {
        /// `json` writes one object per line, `text` lines for people, `auto` text if standard error is a terminal, else JSON.
        format: LogFormat = LogFormat::Auto,
            Choice(&[("auto", LogFormat::Auto), ("json", LogFormat::Json), ("text", LogFormat::Text)]);
        /// What is logged: mutating calls at `info`, polls at `debug`.
        level: String = "info".to_owned(), Directive => live;
    }
}

settings! {
    /// Where spans are exported to.
    pub struct Otlp in "telemetry.otlp" {
        /// An OTLP/gRPC collector, without TLS.
        endpoint: Option<String> = None, Maybe(CollectorUrl),
            or "`OTEL_EXPORTER_OTLP_ENDPOINT` of the environment; without either no spans are exported"
            like "\"http://127.0.0.1:4317\"";
        /// Deadline of one export. No call waits for an export.
        timeout: Duration = secs(10), Span::between(ms(100), secs(300));
    }
}

settings! {
    /// Which calls become spans. Calls that failed, were cancelled, stuck (half of the deadline used up) or slow always
    /// do, and so do calls that their caller sampled.
    pub struct Sampling in "telemetry.sampling" {
        /// Share of the mutating calls that belong to no episode.
        mutating: f64 = 1.0, Ratio => live;
        /// Share of the polls. A kubelet makes several a second.
        polls: f64 = 0.0, Ratio => live;
        /// A call that took longer than this is slow.
        slow: Duration = secs(1), Span::between(ms(1), secs(3600)) => live;
        /// Share of the episodes: starts, restarts and stops of pods. An episode is sampled with all its calls or not at
        /// all.
        episodes: f64 = 1.0, Ratio => live;
        /// What happens to a call whose caller has a trace and does not sample it, as every call of a kubelet with
        /// tracing enabled and no sampling rate does. `episode` decides as if the caller had no trace, and links to its
        /// span; `respect` exports the call only if it failed, was cancelled, stuck or slow.
        on_unsampled_parent: OnUnsampledParent = OnUnsampledParent::Episode,
            Choice(&[("episode", OnUnsampledParent::Episode), ("respect", OnUnsampledParent::Respect)]) => live;
    }
    parts {
        /// Methods with their own settings, each at most once.
        methods: Vec<MethodSampling> = methods;
    }
}

settings! {
    /// Settings of one method, written `[[telemetry.sampling.methods]]`.
    #[derive(Copy)]
    pub struct MethodSampling in "telemetry.sampling.methods[]" {
        /// The method.
        method: Method = Method::Other, MethodName, or required like "\"PullImage\"" => live;
        /// Share of these calls. Calls of a sampled episode become spans regardless.
        ratio: Option<f64> = None, Maybe(Ratio), or "`mutating` or `polls`" like "1.0" => live;
        /// A call that took longer than this is slow.
        slow: Option<Duration> = None, Maybe(Span::between(ms(1), secs(3600))),
            or "that of `telemetry.sampling`; a call that stays open as long as its caller wants is never slow"
            like "\"30s\"" => live;
    }
}

fn methods(reader: &mut Reader<'_>) -> Vec<MethodSampling> {
    let mut lines: HashMap<&str, usize> = HashMap::new();
    let mut rows = Vec::new();
    for row in reader.rows("telemetry.sampling", "methods") {
        let key = &MethodSampling::method;
        rows.push(MethodSampling::read_at(reader, &row));
        let Some(given) = reader.given(&row, key) else {
            continue;
        };
        let method = given.value.name();
        if let Some(line) = lines.get(method) {
            let problem = format!("{method} already has a row on line {line}");
            reader.fail_at(&row, key, Problem::Conflict(problem));
        } else if let Place::Line { line, .. } = given.place {
            lines.insert(method, line);
        }
    }
    rows
}
