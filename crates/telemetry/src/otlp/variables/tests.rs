//! Precedence, wrong values, and what they mean here.

use super::*;

pub(crate) fn env<'a>(set: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
    move |name| {
        let found = set.iter().find(|(n, v)| *n == name && !v.is_empty());
        found.map(|(_, v)| (*v).to_owned())
    }
}

fn read(set: &[(&str, &str)]) -> OtelVariables {
    OtelVariables::read(&env(set))
}

fn ignored(set: &[(&str, &str)]) -> Vec<&'static str> {
    let ignored = read(set).ignored;
    ignored.into_iter().map(|it| it.variable).collect()
}

#[test]
fn variables_for_traces_take_precedence() {
    let all = read(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://a:4318/otlp"),
        (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "http://b:4318/v1/traces",
        ),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "500"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca"),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/crt"),
        ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "/key"),
    ]);
    let path = |text: &str| Some(PathBuf::from(text));
    let wanted = OtelVariables {
        endpoint: Some("https://a:4318/otlp".to_owned()),
        traces_endpoint: Some("http://b:4318/v1/traces".to_owned()),
        protocol: Some(OtlpProtocol::HttpProtobuf),
        timeout: Some(Duration::from_millis(500)),
        compression: Some(OtlpCompression::Gzip),
        ca: path("/ca"),
        client_certificate: path("/crt"),
        client_key: path("/key"),
        ..OtelVariables::default()
    };
    assert_eq!(all, wanted);
    assert_eq!(read(&[]), OtelVariables::default());
}

#[test]
fn a_wrong_value_is_ignored_and_not_repeated() {
    let wrong = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:hunter2@a:4317"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "ca.pem"),
        ("OTEL_EXPORTER_OTLP_INSECURE", "yes"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "key=hunter2\u{1}"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_TRACES_SAMPLER", "xray"),
        ("OTEL_SDK_DISABLED", "1"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-1"),
    ];
    let read = read(&wrong);
    let mut names: Vec<_> = read.ignored.iter().map(|it| it.variable).collect();
    let mut all = wrong.map(|(name, _)| name).to_vec();
    names.sort_unstable();
    all.sort_unstable();
    assert_eq!(names, all);
    assert!(!format!("{read:?}").contains("hunter2"));
    let without = OtelVariables {
        ignored: Vec::new(),
        ..read
    };
    assert_eq!(without, OtelVariables::default());
    // The one for all signals then counts.
    let set = [
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
    ];
    assert_eq!(self::read(&set).protocol, Some(OtlpProtocol::HttpProtobuf));
}

#[test]
fn insecure_is_for_endpoints_without_a_scheme() {
    let any = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let insecure = ("OTEL_EXPORTER_OTLP_INSECURE", "True");
    let http = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
    let endpoint = |set: &[(&str, &str)]| read(set).endpoint;
    assert_eq!(endpoint(&[(any, "a:1")]).as_deref(), Some("https://a:1"));
    let set = [(any, "a:1"), insecure];
    assert_eq!(endpoint(&set).as_deref(), Some("http://a:1"));
    let set = [(any, "https://a:1"), insecure];
    assert_eq!(endpoint(&set).as_deref(), Some("https://a:1"));
    assert_eq!(endpoint(&[(any, "a:1"), http]), None);
    assert_eq!(ignored(&[(any, "a:1"), http]), [any]);
}

#[test]
fn an_exporter_of_none_hides_the_endpoints_of_the_environment() {
    let any = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a");
    for (exporter, is_there) in [("none", false), ("otlp", true), ("console,otlp", true)] {
        let read = read(&[any, ("OTEL_TRACES_EXPORTER", exporter)]);
        assert_eq!(read.endpoint.is_some(), is_there, "{exporter}");
    }
}

#[test]
fn samplers_are_shares_of_episodes() {
    let sampler = |name, arg: &str| {
        let set = [
            ("OTEL_TRACES_SAMPLER", name),
            ("OTEL_TRACES_SAMPLER_ARG", arg),
        ];
        let sampler = read(&set).sampler;
        (sampler.share, sampler.on_unsampled_parent)
    };
    let (own, respect) = (OnUnsampledParent::Episode, OnUnsampledParent::Respect);
    for (name, arg, share, on_unsampled_parent) in [
        ("always_on", "0.5", 1.0, own),
        ("always_off", "", 0.0, own),
        ("traceidratio", "0.5", 0.5, own),
        ("parentbased_always_on", "", 1.0, respect),
        ("parentbased_traceidratio", "0.25", 0.25, respect),
        ("parentbased_traceidratio", "2", 1.0, respect),
    ] {
        let wanted = (Some(share), Some(on_unsampled_parent));
        assert_eq!(sampler(name, arg), wanted, "{name}");
    }
    assert_eq!(sampler("jaeger_remote", ""), (None, None));
}

#[test]
fn headers_are_percent_decoded_and_sensitive() {
    let name = "OTEL_EXPORTER_OTLP_HEADERS";
    let headers = OtelVariables::headers(&env(&[(name, "api-key = hunter%202, x=1")]));
    let text: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().expect("text")))
        .collect();
    assert_eq!(text, [("api-key", "hunter 2"), ("x", "1")]);
    assert!(!format!("{headers:?}").contains("hunter"));
    let traces = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "y=2");
    let headers = OtelVariables::headers(&env(&[(name, "x=1"), traces]));
    assert_eq!(headers.len(), 1);
    assert_eq!(headers[0].0, "y");
}

#[test]
fn metrics_and_logs_are_exported_if_that_is_enabled_for() {
    let read_all = |set: &[(&str, &str)]| {
        let read = read(set);
        assert_eq!(read.ignored, []);
        (read.metrics, read.logs)
    };
    let other = |is_enabled, endpoint: Option<&str>| SignalVariables {
        is_enabled,
        endpoint: endpoint.map(str::to_owned),
    };
    let any = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318");
    let none = (other(false, None), other(false, None));
    assert_eq!(read_all(&[any]), none);
    let asked = ("OTEL_METRICS_EXPORTER", "otlp");
    let own = ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://b:1/x");
    let wanted = (other(true, None), other(false, Some("http://b:1/x")));
    assert_eq!(read_all(&[any, asked, own]), wanted);
    // Without spans, the endpoint for all signals is still that of the others.
    let no_spans = ("OTEL_TRACES_EXPORTER", "none");
    let (metrics, _) = read_all(&[any, asked, no_spans]);
    assert_eq!(metrics, other(true, Some("http://a:4318")));
    let http = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
    let (metrics, _) = read_all(&[any, asked, no_spans, http]);
    assert_eq!(metrics, other(true, Some("http://a:4318/v1/metrics")));
    let interval = [("OTEL_METRIC_EXPORT_INTERVAL", "5000")];
    assert_eq!(
        read(&interval).metrics_interval,
        Some(Duration::from_secs(5))
    );
}

#[test]
fn signals_differ_in_their_endpoints_only() {
    let own = "OTEL_EXPORTER_OTLP_METRICS_HEADERS";
    assert_eq!(ignored(&[(own, "key=hunter2")]), [own]);
}
