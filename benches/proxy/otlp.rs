//! Where criscope's spans go: an OTLP/gRPC receiver on loopback that decodes and counts them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::server::conn::http2::Builder;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tokio::net::TcpListener;
use tonic::{Request, Response, Status};

use crate::error::{IoContext, Result};
use crate::server_thread::ServerThread;

/// The receiver; runs until dropped.
pub(crate) struct Sink {
    address: SocketAddr,
    spans: Arc<AtomicU64>,
    _server: ServerThread,
}

impl Sink {
    /// Starts it on a free port.
    ///
    /// # Errors
    /// When no port or thread is to be had.
    pub(crate) fn start() -> Result<Self> {
        let doing = || "opening a port for the OTLP receiver".to_owned();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).during(doing)?;
        listener.set_nonblocking(true).during(doing)?;
        let address = listener.local_addr().during(doing)?;
        let spans = Arc::new(AtomicU64::new(0));
        let counter = Counter(Arc::clone(&spans));
        let server = ServerThread::start("otlp", move || serve(listener, counter))?;
        Ok(Self {
            address,
            spans,
            _server: server,
        })
    }

    /// For `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many spans came so far.
    pub(crate) fn spans(&self) -> u64 {
        self.spans.load(Ordering::Relaxed)
    }
}

async fn serve(listener: std::net::TcpListener, counter: Counter) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    let service = TraceServiceServer::new(counter);
    while let Ok((stream, _)) = listener.accept().await {
        let connection = Builder::new(TokioExecutor::new()).serve_connection(
            TokioIo::new(stream),
            TowerToHyperService::new(service.clone()),
        );
        tokio::spawn(connection);
    }
}

#[derive(Clone)]
struct Counter(Arc<AtomicU64>);

#[tonic::async_trait]
impl TraceService for Counter {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> std::result::Result<Response<ExportTraceServiceResponse>, Status> {
        let spans: usize = request
            .get_ref()
            .resource_spans
            .iter()
            .flat_map(|resource| &resource.scope_spans)
            .map(|scope| scope.spans.len())
            .sum();
        self.0.fetch_add(spans as u64, Ordering::Relaxed);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}
