//! The collector, as the configuration and the environment describe it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::tls::TlsFiles;
use super::variables::{OtelVariables, ReadVariable, header, process_variable};
use crate::settings::{self, OtlpCompression, OtlpProtocol};

/// A kind of telemetry that is sent to a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Metrics.
    Metrics,
    /// Log records.
    Logs,
}

impl Signal {
    /// The path of an export over gRPC.
    const fn grpc_path(self) -> &'static str {
        match self {
            Self::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Self::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Self::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        }
    }

    /// The path over HTTP that is appended to a base URL.
    pub(super) const fn http_path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
            Self::Logs => "/v1/logs",
        }
    }

    /// The endpoint for this signal alone, if the signal is wanted.
    fn endpoint(self, config: &settings::OtlpSettings) -> Option<Option<&String>> {
        let (is_wanted, endpoint) = match self {
            Self::Traces => (true, &config.traces_endpoint),
            Self::Metrics => (config.metrics, &config.metrics_endpoint),
            Self::Logs => (config.logs, &config.logs_endpoint),
        };
        is_wanted.then_some(endpoint.as_ref())
    }
}

/// The reason why the collector cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("otlp endpoint {endpoint}: {why}")]
pub struct CollectorError {
    /// The endpoint.
    pub endpoint: String,
    /// The cause.
    pub why: &'static str,
}

/// The reason why there are no headers. It does not repeat their text, which is secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeadersError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// A line is not a header.
    #[error("{}:{line}: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// The cause.
        why: &'static str,
    },
}

/// The destination of a signal, and its settings. Debug output shows no header.
#[derive(Clone, Debug)]
pub struct Collector {
    /// The URL of requests.
    pub(super) url: Uri,
    pub(super) protocol: OtlpProtocol,
    /// Deadline of one export, with its retries.
    pub(super) timeout: Duration,
    pub(super) is_gzip: bool,
    /// `None` without TLS.
    pub(super) tls: Option<TlsFiles>,
    headers_file: Option<PathBuf>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Collector {
    /// Returns the collector of a signal; `None` if the signal is not exported, has no endpoint, or `OTEL_SDK_DISABLED` is true.
    ///
    /// # Errors
    /// If the endpoint cannot be used.
    pub fn for_signal(
        config: &settings::OtlpSettings,
        signal: Signal,
    ) -> Result<Option<Self>, CollectorError> {
        Self::from_environment(config, signal, &process_variable)
    }

    pub(super) fn from_environment(
        config: &settings::OtlpSettings,
        signal: Signal,
        env: &ReadVariable<'_>,
    ) -> Result<Option<Self>, CollectorError> {
        let own = signal.endpoint(config);
        let Some(endpoint) = own.and_then(|own| own.or(config.endpoint.as_ref())) else {
            return Ok(None);
        };
        if OtelVariables::read(env).disabled {
            return Ok(None);
        }
        let not_a_url = CollectorError {
            endpoint: endpoint.clone(),
            why: "not a URL",
        };
        let Ok(endpoint) = endpoint.parse::<Uri>() else {
            return Err(not_a_url);
        };
        let given = endpoint.path();
        let path = match config.protocol {
            OtlpProtocol::Grpc => signal.grpc_path().to_owned(),
            OtlpProtocol::HttpProtobuf if own.flatten().is_some() => given.to_owned(),
            OtlpProtocol::HttpProtobuf => {
                let base = given.trim_end_matches('/');
                let traces = Signal::Traces.http_path();
                let base = base.strip_suffix(traces).unwrap_or(base);
                format!("{base}{}", signal.http_path())
            }
        };
        let mut parts = endpoint.clone().into_parts();
        parts.path_and_query = path.parse().ok();
        let url = Uri::from_parts(parts).map_err(|_| not_a_url)?;
        let has_tls = url.scheme_str() == Some("https");
        Ok(Some(Self {
            protocol: config.protocol,
            timeout: config.timeout,
            is_gzip: config.compression == OtlpCompression::Gzip,
            tls: has_tls.then(|| TlsFiles {
                ca: config.tls_ca.clone(),
                client: config.tls_cert.clone().zip(config.tls_key.clone()),
            }),
            url,
            headers_file: config.headers_file.clone(),
            headers: match config.headers_file {
                Some(_) => Vec::new(),
                None => OtelVariables::headers(env),
            },
        }))
    }

    /// The URL of requests. It holds no user and no password.
    pub fn url(&self) -> &Uri {
        &self.url
    }

    /// Deadline of one export.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The headers of requests, from the current content of the file if there is one. Blocks on the disk.
    pub(super) fn headers(&self) -> Result<HeaderMap, HeadersError> {
        match &self.headers_file {
            Some(path) => read_headers(path),
            None => Ok(self.headers.iter().cloned().collect()),
        }
    }
}

/// Reads `name: value` lines, as `curl --header @FILE` does; `#` begins a comment.
fn read_headers(path: &Path) -> Result<HeaderMap, HeadersError> {
    let text = fs::read_to_string(path).map_err(|source| HeadersError::Read {
        path: path.to_owned(),
        source,
    })?;
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let headers = lines.map(|(i, line)| {
        let pair = line
            .split_once(':')
            .ok_or("not a header as \"name: value\"");
        pair.and_then(|(name, value)| header(name, value))
            .map_err(|why| HeadersError::Line {
                path: path.to_owned(),
                line: i + 1,
                why,
            })
    });
    headers.collect()
}

#[cfg(test)]
mod tests {
    use super::super::variables::tests::env;
    use super::*;
    use criscope_settings::SettingsReader;

