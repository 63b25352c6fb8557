//! The OTLP receiver: the runtime's spans are received, attributed, and forwarded unchanged.

use std::io::Write;
use std::net::SocketAddr;

use bytes::Bytes;
use criscope::cri::v1;
use criscope::lifecycle::view::PodStory;
use flate2::Compression;
use flate2::write::GzEncoder;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message;
use tokio::net::TcpStream;
use tonic::transport::Channel;

use crate::harness::client::Call;
use crate::harness::collector::{Collector, Manner, Wire};
use crate::harness::fake::{Fake, Seen};
use crate::harness::pki::Authority;
use crate::harness::proxy::{Proxy, Start, free_port};
use crate::harness::scrape::Scrape;
use crate::harness::{encode, message, message_with, soon, until};

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

struct Receiving {
    proxy: Proxy,
    address: SocketAddr,
}

async fn receiving(fake: &Fake, more: &str) -> Receiving {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let config = format!("{more}[receiver]\nlisten = \"{address}\"\n");
    let proxy = Start::before(crate::CRISCOPE, fake)
        .config(&config)
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
        .ready()
        .await;
    Receiving { proxy, address }
}

fn otlp(collector: &Collector) -> String {
    format!(
        "[telemetry.otlp]\nendpoint = \"{}\"\n",
        collector.endpoint()
    )
}

/// Makes a call; returns the trace and span ids that the runtime got with it.
async fn told(proxy: &Proxy, fake: &Fake) -> (Vec<u8>, Vec<u8>) {
    let client = proxy.client().await;
    assert_eq!(client.call(Call::plain("RunPodSandbox")).await.code(), 0);
    parent(&fake.take(|_| true).remove(0))
}

fn parent(seen: &Seen) -> (Vec<u8>, Vec<u8>) {
    let parent = seen.headers.get("traceparent").expect("a traceparent");
    let parts: Vec<_> = parent.to_str().expect("text").split('-').collect();
    assert_eq!(parts[3], "01", "the sampled flag is set");
    (unhex(parts[1]), unhex(parts[2]))
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = (0..text.len()).step_by(2);
    digits
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex"))
        .collect()
}

fn span(trace: &[u8], id: u8, parent: &[u8], name: &str) -> Span {
    let secret = KeyValue {
        key: "token".into(),
        value: Some(AnyValue {
            value: Some(Value::StringValue("hunter2".into())),
        }),
        ..KeyValue::default()
    };
    Span {
        trace_id: trace.to_vec(),
        span_id: vec![id; 8],
        parent_span_id: parent.to_vec(),
        name: name.into(),
        kind: 2,
        start_time_unix_nano: 1,
        end_time_unix_nano: 2,
        attributes: vec![secret],
        ..Span::default()
    }
}

fn request(spans: Vec<Span>) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            scope_spans: vec![ScopeSpans {
                spans,
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    }
}

fn received(scrape: &Scrape, result: &str) -> f64 {
    let all = scrape.metric("criscope_receiver_spans_total");
    all.with("result", result).sum()
}

