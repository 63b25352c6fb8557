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
pub(super) type Env<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Reads the environment of this process.
pub(super) fn of_process(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.trim().is_empty())
}

/// A variable that is set and ignored. Values are not repeated: some are secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Its name.
    pub variable: &'static str,
    /// Why.
    pub reason: String,
}

/// `OTEL_TRACES_SAMPLER` and its argument.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampler {
    /// Share of the episodes, and of the mutating calls outside of them.
    pub share: Option<f64>,
    /// Of a sampler that begins with `parentbased_`.
    pub on_unsampled_parent: Option<OnUnsampledParent>,
}

/// What the variables set for metrics or logs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Other {
    /// Whether the exporter is `otlp`. Without that the signal is not exported.
    pub is_asked: bool,
    /// The endpoint for this signal alone.
    pub endpoint: Option<String>,
}

/// What the variables set, without the headers, which are secret.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variables {
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
    pub metrics: Other,
    /// `OTEL_METRIC_EXPORT_INTERVAL`
    pub metrics_interval: Option<Duration>,
    /// `OTEL_LOGS_EXPORTER` and `OTEL_EXPORTER_OTLP_LOGS_ENDPOINT`
    pub logs: Other,
    /// `OTEL_TRACES_SAMPLER`
    pub sampler: Sampler,
    /// `OTEL_SDK_DISABLED`
    pub disabled: bool,
    /// What is ignored.
    pub ignored: Vec<Ignored>,
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
const NUMBERS: [&str; 7] = [
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_BSP_EXPORT_TIMEOUT",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_BLRP_SCHEDULE_DELAY",
    "OTEL_BLRP_MAX_QUEUE_SIZE",
    "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE",
];

/// Variables of metrics and logs for what is the same for all signals.
macro_rules! shared {
    ($($name:literal)*) => {
        [$(
            concat!("OTEL_EXPORTER_OTLP_METRICS_", $name),
            concat!("OTEL_EXPORTER_OTLP_LOGS_", $name),
        )*]
    };
}
const SHARED: [&str; 16] = shared!(
    "PROTOCOL" "INSECURE" "HEADERS" "TIMEOUT" "COMPRESSION" "CERTIFICATE" "CLIENT_CERTIFICATE" "CLIENT_KEY"
);

impl Variables {
    /// Those of this process.
    pub fn of_process() -> Self {
        Self::read(&of_process)
    }

    pub(super) fn read(env: &Env<'_>) -> Self {
        let mut from = Source {
            env,
            ignored: Vec::new(),
        };
        let protocol = from.first(otlp!("PROTOCOL"), protocol);
        let insecure = from.first(otlp!("INSECURE"), boolean).unwrap_or(false);
        let url = |text: &str| url(text, protocol.unwrap_or(OtlpProtocol::Grpc), insecure);
        let is_off = from.first(["OTEL_TRACES_EXPORTER"], exporter) == Some(Exporter::None);
        let endpoints = otlp!("ENDPOINT").map(|name| {
            let endpoint = from.first([name], url);
            endpoint.filter(|_| !is_off)
        });
        let [traces_endpoint, endpoint] = endpoints;
        let any = is_off.then(|| (from.env)(otlp!("ENDPOINT")[1])).flatten();
        let mut other = |exporters, own, signal: Signal| {
            let is_asked = from.first([exporters], exporter) == Some(Exporter::Otlp);
            // The one for all signals is hidden from the spans only.
            let any = any.as_deref().and_then(|text| url(text).ok());
            let any = any.map(|base| match protocol {
                Some(OtlpProtocol::HttpProtobuf) => {
                    format!("{}{}", base.trim_end_matches('/'), signal.http_path())
                }
                _ => base,
            });
            let endpoint = from.first([own], url).or(any);
            Other { is_asked, endpoint }
        };
        let metrics = other(
            "OTEL_METRICS_EXPORTER",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
            Signal::Metrics,
        );
        let logs = other(
            "OTEL_LOGS_EXPORTER",
            "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
            Signal::Logs,
        );
        for name in NUMBERS {
            from.first([name], positive);
        }
        for name in SHARED {
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
    pub(super) fn headers(env: &Env<'_>) -> Vec<(HeaderName, HeaderValue)> {
        headers(&mut Source {
            env,
            ignored: Vec::new(),
        })
    }
}

struct Source<'a> {
    env: &'a Env<'a>,
    ignored: Vec<Ignored>,
}

impl Source<'_> {
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
                Err(reason) => self.ignored.push(Ignored { variable, reason }),
            }
        }
        None
    }

    fn sampler(&mut self) -> Sampler {
        let Some((kind, is_parent_based)) = self.first(["OTEL_TRACES_SAMPLER"], sampler) else {
            return Sampler::default();
        };
        let share = match kind {
            Share::All => 1.0,
            Share::None => 0.0,
            // "1.0 is the default if unset"; a wrong one counts as unset.
            Share::Ratio => self
                .first(["OTEL_TRACES_SAMPLER_ARG"], ratio)
                .unwrap_or(1.0),
        };
        Sampler {
            share: Some(share),
            on_unsampled_parent: Some(match is_parent_based {
                true => OnUnsampledParent::Respect,
                false => OnUnsampledParent::Episode,
            }),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Share {
    All,
    None,
    Ratio,
}

fn sampler(text: &str) -> Result<(Share, bool), String> {
    let (name, is_parent_based) = match text.strip_prefix("parentbased_") {
        Some(name) => (name, true),
        None => (text, false),
    };
    let share = match name {
        "always_on" => Share::All,
        "always_off" => Share::None,
        "traceidratio" => Share::Ratio,
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
enum Exporter {
    Otlp,
    None,
}

/// A list, of which `otlp` and `none` are known.
fn exporter(text: &str) -> Result<Exporter, String> {
    let mut names = text.split(',').map(str::trim);
    if names.clone().any(|name| name == "otlp") {
        return Ok(Exporter::Otlp);
    }
    match names.any(|name| name == "none") {
        true => Ok(Exporter::None),
        false => Err("only otlp and none are known".to_owned()),
    }
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
    match Path::new(text).is_absolute() {
        true => Ok(PathBuf::from(text)),
        false => Err("not an absolute path".to_owned()),
    }
}

/// A URL; over gRPC the scheme may be missing.
fn url(text: &str, protocol: OtlpProtocol, insecure: bool) -> Result<String, String> {
    let scheme = match (protocol, insecure) {
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

fn headers(from: &mut Source<'_>) -> Vec<(HeaderName, HeaderValue)> {
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
