//! `[telemetry.log]`, `[telemetry.otlp]` and `[telemetry.sampling]`

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use super::otlp::variables::{OtelVariables, SamplerVariables};
use criscope_cri::Method;
use criscope_settings::value::{
    BooleanValue, BoundedDuration, CollectorUrl, CriMethodName, FilePath, FilterDirective,
    KeywordChoice, OptionalValue, RatioNumber, ms, secs,
};
use criscope_settings::{
    ConfigProblem, SettingKey, SettingsReader, TableScope, ValuePlace, settings,
};

/// Format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, else JSON.
    Auto,
    /// One JSON object per line.
    Json,
    /// Human-readable text.
    Text,
}

/// Protocol for sending spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// gRPC, over HTTP/2.
    Grpc,
    /// Protobuf messages over HTTP/1.1.
    HttpProtobuf,
}

/// Compression of requests with spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpCompression {
    /// No compression.
    None,
    /// With gzip.
    Gzip,
}

/// Treatment of a call whose caller has a trace and does not sample it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnsampledParent {
    /// The call is treated as if there were no trace, and linked to the span of the caller.
    Episode,
    /// The call is not sampled either.
    Respect,
}

settings! {
    /// The log.
    pub struct LogSettings in "telemetry.log" {
        /// `json` writes one object per line, `text` lines for people, `auto` text if standard error is a terminal, else JSON.
        format: LogFormat = LogFormat::Auto,
            KeywordChoice(&[("auto", LogFormat::Auto), ("json", LogFormat::Json), ("text", LogFormat::Text)]);
        /// Level of log lines. Mutating calls are logged at `info`, polls at `debug`.
        level: String = "info".to_owned(), FilterDirective => live;
    }
}

settings! {
    /// Where spans are exported to, and metrics and log lines if that is asked for. What is not set here is taken from the standard `OTEL_*` variables of the environment
    /// ([OTLP.md](OTLP.md)).
    pub struct OtlpSettings in "telemetry.otlp" (env: &OtelVariables) {
        /// An OTLP collector; `https://` is with TLS. With `http/protobuf` it is the base of the URL, to which `/v1/traces`,
        /// `/v1/metrics` or `/v1/logs` is appended.
        endpoint: Option<String> = env.endpoint.clone(), OptionalValue(CollectorUrl),
            or "`OTEL_EXPORTER_OTLP_ENDPOINT` of the environment; without either nothing is exported"
            like "\"http://127.0.0.1:4317\"";
        /// Another collector, or another path with `http/protobuf`, for spans. Nothing is appended.
        traces_endpoint: Option<String> = env.traces_endpoint.clone(), OptionalValue(CollectorUrl),
            or "`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, unless `endpoint` is set; else `endpoint`"
            like "\"https://traces.example:4317\"";
        /// Pushes the metrics of `/metrics` to the collector too.
        metrics: bool = env.metrics.is_enabled, BooleanValue,
            or "`true` if `OTEL_METRICS_EXPORTER` is `otlp`, else `false`" like "false";
        /// URL of the collector for metrics; otherwise like `traces_endpoint`.
        metrics_endpoint: Option<String> = env.metrics.endpoint.clone(), OptionalValue(CollectorUrl),
            or "`OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`, unless `endpoint` is set; else `endpoint`"
            like "\"https://metrics.example:4317\"";
        /// Interval of these pushes.
        metrics_interval: Duration = env.metrics_interval.unwrap_or(secs(60)), BoundedDuration::between(secs(1), secs(3600)),
            or "`OTEL_METRIC_EXPORT_INTERVAL`, else `\"60s\"`" like "\"60s\"";
        /// Sends log lines to the collector as well as writing them.
        logs: bool = env.logs.is_enabled, BooleanValue,
            or "`true` if `OTEL_LOGS_EXPORTER` is `otlp`, else `false`" like "false";
        /// URL of the collector for log lines; otherwise like `traces_endpoint`.
        logs_endpoint: Option<String> = env.logs.endpoint.clone(), OptionalValue(CollectorUrl),
            or "`OTEL_EXPORTER_OTLP_LOGS_ENDPOINT`, unless `endpoint` is set; else `endpoint`"
            like "\"https://logs.example:4317\"";
        /// `grpc`, or `http/protobuf` for protobuf messages over HTTP/1.1.
        protocol: OtlpProtocol = env.protocol.unwrap_or(OtlpProtocol::Grpc),
            KeywordChoice(&[("grpc", OtlpProtocol::Grpc), ("http/protobuf", OtlpProtocol::HttpProtobuf)]),
            or "`OTEL_EXPORTER_OTLP_PROTOCOL`, else `\"grpc\"`" like "\"grpc\"";
        /// Deadline of one export, with its retries. No call waits for an export.
        timeout: Duration = env.timeout.unwrap_or(secs(10)), BoundedDuration::between(ms(100), secs(300)),
            or "`OTEL_EXPORTER_OTLP_TIMEOUT`, else `\"10s\"`" like "\"10s\"";
        /// How requests are compressed.
        compression: OtlpCompression = env.compression.unwrap_or(OtlpCompression::None),
            KeywordChoice(&[("none", OtlpCompression::None), ("gzip", OtlpCompression::Gzip)]),
            or "`OTEL_EXPORTER_OTLP_COMPRESSION`, else `\"none\"`" like "\"none\"";
        /// The certificate authorities of the collector, in PEM. This file and the next two are read for each connection.
        tls_ca: Option<PathBuf> = env.ca.clone(), OptionalValue(FilePath),
            or "`OTEL_EXPORTER_OTLP_CERTIFICATE`, else those of the system" like "\"/etc/criscope/otlp-ca.crt\"";
        /// The certificate chain that is shown to the collector, in PEM.
        tls_cert: Option<PathBuf> = env.client_certificate.clone(), OptionalValue(FilePath),
            or "`OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE`, else none" like "\"/etc/criscope/otlp.crt\"";
        /// The certificate's private key in PEM.
        tls_key: Option<PathBuf> = env.client_key.clone(), OptionalValue(FilePath),
            or "`OTEL_EXPORTER_OTLP_CLIENT_KEY`, else none" like "\"/etc/criscope/otlp.key\"";
        /// A file with headers of each request, such as an API key: lines `name: value`. It is read for each connection, and
        /// its content is never shown; let only root read it.
        headers_file: Option<PathBuf> = None, OptionalValue(FilePath),
            or "the headers of `OTEL_EXPORTER_OTLP_HEADERS`" like "\"/etc/criscope/otlp-headers\"";
    }
}

