//! Exports spans to an OpenTelemetry collector over OTLP/gRPC. Off unless an endpoint is set.
//!
//! Spans of calls are built when a call ends and passed to [`SpanSink`]. Spans of background work (target `criscope`,
//! level info or above) come from [`layer`] and use the same sink.
//!
//! The standard `OTEL_*` variables complement the configuration: its endpoint and timeout take precedence; headers,
//! resource attributes, service name and batch limits (`OTEL_BSP_*`) come from the environment only.
//! `OTEL_SDK_DISABLED=true` disables the export, `OTEL_TRACES_EXPORTER=none` only an endpoint from the environment.

mod resource;
mod sink;

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::trace::{BatchConfigBuilder, SdkTracer, SdkTracerProvider};
use opentelemetry_semantic_conventions::SCHEMA_URL;
use tokio::runtime::Handle;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Subscriber;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

pub use self::sink::SpanSink;
use self::sink::{ForProvider, Limits};
use super::drops::Drops;
use super::settings;

#[cfg(test)]
pub(crate) use self::sink::testing;

/// Reads an environment variable; an empty one counts as unset.
type Env<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The exporter rejects the endpoint or another setting.
    #[error("otlp endpoint {endpoint}: {source}")]
    Exporter {
        /// The endpoint.
        endpoint: String,
        /// The cause.
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// The environment asks for a protocol other than gRPC.
    #[error("{variable}={protocol}: only grpc is supported")]
    Protocol {
        /// The variable.
        variable: &'static str,
        /// Its value.
        protocol: String,
    },
}

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
    pub fn start(config: &settings::Otlp, drops: Arc<Drops>) -> Result<Option<Self>, OtlpError> {
        let env = |name: &str| std::env::var(name).ok().filter(|v| !v.trim().is_empty());
        let Some(endpoint) = endpoint(config, &env) else {
            return Ok(None);
        };
        check_protocol(config, &env)?;
        let mut builder = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(endpoint.clone());
        if let Some(timeout) = timeout(config, &env) {
            builder = builder.with_timeout(timeout);
        }
        let exporter = builder
            .build()
            .map_err(|source| OtlpError::Exporter { endpoint, source })?;

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

/// Where spans of other processes are forwarded to.
pub struct Destination {
    /// The collector, as `http://HOST:PORT`.
    pub endpoint: String,
    /// Headers of each request (`OTEL_EXPORTER_OTLP_HEADERS`). They usually hold an API key, so they are never printed.
    pub headers: Vec<(String, String)>,
    /// Timeout of a request.
    pub timeout: Duration,
}

impl std::fmt::Debug for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Destination")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Destination {
    /// Returns the collector of our own spans, with the same settings; `None` if there is none.
    pub fn of(config: &settings::Otlp) -> Option<Self> {
        let env = |name: &str| std::env::var(name).ok().filter(|v| !v.trim().is_empty());
        check_protocol(config, &env).ok()?;
        let headers =
            env("OTEL_EXPORTER_OTLP_TRACES_HEADERS").or_else(|| env("OTEL_EXPORTER_OTLP_HEADERS"));
        Some(Self {
            endpoint: endpoint(config, &env)?,
            headers: headers.as_deref().map(headers_of).unwrap_or_default(),
            timeout: config.timeout,
        })
    }
}

/// Parses `NAME=VALUE,NAME=VALUE`, percent-encoded (OpenTelemetry, "Specifying headers via environment variables").
fn headers_of(text: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let value = percent_encoding::percent_decode_str(value.trim());
        Some((
            name.trim().to_owned(),
            value.decode_utf8().ok()?.into_owned(),
        ))
    };
    text.split(',').filter_map(pair).collect()
}

fn endpoint(config: &settings::Otlp, env: &Env<'_>) -> Option<String> {
    if env("OTEL_SDK_DISABLED").is_some_and(|v| v.trim().eq_ignore_ascii_case("true")) {
        return None;
    }
    if let Some(endpoint) = &config.endpoint {
        return Some(endpoint.clone());
    }
    if env("OTEL_TRACES_EXPORTER").is_some_and(|v| v.trim() == "none") {
        return None;
    }
    env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| env("OTEL_EXPORTER_OTLP_ENDPOINT"))
}

/// Rejects protocols other than gRPC for an endpoint from the environment. A configured endpoint is gRPC by definition.
fn check_protocol(config: &settings::Otlp, env: &Env<'_>) -> Result<(), OtlpError> {
    if config.endpoint.is_some() {
        return Ok(());
    }
    for variable in [
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
    ] {
        match env(variable) {
            Some(protocol) if protocol.trim() != "grpc" => {
                return Err(OtlpError::Protocol { variable, protocol });
            }
            Some(_) => return Ok(()),
            None => {}
        }
    }
    Ok(())
}

/// Returns the configured timeout. `None` if it is the default and the environment sets one, which the exporter then
/// reads.
fn timeout(config: &settings::Otlp, env: &Env<'_>) -> Option<Duration> {
    const DEFAULT: Duration = Duration::from_secs(10);
    let set =
        env("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT").or_else(|| env("OTEL_EXPORTER_OTLP_TIMEOUT"));
    (config.timeout != DEFAULT || set.is_none()).then_some(config.timeout)
}

#[cfg(test)]
mod tests;