    fn unset() -> settings::OtlpSettings {
        settings::OtlpSettings::checked(&mut SettingsReader::empty())
    }

    fn config(endpoint: &str, protocol: OtlpProtocol) -> settings::OtlpSettings {
        settings::OtlpSettings {
            endpoint: Some(endpoint.to_owned()),
            protocol,
            ..unset()
        }
    }

    fn url(config: &settings::OtlpSettings) -> String {
        let collector = Collector::from_environment(config, Signal::Traces, &env(&[]));
        let collector = collector.expect("right").expect("there");
        collector.url.to_string()
    }

    #[test]
    fn a_path_is_appended_to_the_base_url_only() {
        let grpc = config("https://a:4317", OtlpProtocol::Grpc);
        assert_eq!(
            url(&grpc),
            format!("https://a:4317{}", Signal::Traces.grpc_path())
        );
        for (base, wanted) in [
            ("https://a:4318", "https://a:4318/v1/traces"),
            ("https://a/otlp/", "https://a/otlp/v1/traces"),
            ("https://a/otlp/v1/traces", "https://a/otlp/v1/traces"),
        ] {
            assert_eq!(url(&config(base, OtlpProtocol::HttpProtobuf)), wanted);
        }
        let mut traces = config("http://a:1", OtlpProtocol::HttpProtobuf);
        traces.traces_endpoint = Some("http://b:2/x".to_owned());
        assert_eq!(url(&traces), "http://b:2/x");
    }

    #[test]
    fn other_signals_go_beside_the_spans_if_they_are_wanted() {
        let base = "https://a/otlp/v1/traces";
        let mut both = config(base, OtlpProtocol::HttpProtobuf);
        let of = |config: &settings::OtlpSettings, signal| {
            let collector = Collector::from_environment(config, signal, &env(&[]));
            Some(collector.expect("right")?.url.to_string())
        };
        assert_eq!(of(&both, Signal::Metrics), None);
        (both.metrics, both.logs) = (true, true);
        let wanted = |path| Some(format!("https://a/otlp{path}"));
        assert_eq!(of(&both, Signal::Metrics), wanted("/v1/metrics"));
        assert_eq!(of(&both, Signal::Logs), wanted("/v1/logs"));
        both.logs_endpoint = Some("http://b:2/x".to_owned());
        assert_eq!(of(&both, Signal::Logs).as_deref(), Some("http://b:2/x"));
        both.protocol = OtlpProtocol::Grpc;
        let path = Signal::Logs.grpc_path();
        assert_eq!(of(&both, Signal::Logs), Some(format!("http://b:2{path}")));
    }

    #[test]
    fn a_disabled_sdk_and_no_endpoint_are_no_collector() {
        let config = config("http://a:1", OtlpProtocol::Grpc);
        let disabled = [("OTEL_SDK_DISABLED", "true")];
        let none =
            Collector::from_environment(&config, Signal::Traces, &env(&disabled)).expect("right");
        assert!(none.is_none());
        let none = Collector::from_environment(&unset(), Signal::Traces, &env(&[]));
        assert!(none.expect("right").is_none());
    }

    #[test]
    fn headers_of_the_file_replace_those_of_the_environment() {
        let set = [("OTEL_EXPORTER_OTLP_HEADERS", "a=of-env")];
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("headers");
        let mut config = config("http://a:1", OtlpProtocol::Grpc);
        let headers = |config: &settings::OtlpSettings| {
            let collector =
                Collector::from_environment(config, Signal::Traces, &env(&set)).expect("right");
            let collector = collector.expect("there");
            assert!(!format!("{collector:?}").contains("of-env"));
            collector.headers()
        };
        assert_eq!(headers(&config).expect("right")["a"], "of-env");

        config.headers_file = Some(file.clone());
        assert!(matches!(headers(&config), Err(HeadersError::Read { .. })));
        fs::write(&file, "# keys\n\nAuthorization: Bearer a:b=\nx-b:2\n").expect("written");
        let read = headers(&config).expect("right");
        assert_eq!(read["authorization"], "Bearer a:b=");
        assert!(read["authorization"].is_sensitive());
        assert_eq!(
            (read.len(), &read["x-b"]),
            (2, &HeaderValue::from_static("2"))
        );
        fs::write(&file, "a: 1\nhunter2\n").expect("written");
        let error = headers(&config).expect_err("refused").to_string();
        assert!(
            error.ends_with("headers:2: not a header as \"name: value\""),
            "{error}"
        );
    }
}