async fn client(address: SocketAddr) -> TraceServiceClient<Channel> {
    let endpoint = Channel::from_shared(format!("http://{address}")).expect("uri");
    TraceServiceClient::new(endpoint.connect().await.expect("connect"))
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_are_attributed_and_forwarded_unchanged() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = Fake::new();
    let all = receiving(&fake, &otlp(&collector)).await;
    let (trace, client_span) = told(&all.proxy, &fake).await;
    let ours = collector.wait_spans(2).await.len();
    // Children first, as exporters send them, and one unrelated span.
    let first = request(vec![
        span(&trace, 2, &[1; 8], "cni.setup_pod_network"),
        span(&[9; 16], 8, &[], "gc"),
    ]);
    let second = request(vec![span(
        &trace,
        1,
        &client_span,
        "runtime.v1.RuntimeService/RunPodSandbox",
    )]);
    let mut exporter = client(all.address).await;
    for request in [&first, &second] {
        let mut request = tonic::Request::new(request.clone());
        request
            .metadata_mut()
            .insert("x-token", "for-the-collector".parse().expect("value"));
        exporter.export(request).await.expect("taken");
    }
    let scrape = all.proxy.scrape().await;
    assert_eq!(received(&scrape, "attributed"), 2.0);
    assert_eq!(received(&scrape, "unknown"), 1.0);
    assert_eq!(received(&scrape, "dropped"), 0.0);
    collector.wait_spans(ours + 3).await;
    let passed = collector
        .requests()
        .split_off(collector.requests().len() - 2);
    assert_eq!(passed, [first, second]);
    let passed_on = "criscope_receiver_passed_on_total";
    all.proxy
        .wait_scrape("the account", |s| s.metric(passed_on).sum() == 3.0)
        .await;
    let log = all.proxy.stop().await.join("\n");
    assert!(
        !log.contains("hunter2") && !log.contains("for-the-collector"),
        "{log}"
    );
}

/// Over HTTP the message is the same, without the frame of gRPC.
#[tokio::test(flavor = "multi_thread")]
async fn spans_are_forwarded_over_http_with_tls() {
    let authority = Authority::new();
    let pair = authority.server("collector");
    let collector = Collector::tls(Wire::Http, &pair, None).await;
    let otlp = format!(
        "{}protocol = \"http/protobuf\"\ntls_ca = \"{}\"\n",
        otlp(&collector),
        authority.ca().display()
    );
    let fake = Fake::new();
    let all = receiving(&fake, &otlp).await;
    let sent = request(vec![span(&[9; 16], 8, &[], "gc")]);
    let body = sent.encode_to_vec();
    let packed = message_with(1, &gzip(&body));
    assert_eq!(post(all.address, EXPORT, None, message(&body)).await, 0);
    assert_eq!(post(all.address, EXPORT, Some("gzip"), packed).await, 0);
    collector.wait_spans(2).await;
    assert_eq!(collector.requests(), [sent.clone(), sent]);
    let seen = collector.seen();
    let encodings = seen.iter().map(|s| s.headers.get("content-encoding"));
    let encodings: Vec<_> = encodings.map(|e| e.and_then(|e| e.to_str().ok())).collect();
    assert_eq!(encodings, [None, Some("gzip")]);
    for head in &seen {
        assert_eq!(head.path, "/v1/traces");
        assert_eq!(head.headers["content-type"], "application/x-protobuf");
        assert!(!head.headers.contains_key("te"));
    }
    all.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_of_the_runtime_is_part_of_the_story_of_its_pod() {
    let fake = Fake::new();
    let all = receiving(&fake, "").await;
    let body = encode(&v1::RunPodSandboxRequest {
        config: Some(v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: "web".into(),
                uid: "u1".into(),
                namespace: "shop".into(),
                attempt: 0,
            }),
            ..Default::default()
        }),
        ..Default::default()
    });
    let caller = all.proxy.client().await;
    let call = Call::runtime("RunPodSandbox", body);
    assert_eq!(caller.call(call).await.code(), 0);
    let seen = fake.take(|_| true).remove(0);
    let (trace, client_span) = parent(&seen);
    let spans = vec![
        span(
            &trace,
            1,
            &client_span,
            "runtime.v1.RuntimeService/RunPodSandbox",
        ),
        span(&trace, 2, &[1; 8], "cni.setup_pod_network"),
    ];
    let mut exporter = client(all.address).await;
    exporter.export(request(spans)).await.expect("taken");
    let details = until("the span in the story", || async {
        let (status, text) = all.proxy.get("/debug/pods/shop/web?format=json").await;
        assert_eq!(status, 200, "{text}");
        let story: PodStory = serde_json::from_str(&text).expect("a story");
        let details = story.episodes[0].calls[0].details.clone();
        (!details.is_empty()).then_some(details)
    })
    .await;
    // The runtime's own span of the call would repeat the call.
    let [detail] = &details[..] else {
        panic!("{details:?}")
    };
    assert_eq!(detail.name, "cni.setup_pod_network");
    assert_eq!((&*detail.what, &*detail.source), ("runtime", "span"));
    all.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_collector_trace_context_is_still_propagated() {
    let fake = Fake::new();
    let all = receiving(&fake, "").await;
    let (trace, client_span) = told(&all.proxy, &fake).await;
    let mut exporter = client(all.address).await;
    exporter
        .export(request(vec![span(&trace, 1, &client_span, "x")]))
        .await
        .expect("taken");
    let scrape = all.proxy.scrape().await;
    assert_eq!(received(&scrape, "attributed"), 1.0);
    assert_eq!(
        scrape.metric("criscope_receiver_passed_on_total").sum(),
        0.0
    );
    assert_eq!(scrape.metric("criscope_telemetry_spans_total").sum(), 0.0);
    all.proxy.stop().await;
}

