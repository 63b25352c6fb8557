//! An OpenTelemetry collector that stores all spans, or misbehaves.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::lock;
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

struct Shared {
    manner: Mutex<Manner>,
    requests: Mutex<Vec<ExportTraceServiceRequest>>,
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
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], free_port())),
            shared: Arc::new(Shared {
                manner: Mutex::new(manner),
                requests: Mutex::default(),
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
        format!("http://{}", self.address)
    }

    /// The number of accepted spans.
    pub fn count(&self) -> usize {
        self.shared.spans.load(Ordering::Relaxed)
    }

    /// The accepted requests.
    pub fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        lock(&self.shared.requests).clone()
    }

    /// The accepted spans.
    pub fn spans(&self) -> Vec<Span> {
        let requests = self.requests();
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
    let service = TowerToHyperService::new(TraceServiceServer::new(Receiver(shared)));
    // The client reports broken connections.
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

struct Receiver(Arc<Shared>);

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let manner = *lock(&self.0.manner);
        match manner {
            Manner::Takes | Manner::Counts => {
                let request = request.into_inner();
                let scopes = request.resource_spans.iter().flat_map(|r| &r.scope_spans);
                let spans = scopes.map(|scope| scope.spans.len()).sum();
                self.0.spans.fetch_add(spans, Ordering::Relaxed);
                if manner == Manner::Takes {
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
