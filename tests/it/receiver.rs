//! The OTLP receiver: the runtime's spans are received, attributed, and forwarded unchanged.

mod admission;
mod forwarding;
mod requests;
mod stories;

use std::io::Write;
use std::net::SocketAddr;

use flate2::Compression;
use flate2::write::GzEncoder;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use tonic::transport::Channel;

use crate::harness::fake::Seen;
use crate::prelude::*;

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

fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value.into())),
        }),
        ..KeyValue::default()
    }
}

/// A span with a secret in an attribute.
fn span(trace: &[u8], id: u8, parent: &[u8], name: &str) -> Span {
    Span {
        trace_id: trace.to_vec(),
        span_id: vec![id; 8],
        parent_span_id: parent.to_vec(),
        name: name.into(),
        kind: 2,
        start_time_unix_nano: 1,
        end_time_unix_nano: 2,
        attributes: vec![attribute("token", "hunter2")],
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

/// Sends a raw body; returns `grpc-status`, or -1 if there is none.
async fn post(address: SocketAddr, path: &str, encoding: Option<&str>, body: Bytes) -> i32 {
    let socket = TcpStream::connect(address).await.expect("connect");
    post_on(socket, path, encoding, body).await
}

/// As [`post`], on a connection.
async fn post_on(socket: TcpStream, path: &str, encoding: Option<&str>, body: Bytes) -> i32 {
    let address = socket.peer_addr().expect("connected");
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
    // A request that is refused at its head may end before its body.
    let _ = stream.send_data(body, true);
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

/// A call that makes the sandbox of the pod `shop/web`.
fn run_pod_sandbox() -> Call {
    let body = encode(&crate::harness::requests::run_pod(
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: "web".into(),
                uid: "u1".into(),
                namespace: "shop".into(),
                attempt: 0,
            }),
            ..Default::default()
        },
        "",
    ));
    Call::runtime("RunPodSandbox", body)
}