/// Sends a raw body; returns `grpc-status`, or -1 if there is none.
async fn post(address: SocketAddr, path: &str, encoding: Option<&str>, body: Bytes) -> i32 {
    let socket = TcpStream::connect(address).await.expect("connect");
    let (sender, connection) = h2::client::handshake(socket).await.expect("handshake");
    let connection = tokio::spawn(connection);
    let mut request = http::Request::post(format!("http://{address}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(encoding) = encoding {
        request = request.header("grpc-encoding", encoding);
    }
    let mut sender = sender.ready().await.expect("ready");
    let request = request.body(()).expect("request");
    let (response, mut stream) = sender.send_request(request, false).expect("send");
    stream.send_data(body, true).expect("data");
    let status = |headers: &http::HeaderMap| -> Option<i32> {
        headers.get("grpc-status")?.to_str().ok()?.parse().ok()
    };
    let (head, mut body) = soon("an answer", response)
        .await
        .expect("head")
        .into_parts();
    while let Some(data) = body.data().await {
        let len = data.expect("data").len();
        body.flow_control().release_capacity(len).expect("release");
    }
    let trailers = body.trailers().await.expect("trailers");
    connection.abort();
    trailers
        .as_ref()
        .and_then(status)
        .or_else(|| status(&head.headers))
        .unwrap_or(-1)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("write");
    encoder.finish().expect("finish")
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_and_broken_requests() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = Fake::new();
    let all = receiving(&fake, &otlp(&collector)).await;
    let (trace, client_span) = told(&all.proxy, &fake).await;
    let good = request(vec![span(&trace, 1, &client_span, "x")]).encode_to_vec();
    let address = all.address;
    let packed = message_with(1, &gzip(&good));
    assert_eq!(post(address, EXPORT, Some("gzip"), packed).await, 0);
    let bomb = gzip(&vec![0; 64 << 20]);
    let huge = message(&vec![0; 5 << 20]);
    let broken = [
        (EXPORT, None, message(b"\xff\xff\xff"), 3),
        (EXPORT, None, Bytes::from_static(b"\0\0"), 3),
        (EXPORT, None, Bytes::from_static(b"\0\0\0\0\x09abc"), 3),
        (EXPORT, Some("gzip"), message_with(1, b"no gzip"), 3),
        (EXPORT, Some("zstd"), message_with(1, b"x"), 12),
        (EXPORT, Some("gzip"), message_with(1, &bomb), 8),
        (EXPORT, None, huge, 8),
        (
            "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            None,
            message(b""),
            12,
        ),
    ];
    for (path, encoding, body, want) in broken {
        assert_eq!(
            post(address, path, encoding, body).await,
            want,
            "{path} {encoding:?}"
        );
    }
    let scrape = all.proxy.scrape().await;
    assert_eq!(received(&scrape, "attributed"), 1.0);
    let caller = all.proxy.client().await;
    assert_eq!(caller.call(Call::plain("Status")).await.code(), 0);
    all.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_refused_by_the_collector_are_counted() {
    for manner in [Manner::Refuses, Manner::Hangs] {
        let collector = Collector::new(manner).await;
        let fake = Fake::new();
        let timeout = "timeout = \"200ms\"\n";
        let all = receiving(&fake, &(otlp(&collector) + timeout)).await;
        let mut exporter = client(all.address).await;
        for _ in 0..3 {
            let spans = vec![span(&[9; 16], 8, &[], "gc"); 5];
            exporter.export(request(spans)).await.expect("taken");
        }
        let lost = "criscope_telemetry_dropped_total";
        let scrape = all
            .proxy
            .wait_scrape("every span to be counted", |scrape| {
                scrape.metric(lost).with("signal", "passed_span").sum() == 15.0
            })
            .await;
        assert_eq!(received(&scrape, "unknown"), 15.0);
        assert_eq!(
            scrape.metric("criscope_receiver_passed_on_total").sum(),
            0.0
        );
        all.proxy.stop().await;
    }
}

/// Invariant 3: a flood of spans takes bounded memory, and calls succeed meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_cut_and_counted() {
    let collector = Collector::new(Manner::Hangs).await;
    let fake = Fake::new();
    let all = receiving(&fake, &(otlp(&collector) + "timeout = \"300s\"\n")).await;
    let mut exporter = client(all.address).await;
    let mut big = span(&[9; 16], 8, &[], "gc");
    big.trace_state = "x".repeat(1 << 20);
    for _ in 0..12 {
        exporter
            .export(request(vec![big.clone()]))
            .await
            .expect("taken");
    }
    let lost = |scrape: &Scrape| {
        let all = scrape.metric("criscope_telemetry_dropped_total");
        all.with("signal", "passed_span")
            .with("reason", "queue_full")
            .sum()
    };
    until("lost spans", || async {
        (lost(&all.proxy.scrape().await) >= 4.0).then_some(())
    })
    .await;
    let caller = all.proxy.client().await;
    assert_eq!(caller.call(Call::plain("Status")).await.code(), 0);
    all.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_are_not_forwarded_in_a_loop() {
    let fake = Fake::new();
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let config = format!(
        "[telemetry.otlp]\nendpoint = \"http://{address}\"\n[receiver]\nlisten = \"{address}\"\n"
    );
    let proxy = Start::before(crate::CRISCOPE, &fake)
        .config(&config)
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
        .ready()
        .await;
    proxy.wait_event("receiver.loop").await;
    let all = |scrape: &Scrape| scrape.metric("criscope_receiver_spans_total").sum();
    // It receives its own spans. If it forwarded them, the spans of one call would come before those of the next.
    for _ in 0..5 {
        let before = all(&proxy.scrape().await);
        told(&proxy, &fake).await;
        proxy
            .wait_scrape("its own spans", |scrape| all(scrape) > before)
            .await;
    }
    let passed = proxy.scrape().await;
    let passed = passed.metric("criscope_receiver_passed_on_total").sum();
    assert_eq!(passed, 0.0);
    proxy.stop().await;
}

fn nanos_ago(ms: u64) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.expect("after 1970").as_nanos();
    u64::try_from(now).expect("before 2554") - ms * 1_000_000
}

/// A span of the kubelet 1.36, with its names and attributes, and a secret in one of them and in its error.
fn sync_pod(update: &str, began_ms_ago: u64, ended_ms_ago: u64, error: &str) -> Span {
    let attribute = |key: &str, value: &str| KeyValue {
        key: key.into(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value.into())),
        }),
        ..KeyValue::default()
    };
    Span {
        name: "syncPod".into(),
        kind: 1,
        start_time_unix_nano: nanos_ago(began_ms_ago),
        end_time_unix_nano: nanos_ago(ended_ms_ago),
        attributes: vec![
            attribute("k8s.pod.uid", "u1"),
            attribute("k8s.pod", "shop/web"),
            attribute("k8s.pod.name", "web"),
            attribute("k8s.pod.update_type", update),
            attribute("k8s.namespace.name", "shop"),
            attribute("token", "hunter2"),
        ],
        status: (!error.is_empty()).then(|| Status {
            message: error.into(),
            code: 2,
        }),
        ..span(&[3; 16], 5, &[], "")
    }
}

