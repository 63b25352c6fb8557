//! The `OTEL_*` variables of the environment, as the OpenTelemetry specification defines them ("Environment Variable
//! Specification" and "OpenTelemetry Protocol Exporter"). Keys of the configuration file take precedence; a variable for
//! traces takes precedence over the one for all signals; an empty variable counts as unset; a wrong value is logged and
//! ignored. Signals may differ in their endpoints only.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::collector::Signal;
use crate::settings::{OnUnsampledParent, OtlpCompression, OtlpProtocol};
use criscope_settings::value::CollectorUrl;

/// Reads an environment variable; an empty one counts as unset.
pub(super) type ReadVariable<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Reads a variable of this process's environment.
pub(super) fn process_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.trim().is_empty())
}

/// A variable that is set and ignored. Values are not repeated: some are secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredVariable {
    /// The name of the variable.
    pub variable: &'static str,
    /// The reason.
    pub reason: String,
}

/// `OTEL_TRACES_SAMPLER` and its argument.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SamplerVariables {
    /// Share of the episodes, and of the mutating calls outside of them.
    pub share: Option<f64>,
    /// The rule of a sampler that begins with `parentbased_`.
    pub on_unsampled_parent: Option<OnUnsampledParent>,
}

/// Variables for metrics or logs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SignalVariables {
    /// Set if the exporter is `otlp`. Without it the signal is not exported.
    pub is_enabled: bool,
    /// The endpoint for this signal alone.
    pub endpoint: Option<String>,
}

/// The values of all variables except for the headers, which are secret.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtelVariables {
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`
    pub endpoint: Option<String>,
    /// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`
    pub traces_endpoint: Option<String>,
    /// `OTEL_EXPORTER_OTLP_PROTOCOL`
    pub protocol: Option<OtlpProtocol>,
    /// `OTEL_EXPORTER_OTLP_TIMEOUT`
    pub timeout: Option<Duration>,
    /// `OTEL_EXPORTER_OTLP_COMPRESSION`
    pub compression: Option<OtlpCompression>,
    /// `OTEL_EXPORTER_OTLP_CERTIFICATE`
    pub ca: Option<PathBuf>,
    /// `OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE`
    pub client_certificate: Option<PathBuf>,
    /// `OTEL_EXPORTER_OTLP_CLIENT_KEY`
    pub client_key: Option<PathBuf>,
    /// `OTEL_METRICS_EXPORTER` and `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`
    pub metrics: SignalVariables,
    /// `OTEL_METRIC_EXPORT_INTERVAL`
    pub metrics_interval: Option<Duration>,
    /// `OTEL_LOGS_EXPORTER` and `OTEL_EXPORTER_OTLP_LOGS_ENDPOINT`
    pub logs: SignalVariables,
    /// `OTEL_TRACES_SAMPLER`
    pub sampler: SamplerVariables,
    /// `OTEL_SDK_DISABLED`
    pub disabled: bool,
    /// Variables that are ignored.
    pub ignored: Vec<IgnoredVariable>,
}

/// The variable for traces, and the one for all signals.
macro_rules! otlp {
    ($name:literal) => {
        [
            concat!("OTEL_EXPORTER_OTLP_TRACES_", $name),
            concat!("OTEL_EXPORTER_OTLP_", $name),
        ]
    };
}

/// Numbers that must be positive. The SDK reads some of them itself.
const NUMBER_VARIABLES: [&str; 7] = [
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_BSP_EXPORT_TIMEOUT",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_BLRP_SCHEDULE_DELAY",
    "OTEL_BLRP_MAX_QUEUE_SIZE",
    "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE",
];

/// Variables that would set a value for metrics or logs alone, where one value holds for all signals.
macro_rules! shared {
    ($($name:literal)*) => {
        [$(
            concat!("OTEL_EXPORTER_OTLP_METRICS_", $name),
            concat!("OTEL_EXPORTER_OTLP_LOGS_", $name),
        )*]
    };
}
const SHARED_VARIABLES: [&str; 16] = shared!(
    "PROTOCOL" "INSECURE" "HEADERS" "TIMEOUT" "COMPRESSION" "CERTIFICATE" "CLIENT_CERTIFICATE" "CLIENT_KEY"
);

impl OtelVariables {
    /// The variables of this process.
    pub fn from_process() -> Self {
        Self::read(&process_variable)
    }

