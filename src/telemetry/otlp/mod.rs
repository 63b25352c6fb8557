//! Exports spans to an OpenTelemetry collector over OTLP, by gRPC or HTTP, with or without TLS. Off unless an endpoint is set.
//!
//! Spans of calls are built when a call ends and passed to [`SpanSink`]. Spans of background work (target `criscope`,
//! level info or above) come from [`layer`] and use the same sink.
//!
//! What the configuration does not set is taken from the standard `OTEL_*` variables ([`variables`]); `docs/OTLP.md` lists
//! them. Resource attributes, service name and batch limits (`OTEL_BSP_*`) come from the environment only.

mod alert;
mod client;
mod collector;
mod exporter;
mod resource;
mod sink;
mod tls;
pub mod variables;

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{BatchConfigBuilder, SdkTracer, SdkTracerProvider};
use opentelemetry_semantic_conventions::SCHEMA_URL;
use tokio::runtime::Handle;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Subscriber;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

pub use self::client::{Client, Export, SendError};
pub use self::collector::{Collector, CollectorError, HeadersError};
use self::exporter::Exporter;
pub use self::sink::SpanSink;
use self::sink::{ForProvider, Limits};
pub use self::tls::TlsError;
use self::variables::{Variables, of_process};
use super::drops::Drops;
use super::settings;

#[cfg(test)]
pub(crate) use self::sink::testing;

/// A running export of spans.
#[derive(Debug)]
pub struct Otlp {
    sink: SpanSink,
    provider: SdkTracerProvider,
}

impl Otlp {
    /// Starts the export if an endpoint is set in the configuration or the environment. Connects when the first spans
    /// are sent, and reconnects as needed.
    ///
    /// Call it on the runtime that drives the connection, and [`Otlp::shutdown`] before that runtime ends.
    ///
    /// # Errors
    /// If the endpoint cannot be used. Log it and go on: a proxy without traces is better than none.
    pub fn start(
        config: &settings::Otlp,
        drops: Arc<Drops>,
    ) -> Result<Option<Self>, CollectorError> {
        let env = of_process;
        let Some(collector) = Collector::of(config)? else {
            return Ok(None);
        };
        let exporter = Exporter::new(collector, Handle::current());

        let number = |name: &str| env(name)?.trim().parse().ok().filter(|n: &u64| *n > 0);
        let pending = number("OTEL_BSP_MAX_QUEUE_SIZE").map_or(2048, |n| n.min(1 << 16) as usize);
        let limits = Limits {
            pending,
            export: Duration::from_millis(number("OTEL_BSP_EXPORT_TIMEOUT").unwrap_or(30_000)),
        };
        // The builder reads the delay and the batch size from the environment itself.
        let batch = BatchConfigBuilder::default()
            .with_max_queue_size(pending)
            .build();
        let resource = resource::resource(&env);
        let sink = SpanSink::start(
            exporter,
            &resource,
            batch,
            &limits,
            Handle::current(),
            drops,
        );
        let provider = SdkTracerProvider::builder()
            .with_resource(resource)
            .with_span_processor(ForProvider(sink.clone()))
            .build();
        Ok(Some(Self { sink, provider }))
    }

    /// Returns the sink for finished spans.
    pub fn sink(&self) -> SpanSink {
        self.sink.clone()
    }

    /// Returns the tracer for [`layer`].
    pub fn tracer(&self) -> SdkTracer {
        self.provider.tracer_with_scope(scope())
    }

    /// Stops accepting spans and sends the pending ones, for at most `limit`.
    pub async fn shutdown(self, limit: Duration) {
        let sink = self.sink.clone();
        // Blocks on the thread of the processor, which needs this runtime.
        let _ = tokio::task::spawn_blocking(move || sink.shutdown(limit)).await;
    }
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