/// In the scope of the kubelet's pod workers, beside spans of its CRI client.
fn of_kubelet(spans: Vec<Span>) -> ExportTraceServiceRequest {
    let scope = |name: &str| {
        Some(InstrumentationScope {
            name: name.into(),
            ..InstrumentationScope::default()
        })
    };
    let client = "go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc";
    let call = "runtime.v1.RuntimeService/ListPodSandbox";
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            scope_spans: vec![
                ScopeSpans {
                    scope: scope(client),
                    spans: vec![span(&[4; 16], 6, &[], call)],
                    ..ScopeSpans::default()
                },
                ScopeSpans {
                    scope: scope("k8s.io/kubernetes/pkg/kubelet"),
                    spans,
                    ..ScopeSpans::default()
                },
            ],
            ..ResourceSpans::default()
        }],
    }
}

/// Waits for a story whose headline contains this.
async fn story_that_says(proxy: &Proxy, said: &str) -> PodStory {
    until(said, || async {
        let (status, text) = proxy.get("/debug/pods/shop/web?format=json").await;
        assert!(!text.contains("hunter2"), "{text}");
        let story = (status == 200).then(|| serde_json::from_str::<PodStory>(&text));
        story
            .map(|it| it.expect("a story"))
            .filter(|it| it.headline.contains(said))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_of_the_kubelet_are_the_story_of_a_pod_before_its_first_call() {
    let fake = Fake::new();
    let all = receiving(&fake, "").await;
    let mut exporter = client(all.address).await;
    let error = "unmounted volumes=[data], unattached volumes=[], failed to process volumes=[]: hunter2: context deadline exceeded";
    let failed = [(250_000, 127_000), (126_000, 3000)];
    for (began, ended) in failed {
        let spans = of_kubelet(vec![sync_pod("create", began, ended, error)]);
        exporter.export(spans).await.expect("taken");
    }
    let story = story_that_says(&all.proxy, "2 tries").await;
    let said = "kubelet: syncPod failed: volume data is not mounted: <redacted>: context deadline exceeded (2 tries, the last ";
    assert!(story.headline.starts_with(said), "{}", story.headline);
    assert!(story.episodes.is_empty());
    // Then the volume is there, and the sandbox is made, but a secret is missing.
    let body = encode(&v1::RunPodSandboxRequest {
        config: Some(v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: "web".into(),
                uid: "u1".into(),
                namespace: "shop".into(),
                attempt: 0,
            }),
            ..Default::default()
        }),
        ..Default::default()
    });
    let caller = all.proxy.client().await;
    let call = Call::runtime("RunPodSandbox", body);
    assert_eq!(caller.call(call).await.code(), 0);
    let error = r#"failed to "StartContainer" for "app" with CreateContainerConfigError: "secret \"hunter2\" not found""#;
    let spans = of_kubelet(vec![sync_pod("sync", 1500, 0, error)]);
    exporter.export(spans).await.expect("taken");
    let story = story_that_says(&all.proxy, "CreateContainerConfigError of app").await;
    let [episode] = &story.episodes[..] else {
        panic!("{story:?}")
    };
    assert_eq!(episode.cause, "kubelet_sync_failed");
    let last = episode.kubelet.last().expect("its span");
    assert_eq!((&*last.name, last.tries), ("syncPod", 1));
    assert!(last.offset_ms < 0.0 && (last.duration_ms - 1500.0).abs() < 1.0);
    let scrape = all.proxy.scrape().await;
    assert_eq!(received(&scrape, "attributed"), 3.0);
    assert_eq!(received(&scrape, "unknown"), 3.0);
    let log = all.proxy.stop().await.join("\n");
    assert!(!log.contains("hunter2"), "{log}");
}
