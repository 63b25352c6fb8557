//! From a slow bucket to a trace, in a real Prometheus; and the same scrape for who does not ask for OpenMetrics.

use std::collections::BTreeSet;

use criscope::call::episode::Ids;
use criscope::cri::v1;
use criscope::telemetry::openmetrics;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Prometheus, check_with_promtool, series};
use crate::harness::client::Call;
use crate::harness::collector::{Collector, Manner};
use crate::harness::fake::Fake;
use crate::harness::proxy::{Proxy, Start};
use crate::harness::{encode, until};

/// Passes requests on to an HTTP server on loopback, without the header `Accept`. Its port.
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

/// Passes one request on.
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

/// A scrape with this `Accept`: its content type and its text.
async fn scrape(proxy: &Proxy, accept: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.admin_port()))
        .await
        .expect("connect");
    // HTTP/1.0, so that the answer comes in one piece.
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
    // Nothing is exported because the machine has much to do and a call took long.
    let config = format!(
        "[telemetry.otlp]\nendpoint = \"{endpoint}\"\n[telemetry.sampling]\nslow = \"60s\"\n\
         [story]\nquiet = \"100ms\"\n"
    );
    Start::new()
        .config(&config)
        .upstream(fake.path())
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
        .ready()
        .await
}

/// A start of a pod: a sandbox and a container.
fn pod_start() -> [Call; 3] {
    let sandbox = v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "web".into(),
            uid: "u-1".into(),
            namespace: "shop".into(),
            attempt: 0,
        }),
        ..Default::default()
    };
    let run = v1::RunPodSandboxRequest {
        config: Some(sandbox.clone()),
        ..Default::default()
    };
    let create = v1::CreateContainerRequest {
        pod_sandbox_id: "sandbox-1".into(),
        config: Some(v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: "app".into(),
                attempt: 0,
            }),
            ..Default::default()
        }),
        sandbox_config: Some(sandbox),
    };
    let start = v1::StartContainerRequest {
        container_id: "container-1".into(),
    };
    [
        Call::runtime("RunPodSandbox", encode(&run)),
        Call::runtime("CreateContainer", encode(&create)),
        Call::runtime("StartContainer", encode(&start)),
    ]
}

/// A runtime that gives ids.
fn runtime() -> Fake {
    use crate::harness::script;
    let fake = Fake::new();
    fake.on(|head| match head.uri.path().rsplit('/').next() {
        Some("RunPodSandbox") => script::ok(&[encode(&v1::RunPodSandboxResponse {
            pod_sandbox_id: "sandbox-1".into(),
        })]),
        Some("CreateContainer") => script::ok(&[encode(&v1::CreateContainerResponse {
            container_id: "container-1".into(),
        })]),
        _ => script::empty(),
    });
    fake
}

async fn start_pod(proxy: &Proxy) {
    let client = proxy.client().await;
    for call in pod_start() {
        assert_eq!(client.call(call).await.code(), 0);
    }
}

/// The traces that the exemplars of a metric lead to.
async fn traces(prometheus: &Prometheus, metric: &str) -> Option<BTreeSet<String>> {
    let found = prometheus
        .data("query_exemplars", &format!("{metric}_bucket"))
        .await?;
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
    let fake = runtime();
    let proxy = traced(&fake, &collector).await;
    let prometheus = Prometheus::before(&proxy);
    prometheus.wait_sum("up{job=\"criscope\"}", 1.0).await;

    let client = proxy.client().await;
    for _ in 0..20 {
        // Not exported, and so no exemplar.
        client.call(Call::plain("ListContainers")).await;
    }
    start_pod(&proxy).await;
    let trace = Ids::start("u-1", 0).trace_id.to_string();
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
    prometheus.wait_sum("up{job=\"criscope\"}", 1.0).await;
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_ask_for_openmetrics_is_served_as_before() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = runtime();
    let proxy = traced(&fake, &collector).await;
    start_pod(&proxy).await;
    proxy.wait_balanced(3).await;
    // Series come with what they count: between the two scrapes there must be nothing new.
    proxy
        .wait_scrape("the whole start, and its spans", |scrape| {
            let starts = scrape.metric("criscope_pod_start_duration_seconds_count");
            let spans = scrape.metric("criscope_telemetry_spans_total");
            // Two of each call, and the root.
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

    let prometheus = Prometheus::scraping(without_accept(proxy.admin_port()).await);
    prometheus.wait_sum("up{job=\"criscope\"}", 1.0).await;
    // As only the text format writes it.
    let bucket = "criscope_rpc_duration_seconds_bucket{method=\"RunPodSandbox\",le=\"600\"}";
    prometheus.wait_sum(bucket, 1.0).await;
    proxy.stop().await;
}
