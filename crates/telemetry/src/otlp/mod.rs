//! Exports spans to an OpenTelemetry collector over OTLP, by gRPC or HTTP, with or without TLS. Off unless an endpoint is set.
//! Metrics and log lines only if that is asked for.
//!
//! Spans of calls are built when a call ends and passed to [`SpanSink`]. Spans of background work (target `criscope`,
//! level info or above) come from [`layer`] and use the same sink.
//!
//! What the configuration does not set is taken from the standard `OTEL_*` variables ([`variables`]); `docs/OTLP.md` lists
//! them. Resource attributes, service name and batch limits (`OTEL_BSP_*`) come from the environment only.

mod alert;
mod client;
mod collector;
mod delivery;
mod exporter;
mod metrics;
pub(super) mod records;
mod resource;
mod sink;
mod tls;
pub mod variables;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_proto::tonic::resource::v1 as proto;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchConfigBuilder, SdkTracer, SdkTracerProvider};
use opentelemetry_semantic_conventions::SCHEMA_URL;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Subscriber;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

pub use self::client::{Client, Export, SendError};
pub use self::collector::{Collector, CollectorError, HeadersError, Signal};
use self::exporter::Exporter;
use self::metrics::MetricsPush;
use self::records::LogExport;
pub use self::records::LogQueue;
pub use self::sink::SpanSink;
use self::sink::{ForProvider, Limits};
pub use self::tls::TlsError;
use self::variables::{Variables, of_process};
use super::drops::Drops;
use super::registry::Registry;
use super::settings;

#[cfg(any(test, feature = "test-util"))]
pub use self::sink::testing;

/// The files of the certificate that is shown to collectors, and of its key; `None` if no collector has TLS.
pub fn client_certificate(config: &settings::Otlp) -> Option<(PathBuf, PathBuf)> {
    let signals = [Signal::Traces, Signal::Metrics, Signal::Logs];
    let mut collectors = signals
        .into_iter()
        .filter_map(|signal| Collector::of(config, signal).ok().flatten());
    collectors.find_map(|collector| collector.tls?.client)
}

/// How long the last metrics and log records may take.
const LAST: Duration = Duration::from_secs(2);

