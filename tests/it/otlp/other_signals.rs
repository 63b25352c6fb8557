//! Metrics and log lines at a collector: only if that is asked for, and the same as a scrape and the log have.

use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point::Value};

use super::{hex, start};
use crate::harness::collector::attribute;
use crate::prelude::*;

const CALLS: usize = 3;

async fn call(proxy: &Proxy) {
    let client = proxy.client().await;
    for _ in 0..CALLS {
        let got = client.call(Call::plain("StopContainer")).await;
        assert_eq!(got.code(), 0, "{got:?}");
    }
}

/// The metrics of the newest reading, by name.
fn newest(collector: &Collector) -> BTreeMap<String, Metric> {
    let readings = collector.metrics().into_iter().next_back();
    let resources = readings.into_iter().flat_map(|it| it.resource_metrics);
    let scopes = resources.flat_map(|it| it.scope_metrics);
    let metrics = scopes.flat_map(|it| it.metrics);
    metrics.map(|it| (it.name.clone(), it)).collect()
}

/// The value of a counter's series with this method.
fn counted(metrics: &BTreeMap<String, Metric>, name: &str, method: &str) -> Option<f64> {
    let Some(metric::Data::Sum(sum)) = metrics.get(name)?.data.as_ref() else {
        return None;
    };
    assert!(sum.is_monotonic);
    let is_it = |labels: &[_]| attribute(labels, "method").as_deref() == Some(method);
    let mut points = sum.data_points.iter();
    match points.find(|point| is_it(&point.attributes))?.value? {
        Value::AsDouble(value) => Some(value),
        Value::AsInt(_) => None,
    }
}

/// Log records with the name of an event, and the scope of each.
fn records(collector: &Collector, event: &str) -> Vec<(String, LogRecord)> {
    let requests = collector.logs().into_iter();
    let scopes = requests
        .flat_map(|it| it.resource_logs)
        .flat_map(|it| it.scope_logs);
    let records = scopes.flat_map(|scope| {
        let name = scope.scope.expect("a scope").name;
        let records = scope.log_records.into_iter();
        records.map(move |record| (name.clone(), record))
    });
    records.filter(|(_, it)| it.event_name == event).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_pushed_as_they_are_scraped() {
    let fake = Fake::new();
    let collector = Collector::http(Manner::Takes).await;
    let more = "protocol = \"http/protobuf\"\nmetrics = true\nmetrics_interval = \"1s\"\n";
    let proxy = start(&fake, &collector, more).ready().await;
    call(&proxy).await;
    let pushed = until("the calls in a push", || async {
        let metrics = newest(&collector);
        let calls = counted(&metrics, "criscope_rpc_total", "StopContainer")?;
        (calls >= CALLS as f64).then_some(metrics)
    })
    .await;
    let Some(metric::Data::Histogram(calls)) = &pushed["criscope_rpc_duration_seconds"].data else {
        panic!("a histogram");
    };
    assert_eq!(pushed["criscope_rpc_duration_seconds"].unit, "s");
    let stops = calls.data_points.iter();
    let mut stops =
        stops.filter(|it| attribute(&it.attributes, "method").as_deref() == Some("StopContainer"));
    let stop = stops.next().expect("its series");
    assert_eq!(stop.count as usize, CALLS);
    assert_eq!(stop.bucket_counts.iter().sum::<u64>() as usize, CALLS);
    assert_eq!(stop.bucket_counts.len(), stop.explicit_bounds.len() + 1);
    assert!(!stop.exemplars.is_empty(), "the traces are exported");
    let scrape = proxy.scrape().await;
    for (name, metric) in &pushed {
        let series = match metric.data {
            Some(metric::Data::Histogram(_)) => format!("{name}_count"),
            _ => name.clone(),
        };
        assert!(!scrape.metric(&series).is_empty(), "{name} is scraped too");
    }
    assert!(collector.seen().iter().any(|it| it.path == "/v1/metrics"));
    assert!(collector.logs().is_empty(), "they are off");
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn log_lines_become_records_of_their_trace() {
    let fake = Fake::new();
    let collector = Collector::new(Manner::Takes).await;
    let proxy = start(&fake, &collector, "logs = true\n")
        .env("OTEL_BLRP_SCHEDULE_DELAY", "50")
        .ready()
        .await;
    call(&proxy).await;
    let calls = until("the records of the calls", || async {
        let calls = records(&collector, "rpc.end");
        (calls.len() >= CALLS).then_some(calls)
    })
    .await;
    let spans = collector.wait_spans(2 * CALLS).await;
    for (scope, record) in &calls {
        assert!(scope.starts_with("criscope::"), "{scope}");
        assert_eq!(
            (record.severity_number, &*record.severity_text),
            (9, "INFO")
        );
        assert!(record.body.is_some());
        let method = attribute(&record.attributes, "rpc.method");
        assert_eq!(
            method.as_deref(),
            Some("runtime.v1.RuntimeService/StopContainer")
        );
        let is_it = |id: &[u8]| hex(id) == hex(&record.span_id);
        let span = spans.iter().find(|span| is_it(&span.span_id));
        let span = span.expect("its span");
        assert_eq!(hex(&span.trace_id), hex(&record.trace_id));
    }
    assert!(collector.metrics().is_empty(), "they are off");
    // The last lines arrive too.
    proxy.stop().await;
    assert_eq!(records(&collector, "stopping").len(), 1);
}

/// What cannot be exported is counted, and the log has it all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_refuses_costs_no_line_and_no_call() {
    let fake = Fake::new();
    let collector = Collector::new(Manner::Refuses).await;
    let more = "metrics = true\nmetrics_interval = \"1s\"\nlogs = true\n";
    let proxy = start(&fake, &collector, more)
        .env("OTEL_BLRP_SCHEDULE_DELAY", "50")
        .ready()
        .await;
    call(&proxy).await;
    let lost = |scrape: &Scrape, signal| {
        let all = scrape.metric("criscope_telemetry_dropped_total");
        all.with("signal", signal)
            .with("reason", "export_failed")
            .sum()
    };
    proxy
        .wait_scrape("both losses", |scrape| {
            lost(scrape, "log") >= CALLS as f64 && lost(scrape, "metric") >= 1.0
        })
        .await;
    proxy.wait_event("telemetry.dropped").await;
    proxy.stop().await;
}
