//! From a slow bucket to a trace, in a real Prometheus; and the scrape of clients that do not ask for OpenMetrics.

use criscope::call::episode::Ids;
use criscope::telemetry::openmetrics;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{check_with_promtool, scraping, series, wait_sum};
use crate::prelude::*;

/// Proxies requests to an HTTP server on loopback, without the header `Accept`. Returns its port.
async fn without_accept(to: u16) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("bind");
    let port = listener.local_addr().expect("address").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(pass(stream, to));
        }
    });
    port
}

/// Proxies one request.
async fn pass(mut from: TcpStream, to: u16) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(from.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).expect("text");
    let lines = head.lines().filter(|line| {
        let line = line.to_ascii_lowercase();
        !line.starts_with("accept:") && !line.starts_with("connection:") && !line.is_empty()
    });
    let lines: Vec<_> = lines.collect();
    let request = format!("{}\r\nconnection: close\r\n\r\n", lines.join("\r\n"));
    let mut server = TcpStream::connect(("127.0.0.1", to)).await.ok()?;
    server.write_all(request.as_bytes()).await.ok()?;
    tokio::io::copy(&mut server, &mut from).await.ok()?;
    from.shutdown().await.ok()
}

/// Scrapes with this `Accept`; returns content type and text.
async fn scrape(proxy: &Proxy, accept: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.admin_port()))
        .await
        .expect("connect");
    // HTTP/1.0, so that the response is not chunked.
    let request = format!("GET /metrics HTTP/1.0\r\nhost: localhost\r\naccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("ask");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("http");
    let mut lines = head.lines();
    let kind = lines.find_map(|line| line.strip_prefix("content-type: "));
    (kind.expect("a content type").to_owned(), body.to_owned())
}

async fn traced(fake: &Fake, collector: &Collector) -> Proxy {
    let endpoint = collector.endpoint();
    // Calls that are slow because the machine is busy are not exported.
    let config = format!(
        "[telemetry.otlp]\nendpoint = \"{endpoint}\"\n[telemetry.sampling]\nslow = \"60s\"\n\
         [story]\nquiet = \"100ms\"\n"
    );
    Start::new(crate::CRISCOPE)
        .config(&config)
        .upstream(fake.path())
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
        .ready()
        .await
}

/// The calls of a pod start without a pull.
fn pod_start() -> [Call; 3] {
    let sandbox = pods::config("web");
    [
        pods::run("web"),
        pods::create(sandbox, 0, None),
        pods::start(),
    ]
}

async fn start_pod(proxy: &Proxy) {
    let client = proxy.client().await;
    for call in pod_start() {
        assert_eq!(client.call(call).await.code(), 0);
    }
}

/// The trace ids of a metric's exemplars.
async fn traces(prometheus: &Prometheus, metric: &str) -> Option<BTreeSet<String>> {
    let query = format!("{metric}_bucket");
    let query = [("query", query.as_str())];
    let found = prometheus.api("query_exemplars", &query).await.ok()?;
    let mut traces = BTreeSet::new();
    for series in found.as_array()? {
        for exemplar in series["exemplars"].as_array()? {
            let labels = exemplar["labels"].as_object().expect("labels");
            assert_eq!(labels.len(), 1, "{exemplar}");
            traces.insert(labels["trace_id"].as_str().expect("text").to_owned());
        }
    }
    Some(traces)
}

#[tokio::test(flavor = "multi_thread")]
async fn exemplars_lead_to_traces_that_are_exported() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = pods::runtime();
    let proxy = traced(&fake, &collector).await;
    let prometheus = scraping(proxy.admin_port()).await;
    wait_sum(&prometheus, "up{job=\"criscope\"}", 1.0).await;

    let client = proxy.client().await;
    for _ in 0..20 {
        // Not exported, and so no exemplar.
        client.call(Call::plain("ListContainers")).await;
    }
    start_pod(&proxy).await;
    let trace = Ids::start("uid-web", 0).trace_id.to_string();
    for metric in [
        "criscope_rpc_duration_seconds",
        "criscope_backend_rpc_duration_seconds",
        "criscope_pod_start_duration_seconds",
    ] {
        let traces = until(metric, || async {
            let traces = traces(&prometheus, metric).await?;
            (!traces.is_empty()).then_some(traces)
        })
        .await;
        assert_eq!(traces, BTreeSet::from([trace.clone()]), "{metric}");
    }
    let roots = collector.wait_spans(7).await.into_iter().filter(|span| {
        let id: String = span.trace_id.iter().map(|b| format!("{b:02x}")).collect();
        span.name == "pod.start" && id == trace
    });
    assert_eq!(roots.count(), 1);
    wait_sum(&prometheus, "up{job=\"criscope\"}", 1.0).await;
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_do_not_ask_for_openmetrics_get_the_text_format() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = pods::runtime();
    let proxy = traced(&fake, &collector).await;
    start_pod(&proxy).await;
    proxy.wait_balanced(3).await;
    // Series appear with their first event: nothing new may happen between the two scrapes.
    proxy
        .wait_scrape("the complete start, and its spans", |scrape| {
            let starts = scrape.metric("criscope_pod_start_duration_seconds_count");
            let spans = scrape.metric("criscope_telemetry_spans_total");
            // Two spans per call, and the root.
            starts.sum() == 1.0 && spans.with("decision", "exported").sum() >= 7.0
        })
        .await;

    let (kind, plain) = scrape(&proxy, "*/*").await;
    assert_eq!(kind, "text/plain; version=0.0.4");
    let (kind, open) = scrape(&proxy, "application/openmetrics-text").await;
    assert_eq!(kind, openmetrics::CONTENT_TYPE);
    check_with_promtool(&plain);
    assert!(!plain.contains("trace_id"));
    assert!(open.ends_with("# EOF\n"));
    assert!(open.contains(" # {trace_id=\""));
    assert_eq!(
        series(&open).1.keys().collect::<Vec<_>>(),
        series(&plain).1.keys().collect::<Vec<_>>()
    );

    let prometheus = scraping(without_accept(proxy.admin_port()).await).await;
    wait_sum(&prometheus, "up{job=\"criscope\"}", 1.0).await;
    // In the form of the text format only.
    let bucket = "criscope_rpc_duration_seconds_bucket{method=\"RunPodSandbox\",le=\"600\"}";
    wait_sum(&prometheus, bucket, 1.0).await;
    proxy.stop().await;
}