    pub(super) fn read(env: &ReadVariable<'_>) -> Self {
        let mut from = VariableReader {
            env,
            ignored: Vec::new(),
        };
        let protocol = from.first(otlp!("PROTOCOL"), protocol);
        let insecure = from.first(otlp!("INSECURE"), boolean).unwrap_or(false);
        let transport = Transport {
            protocol: protocol.unwrap_or(OtlpProtocol::Grpc),
            insecure,
        };
        let is_off = from.first(["OTEL_TRACES_EXPORTER"], exporter) == Some(ExporterChoice::None);
        let endpoints = otlp!("ENDPOINT").map(|name| {
            let endpoint = from.first([name], |text| transport.url(text));
            endpoint.filter(|_| !is_off)
        });
        let [traces_endpoint, endpoint] = endpoints;
        // The endpoint for all signals is hidden from the spans only.
        let hidden = is_off.then(|| (from.env)(otlp!("ENDPOINT")[1])).flatten();
        let hidden = hidden.and_then(|text| transport.url(&text).ok());
        let metrics = from.signal(
            "OTEL_METRICS_EXPORTER",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
            (hidden.as_deref(), Signal::Metrics, transport),
        );
        let logs = from.signal(
            "OTEL_LOGS_EXPORTER",
            "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
            (hidden.as_deref(), Signal::Logs, transport),
        );
        for name in NUMBER_VARIABLES {
            from.first([name], positive);
        }
        for name in SHARED_VARIABLES {
            from.first([name], |_| {
                Err::<(), _>("it is the same for all signals".to_owned())
            });
        }
        let variables = Self {
            endpoint,
            traces_endpoint,
            protocol,
            timeout: from
                .first(otlp!("TIMEOUT"), positive)
                .map(Duration::from_millis),
            compression: from.first(otlp!("COMPRESSION"), compression),
            ca: from.first(otlp!("CERTIFICATE"), path),
            client_certificate: from.first(otlp!("CLIENT_CERTIFICATE"), path),
            client_key: from.first(otlp!("CLIENT_KEY"), path),
            metrics,
            metrics_interval: from
                .first(["OTEL_METRIC_EXPORT_INTERVAL"], positive)
                .map(Duration::from_millis),
            logs,
            sampler: from.sampler(),
            disabled: from.first(["OTEL_SDK_DISABLED"], boolean).unwrap_or(false),
            ignored: Vec::new(),
        };
        headers(&mut from);
        let ignored = from.ignored;
        Self {
            ignored,
            ..variables
        }
    }

    /// The headers of requests to the collector. They usually hold an API key.
    pub(super) fn headers(env: &ReadVariable<'_>) -> Vec<(HeaderName, HeaderValue)> {
        headers(&mut VariableReader {
            env,
            ignored: Vec::new(),
        })
    }
}

struct VariableReader<'a> {
    env: &'a ReadVariable<'a>,
    ignored: Vec<IgnoredVariable>,
}

