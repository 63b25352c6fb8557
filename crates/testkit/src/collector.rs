//! An OpenTelemetry collector that stores all spans, metrics and log records, or misbehaves; over gRPC or HTTP, with or without TLS.

mod listed;

use std::convert::Infallible;
use std::future::pending;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{BufMut as _, Bytes, BytesMut};
use flate2::read::GzDecoder;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tonic::codegen::Service as _;
use tonic::{Request, Response, Status};

use self::listed::{assert_records_listed, assert_spans_listed, take_jobs};
use crate::lock;
use crate::pki::{Pair, server_config};
use crate::proxy::free_port;
use crate::until;

/// How a collector answers an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Takes,
    /// `INVALID_ARGUMENT`, which is not retryable.
    Refuses,
    /// Never.
    Hangs,
    /// Successfully, but only counts the spans.
    Counts,
}

/// What a collector speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wire {
    #[default]
    Grpc,
    /// Protobuf over HTTP/1.1.
    Http,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    pub path: String,
    pub headers: HeaderMap,
    /// As it was sent, with the frame of gRPC.
    pub body: Bytes,
}

struct Shared {
    manner: Mutex<Manner>,
    wire: Wire,
    tls: Option<TlsAcceptor>,
    requests: Mutex<Vec<ExportTraceServiceRequest>>,
    jobs: Mutex<Vec<Span>>,
    metrics: Mutex<Vec<ExportMetricsServiceRequest>>,
    logs: Mutex<Vec<ExportLogsServiceRequest>>,
    seen: Mutex<Vec<Seen>>,
    spans: AtomicUsize,
}

/// A collector. Dropping it stops it.
pub struct Collector {
    address: SocketAddr,
    shared: Arc<Shared>,
    running: Mutex<Option<CancellationToken>>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Collector {
    pub async fn new(manner: Manner) -> Self {
        let collector = Self::absent(manner);
        collector.start().await;
        collector
    }

    /// A collector whose address is reserved, but which does not listen yet.
    pub fn absent(manner: Manner) -> Self {
        Self::speaking(manner, Wire::Grpc, None)
    }

    /// A collector over plain HTTP.
    pub async fn http(manner: Manner) -> Self {
        let collector = Self::speaking(manner, Wire::Http, None);
        collector.start().await;
        collector
    }

    /// A collector with TLS, which requires certificates of `clients` if there are any.
    pub async fn tls(wire: Wire, pair: &Pair, clients: Option<&Path>) -> Self {
        let protocol: &[u8] = match wire {
            Wire::Grpc => b"h2",
            Wire::Http => b"http/1.1",
        };
        let tls = TlsAcceptor::from(server_config(pair, clients, protocol));
        let collector = Self::speaking(Manner::Takes, wire, Some(tls));
        collector.start().await;
        collector
    }

    fn speaking(manner: Manner, wire: Wire, tls: Option<TlsAcceptor>) -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], free_port())),
            shared: Arc::new(Shared {
                manner: Mutex::new(manner),
                wire,
                tls,
                requests: Mutex::default(),
                jobs: Mutex::default(),
                metrics: Mutex::default(),
                logs: Mutex::default(),
                seen: Mutex::default(),
                spans: AtomicUsize::new(0),
            }),
            running: Mutex::default(),
        }
    }

    /// Starts listening.
    pub async fn start(&self) {
        let listener = until("the collector's port", || async {
            TcpListener::bind(self.address).await.ok()
        })
        .await;
        let stop = CancellationToken::new();
        *lock(&self.running) = Some(stop.clone());
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            loop {
                let stream = tokio::select! {
                    () = stop.cancelled() => return,
                    accepted = listener.accept() => accepted.expect("accept").0,
                };
                let serving = serve(stream, Arc::clone(&shared));
                tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
            }
        });
    }

    /// Closes every connection and stops listening.
    pub fn stop(&self) {
        if let Some(stop) = lock(&self.running).take() {
            stop.cancel();
        }
    }

    pub fn endpoint(&self) -> String {
        let scheme = match self.shared.tls {
            Some(_) => "https",
            None => "http",
        };
        format!("{scheme}://{}", self.address)
    }

    /// All requests.
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    /// The number of accepted spans.
    pub fn count(&self) -> usize {
        self.shared.spans.load(Ordering::Relaxed)
    }

    /// The accepted requests, without the spans of background jobs.
    pub fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        lock(&self.shared.requests).clone()
    }

    /// The accepted readings of metrics.
    pub fn metrics(&self) -> Vec<ExportMetricsServiceRequest> {
        lock(&self.shared.metrics).clone()
    }

    /// The accepted log records. Each attribute must be one of criscope or of the conventions.
    pub fn logs(&self) -> Vec<ExportLogsServiceRequest> {
        let requests = lock(&self.shared.logs).clone();
        requests.iter().for_each(assert_records_listed);
        requests
    }

    /// The accepted spans, without those of background jobs. criscope's own must have attributes of its table only.
    pub fn spans(&self) -> Vec<Span> {
        let requests = self.requests();
        requests.iter().for_each(assert_spans_listed);
        let resources = requests.into_iter().flat_map(|r| r.resource_spans);
        let scopes = resources.flat_map(|r| r.scope_spans);
        scopes.flat_map(|s| s.spans).collect()
    }

    /// Waits for at least `n` spans, and returns all of them.
    pub async fn wait_spans(&self, n: usize) -> Vec<Span> {
        until("spans at the collector", || async {
            let spans = self.spans();
            (spans.len() >= n).then_some(spans)
        })
        .await
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    match shared.tls.clone() {
        None => speak(stream, shared).await,
        // The client reports failed handshakes.
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                speak(stream, shared).await;
            }
        }
    }
}