impl OtlpSettings {
    /// Reads the section, and checks keys that depend on each other.
    pub fn checked(reader: &mut SettingsReader<'_>) -> Self {
        let mut env = OtelVariables::from_process();
        let scope = reader.section("telemetry.otlp");
        if scope.has(&Self::endpoint) {
            env.traces_endpoint = None;
            (env.metrics.endpoint, env.logs.endpoint) = (None, None);
        }
        // Certificate and key come from one place.
        if scope.has(&Self::tls_cert) || scope.has(&Self::tls_key) {
            (env.client_certificate, env.client_key) = (None, None);
        }
        let otlp = Self::read_at(reader, &scope, &env);
        otlp.check(reader, &scope);
        otlp
    }

    fn check(&self, reader: &mut SettingsReader<'_>, scope: &TableScope<'_>) {
        for (key, is_wanted, own) in [
            (&Self::metrics, self.metrics, &self.metrics_endpoint),
            (&Self::logs, self.logs, &self.logs_endpoint),
        ] {
            if scope.has(key) && is_wanted && own.is_none() && self.endpoint.is_none() {
                let problem = "has no effect without endpoint";
                reader.fail_at(scope, key, ConfigProblem::Conflict(problem.to_owned()));
            }
        }
        let half: Option<(&SettingKey<Option<PathBuf>>, _)> =
            match (scope.has(&Self::tls_cert), scope.has(&Self::tls_key)) {
                (true, false) => Some((&Self::tls_cert, "has no effect without tls_key")),
                (false, true) => Some((&Self::tls_key, "has no effect without tls_cert")),
                _ => None,
            };
        if let Some((key, problem)) = half {
            reader.fail_at(scope, key, ConfigProblem::Conflict(problem.to_owned()));
        }
        for (key, endpoint) in [
            (&Self::endpoint, &self.endpoint),
            (&Self::traces_endpoint, &self.traces_endpoint),
            (&Self::metrics_endpoint, &self.metrics_endpoint),
            (&Self::logs_endpoint, &self.logs_endpoint),
        ] {
            let is_grpc = self.protocol == OtlpProtocol::Grpc;
            let has_path = endpoint
                .as_ref()
                .is_some_and(|url| CollectorUrl::check(url) == Ok(true));
            if scope.has(key) && is_grpc && has_path {
                let problem = "OTLP over gRPC has no path; set protocol = \"http/protobuf\"";
                reader.fail_at(scope, key, ConfigProblem::Conflict(problem.to_owned()));
            }
        }
    }
}