impl VariableReader<'_> {
    /// The first variable with a right value.
    fn first<T, const N: usize>(
        &mut self,
        names: [&'static str; N],
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        for variable in names {
            let Some(text) = (self.env)(variable) else {
                continue;
            };
            match parse(text.trim()) {
                Ok(value) => return Some(value),
                Err(reason) => self.ignored.push(IgnoredVariable { variable, reason }),
            }
        }
        None
    }

    /// The variables of metrics or logs. `hidden` is the endpoint for all signals, if spans do not use it.
    fn signal(
        &mut self,
        exporters: &'static str,
        endpoint: &'static str,
        (hidden, signal, transport): (Option<&str>, Signal, Transport),
    ) -> SignalVariables {
        let is_enabled = self.first([exporters], exporter) == Some(ExporterChoice::Otlp);
        let endpoint = self.first([endpoint], |text| transport.url(text));
        SignalVariables {
            is_enabled,
            endpoint: endpoint.or_else(|| Some(transport.signal_url(hidden?, signal))),
        }
    }

    fn sampler(&mut self) -> SamplerVariables {
        let Some((kind, is_parent_based)) = self.first(["OTEL_TRACES_SAMPLER"], sampler) else {
            return SamplerVariables::default();
        };
        let share = match kind {
            SamplerKind::All => 1.0,
            SamplerKind::None => 0.0,
            // "1.0 is the default if unset"; a wrong value counts as unset.
            SamplerKind::Ratio => self
                .first(["OTEL_TRACES_SAMPLER_ARG"], ratio)
                .unwrap_or(1.0),
        };
        SamplerVariables {
            share: Some(share),
            on_unsampled_parent: Some(if is_parent_based {
                OnUnsampledParent::Respect
            } else {
                OnUnsampledParent::Episode
            }),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum SamplerKind {
    All,
    None,
    Ratio,
}

fn sampler(text: &str) -> Result<(SamplerKind, bool), String> {
    let (name, is_parent_based) = match text.strip_prefix("parentbased_") {
        Some(name) => (name, true),
        None => (text, false),
    };
    let share = match name {
        "always_on" => SamplerKind::All,
        "always_off" => SamplerKind::None,
        "traceidratio" => SamplerKind::Ratio,
        _ => {
            return Err(
                "only always_on, always_off and traceidratio are known, also with parentbased_"
                    .to_owned(),
            );
        }
    };
    Ok((share, is_parent_based))
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok();
    ratio
        .filter(|ratio| (0.0..=1.0).contains(ratio))
        .ok_or_else(|| "not a number from 0.0 to 1.0".to_owned())
}

#[derive(PartialEq)]
enum ExporterChoice {
    Otlp,
    None,
}

/// Parses a list of exporters. Only `otlp` and `none` are known.
fn exporter(text: &str) -> Result<ExporterChoice, String> {
    let mut names = text.split(',').map(str::trim);
    if names.clone().any(|name| name == "otlp") {
        return Ok(ExporterChoice::Otlp);
    }
    if names.any(|name| name == "none") {
        return Ok(ExporterChoice::None);
    }
    Err("only otlp and none are known".to_owned())
}

fn protocol(text: &str) -> Result<OtlpProtocol, String> {
    match text {
        "grpc" => Ok(OtlpProtocol::Grpc),
        "http/protobuf" => Ok(OtlpProtocol::HttpProtobuf),
        _ => Err("only grpc and http/protobuf are known".to_owned()),
    }
}

fn compression(text: &str) -> Result<OtlpCompression, String> {
    match text {
        "gzip" => Ok(OtlpCompression::Gzip),
        "none" => Ok(OtlpCompression::None),
        _ => Err("only gzip and none are known".to_owned()),
    }
}

/// "Any value that is not true is false"; other words than these two are logged.
fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("neither true nor false".to_owned()),
    }
}

fn positive(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "not a positive whole number".to_owned())
}

fn path(text: &str) -> Result<PathBuf, String> {
    if !Path::new(text).is_absolute() {
        return Err("not an absolute path".to_owned());
    }
    Ok(PathBuf::from(text))
}

/// The transport that completes URLs.
#[derive(Clone, Copy)]
struct Transport {
    protocol: OtlpProtocol,
    insecure: bool,
}

impl Transport {
    /// Parses a URL. Over gRPC the scheme may be missing.
    fn url(self, text: &str) -> Result<String, String> {
        let scheme = match (self.protocol, self.insecure) {
            _ if text.contains("://") => "",
            (OtlpProtocol::Grpc, true) => "http://",
            (OtlpProtocol::Grpc, false) => "https://",
            (OtlpProtocol::HttpProtobuf, _) => "",
        };
        let url = format!("{scheme}{text}");
        match CollectorUrl::check(&url) {
            Ok(_) => Ok(url),
            Err(why) => Err(format!("not the URL of a collector: {why}")),
        }
    }

    /// The URL of a signal, below the base URL of all signals.
    fn signal_url(self, base: &str, signal: Signal) -> String {
        match self.protocol {
            OtlpProtocol::HttpProtobuf => {
                format!("{}{}", base.trim_end_matches('/'), signal.http_path())
            }
            OtlpProtocol::Grpc => base.to_owned(),
        }
    }
}

fn headers(from: &mut VariableReader<'_>) -> Vec<(HeaderName, HeaderValue)> {
    from.first(otlp!("HEADERS"), |text| {
        // "Members with invalid values are ignored" would send requests without the key that they need.
        let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
        pairs.map(pair).collect::<Result<Vec<_>, _>>()
    })
    .unwrap_or_default()
}

/// `NAME=VALUE`, percent-encoded.
fn pair(pair: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = pair.split_once('=').ok_or("a pair has no \"=\"")?;
    let value = percent_encoding::percent_decode_str(value.trim());
    let value = value.decode_utf8().map_err(|_| "a value is not UTF-8")?;
    header(name, &value).map_err(str::to_owned)
}

/// A header whose value is never printed.
pub(super) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    let name = name
        .trim()
        .parse()
        .map_err(|_| "a name is not one of a header")?;
    let mut value = HeaderValue::from_str(value.trim())
        .map_err(|_| "a value has characters that headers cannot have")?;
    value.set_sensitive(true);
    Ok((name, value))
}

#[cfg(test)]
pub(super) mod tests;