/// A running export.
#[derive(Debug)]
pub struct Otlp {
    spans: Option<(SpanSink, SdkTracerProvider)>,
    logs: Option<LogQueue>,
    metrics: Option<Collector>,
    every: Duration,
    resource: ResourceAttributesWithSchema,
    drops: Arc<Drops>,
    /// Ends the exports of metrics and logs.
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Otlp {
    /// Starts the exports whose endpoint is set in the configuration or the environment. Connects when there is something to
    /// send, and reconnects as needed.
    ///
    /// Call it on the runtime that drives the connections, and [`Otlp::shutdown`] before that runtime ends.
    ///
    /// # Errors
    /// If an endpoint cannot be used. Log it and go on: a proxy without traces is better than none.
    pub fn start(config: &settings::Otlp, drops: Arc<Drops>) -> Result<Self, CollectorError> {
        let of = |signal| Collector::of(config, signal);
        let (traces, metrics, logs) =
            (of(Signal::Traces)?, of(Signal::Metrics)?, of(Signal::Logs)?);
        let resource = resource::resource(&of_process);
        let mut otlp = Self {
            spans: None,
            logs: None,
            metrics,
            every: config.metrics_interval,
            resource: (&resource).into(),
            drops,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        otlp.spans = traces.map(|collector| otlp.spans(collector, resource));
        otlp.logs = logs.map(|collector| otlp.logs(collector));
        Ok(otlp)
    }

    fn spans(&self, collector: Collector, resource: Resource) -> (SpanSink, SdkTracerProvider) {
        let exporter = Exporter::new(collector, Handle::current());
        let pending = number("OTEL_BSP_MAX_QUEUE_SIZE").map_or(2048, |n| n.min(1 << 16) as usize);
        let limits = Limits {
            pending,
            export: Duration::from_millis(number("OTEL_BSP_EXPORT_TIMEOUT").unwrap_or(30_000)),
        };
        // The builder reads the delay and the batch size from the environment itself.
        let batch = BatchConfigBuilder::default()
            .with_max_queue_size(pending)
            .build();
        let sink = SpanSink::start(
            exporter,
            &resource,
            batch,
            &limits,
            Handle::current(),
            Arc::clone(&self.drops),
        );
        let provider = SdkTracerProvider::builder()
            .with_resource(resource)
            .with_span_processor(ForProvider(sink.clone()))
            .build();
        (sink, provider)
    }

    fn logs(&self, collector: Collector) -> LogQueue {
        let size = |name, usual: u64| number(name).unwrap_or(usual).min(1 << 16) as usize;
        let limits = records::Limits {
            queue: size("OTEL_BLRP_MAX_QUEUE_SIZE", 2048),
            batch: size("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", 512),
            delay: Duration::from_millis(number("OTEL_BLRP_SCHEDULE_DELAY").unwrap_or(1000)),
        };
        let drops = Arc::clone(&self.drops);
        let (queue, export) = LogExport::new(limits, collector, self.resource(), drops);
        self.tasks.spawn(export.run(self.stop.clone()));
        queue
    }

    /// The resource of metrics and logs, and its schema.
    fn resource(&self) -> (proto::Resource, String) {
        let resource = proto::Resource {
            attributes: self.resource.attributes.0.clone(),
            ..proto::Resource::default()
        };
        (
            resource,
            self.resource.schema_url.clone().unwrap_or_default(),
        )
    }

    /// Returns the sink for finished spans.
    pub fn sink(&self) -> Option<SpanSink> {
        self.spans.as_ref().map(|(sink, _)| sink.clone())
    }

    /// Returns the tracer for [`layer`].
    pub fn tracer(&self) -> Option<SdkTracer> {
        let (_, provider) = self.spans.as_ref()?;
        Some(provider.tracer_with_scope(scope()))
    }

    /// Returns the queue of log records.
    pub fn records(&self) -> Option<LogQueue> {
        self.logs.clone()
    }

    /// Begins to push these metrics, if that is asked for.
    pub fn push_metrics(&mut self, registry: &Arc<Registry>) {
        let Some(collector) = self.metrics.take() else {
            return;
        };
        let (resource, schema_url) = self.resource();
        let push = MetricsPush {
            registry: Arc::clone(registry),
            collector,
            resource,
            schema_url,
            every: self.every,
            drops: Arc::clone(&self.drops),
        };
        self.tasks.spawn(push.run(self.stop.clone()));
    }

    /// Stops accepting spans and sends what is pending, for at most `limit`.
    pub async fn shutdown(self, limit: Duration) {
        self.stop.cancel();
        self.tasks.close();
        if let Some((sink, _)) = self.spans {
            // Blocks on the thread of the processor, which needs this runtime.
            let _ = tokio::task::spawn_blocking(move || sink.shutdown(limit)).await;
        }
        let _ = timeout(LAST.min(limit), self.tasks.wait()).await;
    }
}

/// A positive number of the environment. Wrong ones are reported with all variables.
fn number(name: &str) -> Option<u64> {
    of_process(name)?.trim().parse().ok().filter(|n| *n > 0)
}

/// The instrumentation scope of criscope's spans.
pub fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("criscope")
        .with_version(env!("CARGO_PKG_VERSION"))
        .with_schema_url(SCHEMA_URL)
        .build()
}

/// Exports `tracing` spans of background work. Only those of our own modules: spans of the HTTP/2 client would make
/// each export cause further ones, without end. Events are log lines and not exported.
pub fn layer<S>(tracer: SdkTracer) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let ours = filter_fn(|meta| {
        let target = meta.target();
        let ours = target == "criscope" || target.starts_with("criscope::");
        meta.is_span() && ours && *meta.level() <= LevelFilter::INFO
    })
    .with_max_level_hint(LevelFilter::INFO);
    OpenTelemetryLayer::new(tracer)
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_target(false)
        .with_context_activation(false)
        .with_filter(ours)
}

/// Logs variables that are set and ignored.
pub fn report_ignored_variables() {
    for ignored in Variables::of_process().ignored {
        tracing::warn!(
            target: "criscope::telemetry",
            event = "config.environment",
            variable = ignored.variable,
            reason = ignored.reason,
            "a variable of the environment is ignored"
        );
    }
}

#[cfg(test)]
mod tests;
