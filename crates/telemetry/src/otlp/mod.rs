//! Exports spans to an OpenTelemetry collector over OTLP, by gRPC or HTTP, with or without TLS. Off unless an endpoint is set.
//! Exports of metrics and log lines must be turned on.
//!
//! Spans of calls are built when a call ends and passed to [`SpanSink`]. Spans of [background jobs](crate::job) come from
//! [`layer`] and use the same sink.
//!
//! Settings that the configuration lacks are taken from the standard `OTEL_*` variables ([`variables`]); `docs/OTLP.md` lists
//! them. Resource attributes, service name and batch limits (`OTEL_BSP_*`) come from the environment only.

mod alert;
mod attributes;
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

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::InstrumentationScope;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState, TracerProvider as _,
};
use opentelemetry_proto::tonic::resource::v1 as proto;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, SdkTracer, SdkTracerProvider, SpanData, SpanEvents, SpanLinks,
};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::subscriber::Subscriber;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

pub(crate) use self::attributes::record_attribute;
pub use self::attributes::{ATTRIBUTES, RPC_STATUS_CODE, SCHEMA_URL, Stability, stability};
pub use self::client::{CollectorClient, ExportRequest, SendError};
pub use self::collector::{Collector, CollectorError, HeadersError, Signal};
use self::exporter::SpanBatchExporter;
use self::metrics::MetricsPush;
use self::records::LogRecordExport;
pub use self::records::LogRecordQueue;
pub use self::sink::SpanSink;
use self::sink::{SinkLimits, SinkProcessor};
pub use self::tls::TlsError;
use self::variables::{OtelVariables, process_variable};
use super::drops::Drops;
use super::job::JOB_TARGET;
use super::registry::Registry;
use super::settings;

#[cfg(any(test, feature = "test-util"))]
pub use self::sink::testing;

/// The files of the client certificate for collectors and of its key; `None` if no collector has TLS.
pub fn client_certificate(config: &settings::OtlpSettings) -> Option<(PathBuf, PathBuf)> {
    let signals = [Signal::Traces, Signal::Metrics, Signal::Logs];
    let mut collectors = signals
        .into_iter()
        .filter_map(|signal| Collector::for_signal(config, signal).ok().flatten());
    collectors.find_map(|collector| collector.tls?.client)
}

/// How long the last metrics and log records may take.
const LAST_EXPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// A running export.
#[derive(Debug)]
pub struct OtlpExports {
    spans: Option<(SpanSink, SdkTracerProvider)>,
    logs: Option<LogRecordQueue>,
    metrics: Option<Collector>,
    every: Duration,
    resource: ResourceAttributesWithSchema,
    drops: Arc<Drops>,
    /// Ends the exports of metrics and logs.
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl OtlpExports {
    /// Starts the exports whose endpoint is set in the configuration or the environment. Connects when there is something to
    /// send, and reconnects as needed.
    ///
    /// Call it on the runtime that drives the connections, and [`OtlpExports::shutdown`] before that runtime ends.
    ///
    /// # Errors
    /// If an endpoint cannot be used. The caller logs the error and goes on: a proxy without traces is better than no proxy.
    pub fn start(
        config: &settings::OtlpSettings,
        drops: Arc<Drops>,
    ) -> Result<Self, CollectorError> {
        let traces = Collector::for_signal(config, Signal::Traces)?;
        let metrics = Collector::for_signal(config, Signal::Metrics)?;
        let logs = Collector::for_signal(config, Signal::Logs)?;
        let resource = resource::resource(&process_variable);
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
        let exporter = SpanBatchExporter::new(collector, Handle::current());
        let pending = number("OTEL_BSP_MAX_QUEUE_SIZE").map_or(2048, |n| n.min(1 << 16) as usize);
        let limits = SinkLimits {
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
            .with_span_processor(SinkProcessor(sink.clone()))
            .build();
        (sink, provider)
    }

    fn logs(&self, collector: Collector) -> LogRecordQueue {
        let limits = records::BatchLimits {
            queue: size("OTEL_BLRP_MAX_QUEUE_SIZE", 2048),
            batch: size("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", 512),
            delay: Duration::from_millis(number("OTEL_BLRP_SCHEDULE_DELAY").unwrap_or(1000)),
        };
        let drops = Arc::clone(&self.drops);
        let (queue, export) = LogRecordExport::new(limits, collector, self.resource(), drops);
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
    pub fn records(&self) -> Option<LogRecordQueue> {
        self.logs.clone()
    }

    /// Begins to push these metrics, if the push is turned on.
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

    /// Stops accepting spans and sends the pending ones, for at most `limit`.
    pub async fn shutdown(self, limit: Duration) {
        self.stop.cancel();
        self.tasks.close();
        if let Some((sink, _)) = self.spans {
            // Blocks on the thread of the processor, which needs this runtime.
            let _ = tokio::task::spawn_blocking(move || sink.shutdown(limit)).await;
        }
        let _ = timeout(LAST_EXPORT_TIMEOUT.min(limit), self.tasks.wait()).await;
    }
}

/// A size from the environment, up to 65,536.
fn size(name: &str, default: u64) -> usize {
    number(name).unwrap_or(default).min(1 << 16) as usize
}

/// A positive number from the environment. Wrong numbers are reported with all variables.
fn number(name: &str) -> Option<u64> {
    process_variable(name)?
        .trim()
        .parse()
        .ok()
        .filter(|n| *n > 0)
}

/// The instrumentation scope of criscope's spans.
pub fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("criscope")
        .with_version(env!("CARGO_PKG_VERSION"))
        .with_schema_url(SCHEMA_URL)
        .build()
}

/// A span with the times of its begin and end, which has no attributes yet.
pub fn span(
    scope: &InstrumentationScope,
    span_context: SpanContext,
    parent_span_id: SpanId,
    name: impl Into<Cow<'static, str>>,
    (start_time, end_time): (SystemTime, SystemTime),
) -> SpanData {
    SpanData {
        span_context,
        parent_span_id,
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: name.into(),
        start_time,
        end_time,
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: scope.clone(),
    }
}

/// The context of a span that is exported: marked as sampled.
pub fn context(trace_id: TraceId, span: SpanId, state: Option<&TraceState>) -> SpanContext {
    let state = state.cloned().unwrap_or(TraceState::NONE);
    SpanContext::new(trace_id, span, TraceFlags::SAMPLED, false, state)
}

/// Exports the spans of background jobs. Other `tracing` spans are left out: those of the HTTP/2 client would cause exports without
/// end. Events are log lines and not exported.
pub fn layer<S>(tracer: SdkTracer) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    OpenTelemetryLayer::new(tracer)
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_target(false)
        .with_context_activation(false)
        .with_filter(filter_fn(|meta| {
            meta.is_span() && meta.target() == JOB_TARGET
        }))
}

/// Logs variables that are set and ignored.
pub fn report_ignored_variables() {
    for ignored in OtelVariables::from_process().ignored {
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
