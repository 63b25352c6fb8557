//! Spans, metrics and log lines at a real collector, over OTLP by gRPC and HTTP.

mod context;
mod episodes;
mod losses;
mod other_signals;
mod spans;
mod tls;

use opentelemetry_proto::tonic::trace::v1::Span;

use crate::harness::collector::attribute;
use crate::prelude::*;

/// Takes no call for slow, so that none is exported because the machine has much to do.
const FAST: &str = "[telemetry.sampling]\nslow = \"60s\"\n";

/// A criscope that sends spans to this collector soon after they end.
async fn proxy(fake: &Fake, collector: &Collector, more: &str) -> Proxy {
    start(fake, collector, more).ready().await
}

fn start(fake: &Fake, collector: &Collector, more: &str) -> Start {
    let config = format!(
        "[telemetry.otlp]\nendpoint = \"{}\"\n{more}",
        collector.endpoint()
    );
    Start::new(crate::CRISCOPE)
        .config(&config)
        .upstream(fake.path())
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
}

/// `SPAN_KIND_INTERNAL`, `SPAN_KIND_SERVER` and `SPAN_KIND_CLIENT` of OTLP.
const INTERNAL: i32 = 1;
const SERVER: i32 = 2;
const CLIENT: i32 = 3;

fn of_kind(spans: &[Span], kind: i32) -> Vec<&Span> {
    spans.iter().filter(|s| s.kind == kind).collect()
}

/// The two spans of the one call with this method.
fn pair<'a>(spans: &'a [Span], method: &str) -> (&'a Span, &'a Span) {
    let name = |s: &&Span| s.name.ends_with(&format!("/{method}"));
    let find = |kind| {
        let mut found = of_kind(spans, kind).into_iter().filter(name);
        let span = found.next().unwrap_or_else(|| panic!("no {method}"));
        assert!(found.next().is_none(), "one {method} only");
        span
    };
    (find(SERVER), find(CLIENT))
}

/// Asserts on attributes, each given as text; `None` is for one that must not be there.
fn assert_attributes(span: &Span, wanted: &[(&str, Option<&str>)]) {
    for (key, value) in wanted {
        let got = attribute(&span.attributes, key);
        assert_eq!(got.as_deref(), *value, "{key} of {}", span.name);
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|b| format!("{b:02x}")).collect()
}