/// The client reports broken connections.
async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, shared: Arc<Shared>) {
    let stream = TokioIo::new(stream);
    match shared.wire {
        Wire::Grpc => {
            let service = service_fn(move |request| over_grpc(request, Arc::clone(&shared)));
            let builder = http2::Builder::new(TokioExecutor::new());
            drop(builder.serve_connection(stream, service).await);
        }
        Wire::Http => {
            let service = service_fn(move |request| over_http(request, Arc::clone(&shared)));
            let builder = http1::Builder::new();
            drop(builder.serve_connection(stream, service).await);
        }
    }
}

async fn over_grpc(
    request: http::Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<http::Response<tonic::body::Body>, Infallible> {
    let (mut head, body) = received(request, &shared).await;
    let is_packed = head.headers.remove("grpc-encoding").is_some();
    let body = match body.first() {
        Some(1) if is_packed => {
            let message = unpacked(&body[5..]);
            let mut framed = BytesMut::new();
            framed.put_u8(0);
            framed.put_u32(u32::try_from(message.len()).expect("small"));
            framed.put_slice(&message);
            framed.freeze()
        }
        _ => body,
    };
    let request = http::Request::from_parts(head, Full::new(body));
    let receiver = Receiver(shared);
    match request.uri().path().split('.').nth(3) {
        Some("metrics") => MetricsServiceServer::new(receiver).call(request).await,
        Some("logs") => LogsServiceServer::new(receiver).call(request).await,
        _ => TraceServiceServer::new(receiver).call(request).await,
    }
}

async fn over_http(
    request: http::Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<http::Response<Full<Bytes>>, Infallible> {
    let (head, body) = received(request, &shared).await;
    let body = if head.headers.contains_key("content-encoding") {
        unpacked(&body).into()
    } else {
        body
    };
    let receiver = Receiver(shared);
    let answer = match head.uri.path() {
        "/v1/metrics" => {
            let request = ExportMetricsServiceRequest::decode(body).expect("a request");
            let answer = MetricsService::export(&receiver, Request::new(request)).await;
            answer.map(|answer| answer.into_inner().encode_to_vec())
        }
        "/v1/logs" => {
            let request = ExportLogsServiceRequest::decode(body).expect("a request");
            let answer = LogsService::export(&receiver, Request::new(request)).await;
            answer.map(|answer| answer.into_inner().encode_to_vec())
        }
        _ => {
            let request = ExportTraceServiceRequest::decode(body).expect("a request");
            let answer = TraceService::export(&receiver, Request::new(request)).await;
            answer.map(|answer| answer.into_inner().encode_to_vec())
        }
    };
    let (status, body) = match answer {
        Ok(answer) => (StatusCode::OK, answer),
        Err(_) => (StatusCode::BAD_REQUEST, Vec::new()),
    };
    let mut response = http::Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    Ok(response)
}

async fn received(
    request: http::Request<Incoming>,
    shared: &Shared,
) -> (http::request::Parts, Bytes) {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes());
    let body = body.unwrap_or_default();
    lock(&shared.seen).push(Seen {
        path: head.uri.path().to_owned(),
        headers: head.headers.clone(),
        body: body.clone(),
    });
    (head, body)
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut unpacked = Vec::new();
    let read = GzDecoder::new(bytes).read_to_end(&mut unpacked);
    read.expect("gzip");
    unpacked
}

struct Receiver(Arc<Shared>);

impl Receiver {
    /// Answers a request that is not one with spans.
    async fn answer<A: Default>(&self, store: impl FnOnce(&Shared)) -> Result<Response<A>, Status> {
        let manner = *lock(&self.0.manner);
        match manner {
            Manner::Takes => store(&self.0),
            Manner::Counts => {}
            Manner::Refuses => return Err(Status::invalid_argument("no")),
            Manner::Hangs => pending().await,
        }
        Ok(Response::new(A::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Receiver {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let store = |shared: &Shared| lock(&shared.metrics).push(request.into_inner());
        self.answer(store).await
    }
}

#[tonic::async_trait]
impl LogsService for Receiver {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        let store = |shared: &Shared| lock(&shared.logs).push(request.into_inner());
        self.answer(store).await
    }
}

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let manner = *lock(&self.0.manner);
        match manner {
            Manner::Takes | Manner::Counts => {
                let mut request = request.into_inner();
                let jobs = take_jobs(&mut request);
                lock(&self.0.jobs).extend(jobs);
                let scopes = request.resource_spans.iter().flat_map(|r| &r.scope_spans);
                let spans = scopes.map(|scope| scope.spans.len()).sum();
                self.0.spans.fetch_add(spans, Ordering::Relaxed);
                if manner == Manner::Takes && spans > 0 {
                    lock(&self.0.requests).push(request);
                }
                Ok(Response::new(ExportTraceServiceResponse::default()))
            }
            Manner::Refuses => Err(Status::invalid_argument("no")),
            Manner::Hangs => pending().await,
        }
    }
}

/// The value of an attribute as text, lists joined by commas.
pub fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|a| a.key == key)?;
    found.value.as_ref().map(show)
}

fn show(value: &AnyValue) -> String {
    match value.value.as_ref().expect("a value") {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(n) => n.to_string(),
        Value::BoolValue(b) => b.to_string(),
        Value::DoubleValue(n) => n.to_string(),
        Value::ArrayValue(list) => list.values.iter().map(show).collect::<Vec<_>>().join(","),
        other => panic!("unexpected attribute value: {other:?}"),
    }
}
