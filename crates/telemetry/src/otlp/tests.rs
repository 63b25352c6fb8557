//! The settings of the exporter, and the exporter against a collector.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use opentelemetry::trace::{SpanKind, Status};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_sdk::trace::SpanData;
use tokio::net::{TcpListener, TcpSocket};
use tracing_subscriber::layer::SubscriberExt as _;

use criscope_settings::SettingsReader;

use super::testing::{Behaviour, Exported, sink};
use super::*;
use crate::TEST_TIMEOUT;
use crate::drops::DropReason;
use crate::job::BackgroundJob;

fn config(endpoint: Option<&str>) -> settings::OtlpSettings {
    settings::OtlpSettings {
        endpoint: endpoint.map(str::to_owned),
        ..settings::OtlpSettings::checked(&mut SettingsReader::empty())
    }
}

/// A collector that stores the requests.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        self.0.lock().expect("lock").push(request.into_inner());
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Serves on an ephemeral port and returns the endpoint.
    async fn serve(&self) -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("bound");
        let address = listener.local_addr().expect("address");
        let service = TowerToHyperService::new(TraceServiceServer::new(self.clone()));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(TokioIo::new(stream), service.clone()));
            }
        });
        format!("http://{address}")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_collector_receives_spans_with_their_resource() {
    let collector = Collector::default();
    let endpoint = collector.serve().await;
    let drops = Arc::new(Drops::default());
    let otlp = OtlpExports::start(&config(Some(&endpoint)), Arc::clone(&drops)).expect("starts");
    let subscriber = tracing_subscriber::registry().with(layer(otlp.tracer().expect("enabled")));
    crate::logging::testing::apart();
    tracing::subscriber::with_default(subscriber, || {
        drop(BackgroundJob::IndexResync.begin());
    });
    otlp.shutdown(TEST_TIMEOUT).await;

    let requests = collector.0.lock().expect("lock");
    let [request] = &requests[..] else {
        panic!("{} requests", requests.len())
    };
    let spans = &request.resource_spans[0];
    let resource = spans.resource.as_ref().expect("resource");
    let keys: Vec<_> = resource.attributes.iter().map(|a| a.key.as_str()).collect();
    for key in [
        "service.name",
        "service.version",
        "service.instance.id",
        "host.name",
        "process.pid",
    ] {
        assert!(keys.contains(&key), "{key} is not in {keys:?}");
    }
    assert_eq!(spans.schema_url, SCHEMA_URL);
    assert_eq!(spans.scope_spans[0].schema_url, SCHEMA_URL);
    let scope = spans.scope_spans[0].scope.as_ref().expect("scope");
    assert_eq!(
        (scope.name.as_str(), scope.version.as_str()),
        ("criscope", env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(spans.scope_spans[0].spans[0].name, "index.resync");
    assert_eq!(drops.exported(), 1);
}

/// With no listener on the port, spans count as failed, and shutdown stays within its limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_unreachable_collector_costs_only_spans() {
    // Bound, so that no other process takes the port.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("bound");
    let endpoint = format!("http://{}", socket.local_addr().expect("address"));
    let drops = Arc::new(Drops::default());
    let otlp = OtlpExports::start(&config(Some(&endpoint)), Arc::clone(&drops)).expect("starts");
    let subscriber = tracing_subscriber::registry().with(layer(otlp.tracer().expect("enabled")));
    crate::logging::testing::apart();
    tracing::subscriber::with_default(subscriber, || {
        drop(BackgroundJob::BackendConnect.begin());
    });
    let before = Instant::now();
    otlp.shutdown(Duration::from_secs(8)).await;
    assert!(before.elapsed() < TEST_TIMEOUT, "{:?}", before.elapsed());
    let lost = drops.count(DropReason::SpanExportFailed) + drops.count(DropReason::SpanShutdown);
    assert_eq!((drops.exported(), lost), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn only_background_jobs_are_exported() {
    let taken = Exported::default();
    let (sink, _) = sink(Behaviour::Take(taken.clone()), 100, TEST_TIMEOUT);
    let provider = SdkTracerProvider::builder()
        .with_span_processor(SinkProcessor(sink.clone()))
        .build();
    let subscriber = tracing_subscriber::registry().with(layer(provider.tracer("criscope")));
    crate::logging::testing::apart();
    tracing::subscriber::with_default(subscriber, || {
        let job = BackgroundJob::IndexResync.begin();
        job.count("criscope.sandboxes", 2);
        job.list("criscope.config.changed", &["a".to_owned()]);
        tracing::info!(target: "criscope::proxy::backend::remote", "an event");
        drop(job);
        let failed = BackgroundJob::ImageImport.begin();
        failed.failed("import", &"é".repeat(200));
        // Spans of libraries and of other code.
        drop(tracing::info_span!(target: "h2::codec", "library").entered());
        drop(tracing::info_span!(target: "criscope::job::other", "other").entered());
    });
    tokio::task::spawn_blocking(move || sink.finish())
        .await
        .expect("finish");
    let spans = taken.lock().expect("lock");
    let [resync, import] = &spans[..] else {
        panic!("{:?}", spans.iter().map(|s| &s.name).collect::<Vec<_>>())
    };
    assert_eq!(
        (&*resync.name, &*import.name),
        ("index.resync", "image.import")
    );
    assert_eq!(
        (&resync.span_kind, &resync.status),
        (&SpanKind::Internal, &Status::Unset)
    );
    assert!(resync.events.is_empty());
    let attributes = |span: &SpanData| -> HashMap<_, _> {
        let all = span.attributes.iter();
        all.map(|a| (a.key.to_string(), a.value.to_string()))
            .collect()
    };
    let wanted = [
        ("criscope.sandboxes", "2"),
        ("criscope.config.changed", "[\"a\"]"),
    ];
    let wanted = wanted.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(attributes(resync), HashMap::from(wanted));
    assert_eq!(attributes(import)["error.type"], "import");
    assert_eq!(import.status, Status::error("é".repeat(128)));
}