settings! {
    /// Which calls become spans. Calls that failed, were cancelled, stuck (half of the deadline used up) or slow always
    /// do, and so do calls that their caller sampled.
    pub struct SamplingSettings in "telemetry.sampling" (env: SamplerVariables) {
        /// Share of the mutating calls that belong to no episode.
        mutating: f64 = env.share.unwrap_or(1.0), RatioNumber,
            or "the share of `OTEL_TRACES_SAMPLER`, else `1.0`" like "1.0" => live;
        /// Share of the polls. A kubelet makes several a second.
        polls: f64 = 0.0, RatioNumber => live;
        /// A call that took longer than this is slow.
        slow: Duration = secs(1), BoundedDuration::between(ms(1), secs(3600)) => live;
        /// Share of the episodes: starts, restarts and stops of pods. An episode is sampled with all its calls or not at
        /// all.
        episodes: f64 = env.share.unwrap_or(1.0), RatioNumber,
            or "the share of `OTEL_TRACES_SAMPLER`, else `1.0`" like "1.0" => live;
        /// Sampling of a call whose caller has a trace and does not sample it, like every call of a kubelet with
        /// tracing enabled and no sampling rate does. `episode` decides as if the caller had no trace, and links to its
        /// span; `respect` exports the call only if it failed, was cancelled, stuck or slow.
        on_unsampled_parent: OnUnsampledParent = env.on_unsampled_parent.unwrap_or(OnUnsampledParent::Episode),
            KeywordChoice(&[("episode", OnUnsampledParent::Episode), ("respect", OnUnsampledParent::Respect)]),
            or "`\"respect\"` if `OTEL_TRACES_SAMPLER` begins with `parentbased_`, else `\"episode\"`"
            like "\"episode\"" => live;
    }
    parts {
        /// Methods with their own settings, each at most once.
        methods: Vec<MethodSampling> = methods;
    }
}

impl SamplingSettings {
    /// Reads the section, with the sampler of the environment as the default.
    pub fn from_reader(reader: &mut SettingsReader<'_>) -> Self {
        Self::read(reader, OtelVariables::from_process().sampler)
    }
}

settings! {
    /// Settings of one method, written `[[telemetry.sampling.methods]]`.
    #[derive(Copy)]
    pub struct MethodSampling in "telemetry.sampling.methods[]" {
        /// The method.
        method: Method = Method::Other, CriMethodName, or required like "\"PullImage\"" => live;
        /// Share of these calls. Calls of a sampled episode become spans regardless.
        ratio: Option<f64> = None, OptionalValue(RatioNumber), or "`mutating` or `polls`" like "1.0" => live;
        /// A call that took longer than this is slow.
        slow: Option<Duration> = None, OptionalValue(BoundedDuration::between(ms(1), secs(3600))),
            or "that of `telemetry.sampling`; a call that stays open as long as its caller wants is never slow"
            like "\"30s\"" => live;
    }
}

fn methods(reader: &mut SettingsReader<'_>) -> Vec<MethodSampling> {
    let mut lines: HashMap<&str, usize> = HashMap::new();
    let mut rows = Vec::new();
    for row in reader.rows("telemetry.sampling", "methods") {
        let key = &MethodSampling::method;
        rows.push(MethodSampling::read_at(reader, &row));
        let Some(given) = reader.given(&row, key) else {
            continue;
        };
        let method = given.value.name();
        if let Some(line) = lines.get(method) {
            let problem = format!("{method} already has a row on line {line}");
            reader.fail_at(&row, key, ConfigProblem::Conflict(problem));
        } else if let ValuePlace::Line { line, .. } = given.place {
            lines.insert(method, line);
        }
    }
    rows
}
