//! Collectors with TLS and over HTTP, and what only they may see: the headers.

use std::fmt::Write as _;

use super::FAST;
use crate::harness::collector::{Seen, Wire};
use crate::harness::pki::{Authority, Pair, Validity};
use crate::prelude::*;

const SECRET: &str = "hunter2-is-a-secret";

const GRPC_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

fn start(fake: &Fake, otlp: &str) -> Start {
    let config = format!("[telemetry.otlp]\n{otlp}\n{FAST}");
    Start::before(crate::CRISCOPE, fake)
        .config(&config)
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
}

/// The settings of a collector with TLS.
fn settings(collector: &Collector, wire: Wire, authority: &Authority) -> String {
    let protocol = match wire {
        Wire::Grpc => "grpc",
        Wire::Http => "http/protobuf",
    };
    format!(
        "endpoint = \"{}\"\nprotocol = \"{protocol}\"\ntls_ca = \"{}\"\ntimeout = \"2s\"\n",
        collector.endpoint(),
        authority.ca().display()
    )
}

fn with_client(settings: &str, pair: &Pair) -> String {
    let (cert, key) = (pair.cert.display(), pair.key.display());
    format!("{settings}tls_cert = \"{cert}\"\ntls_key = \"{key}\"\n")
}

async fn call(proxy: &Proxy) {
    let client = proxy.client().await;
    let got = client.call(Call::plain("StopContainer")).await;
    assert_eq!(got.code(), 0, "{got:?}");
}

/// Whatever criscope shows of itself.
async fn shown(proxy: &Proxy) -> String {
    let mut all = String::new();
    for path in [
        "/",
        "/metrics",
        "/debug/config",
        "/debug/config?format=json",
        "/debug/flight?format=json",
        "/debug/tracez",
    ] {
        let (status, body) = proxy.get(path).await;
        assert_eq!(status, 200, "{path}");
        let _ = writeln!(all, "{body}");
    }
    all
}

fn header(seen: &[Seen], name: &str) -> Option<String> {
    let value = seen.first()?.headers.get(name)?;
    value.to_str().ok().map(str::to_owned)
}

async fn reason(proxy: &Proxy) -> String {
    let line = proxy.wait_event("telemetry.dropped").await;
    line["error.message"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// With everything at once: own authority, client certificate, secret headers, compression.
async fn everything(wire: Wire, path: &str, encoding: &str) {
    let (authority, clients) = (Authority::new(), Authority::new());
    let pair = authority.server("collector");
    let collector = Collector::tls(wire, &pair, Some(&clients.ca())).await;
    let dir = tempfile::tempdir().expect("a directory");
    let headers = dir.path().join("headers");
    let text = format!("# of a vendor\nApi-Key: {SECRET}\nx-scope-orgid: 7\n");
    fs::write(&headers, text).expect("written");
    let mut otlp = settings(&collector, wire, &authority);
    otlp = with_client(&otlp, &clients.client("criscope", Validity::Now));
    let _ = writeln!(
        otlp,
        "compression = \"gzip\"\nheaders_file = \"{}\"",
        headers.display()
    );
    let fake = Fake::new();
    // At this level libraries say what they send.
    let level = "trace,h2=trace,hyper=trace,rustls=trace,tokio_rustls=trace";
    let config = format!("[telemetry.log]\nlevel = \"{level}\"\n[telemetry.otlp]\n{otlp}\n{FAST}");
    let proxy = Start::before(crate::CRISCOPE, &fake)
        .config(&config)
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
        // The file takes precedence.
        .env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=other,y=1")
        .ready()
        .await;
    call(&proxy).await;
    collector.wait_spans(2).await;

    let seen = collector.seen();
    assert_eq!(seen[0].path, path);
    assert_eq!(header(&seen, "api-key").as_deref(), Some(SECRET));
    assert_eq!(header(&seen, "x-scope-orgid").as_deref(), Some("7"));
    assert_eq!(header(&seen, "y"), None);
    assert_eq!(header(&seen, encoding).as_deref(), Some("gzip"));
    let shown = shown(&proxy).await;
    assert!(shown.contains("telemetry.otlp.headers_file"));
    for metric in ["not_after_timestamp_seconds", "last_reload_successful"] {
        let series = format!("criscope_tls_certificate_{metric}{{endpoint=\"otlp\"}} ");
        assert!(shown.contains(&series), "{metric}");
    }
    let log = proxy.stop().await.join("\n");
    assert!(!shown.contains(SECRET) && !log.contains(SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn over_grpc_with_certificates_and_secret_headers() {
    everything(Wire::Grpc, GRPC_PATH, "grpc-encoding").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_with_certificates_and_secret_headers() {
    everything(Wire::Http, "/v1/traces", "content-encoding").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_alone_is_enough() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let pair = authority.server("collector");
    let collector = Collector::tls(Wire::Http, &pair, Some(&clients.ca())).await;
    let client = clients.client("criscope", Validity::Now);
    let path = |path: &Path| path.to_str().expect("text").to_owned();
    let fake = Fake::new();
    let proxy = Start::before(crate::CRISCOPE, &fake)
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
        .env(
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            &format!("{}/own/path", collector.endpoint()),
        )
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        .env("OTEL_EXPORTER_OTLP_CERTIFICATE", &path(&authority.ca()))
        .env("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &path(&client.cert))
        .env("OTEL_EXPORTER_OTLP_CLIENT_KEY", &path(&client.key))
        .env("OTEL_EXPORTER_OTLP_HEADERS", &format!("api-key={SECRET}"))
        .env("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd")
        .env("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "")
        .ready()
        .await;
    let ignored = proxy.wait_event("config.environment").await;
    assert_eq!(ignored["variable"], "OTEL_EXPORTER_OTLP_COMPRESSION");
    call(&proxy).await;
    collector.wait_spans(2).await;
    let seen = collector.seen();
    assert_eq!(seen[0].path, "/own/path");
    assert_eq!(header(&seen, "api-key").as_deref(), Some(SECRET));
    let shown = shown(&proxy).await;
    // What the environment sets is in effect, and shown; the headers are not.
    assert!(shown.contains("/own/path") && shown.contains("http/protobuf"));
    let log = proxy.stop().await.join("\n");
    assert!(!shown.contains(SECRET) && !log.contains(SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_of_another_authority_gets_nothing() {
    for wire in [Wire::Grpc, Wire::Http] {
        let (authority, other) = (Authority::new(), Authority::new());
        let collector = Collector::tls(wire, &authority.server("collector"), None).await;
        let fake = Fake::new();
        let proxy = start(&fake, &settings(&collector, wire, &other));
        let proxy = proxy.ready().await;
        call(&proxy).await;
        let reason = reason(&proxy).await;
        assert!(
            reason.contains("invalid peer certificate: UnknownIssuer"),
            "{reason}"
        );
        assert_eq!(collector.seen().len(), 0);
        proxy.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_valid_certificate_is_told_so() {
    for wire in [Wire::Grpc, Wire::Http] {
        let (authority, clients) = (Authority::new(), Authority::new());
        let pair = authority.server("collector");
        let collector = Collector::tls(wire, &pair, Some(&clients.ca())).await;
        let without = settings(&collector, wire, &authority);
        let expired = with_client(&without, &clients.client("criscope", Validity::Over));
        for (otlp, alert) in [
            (&without, "CertificateRequired"),
            (&expired, "CertificateExpired"),
        ] {
            let fake = Fake::new();
            let proxy = start(&fake, otlp).ready().await;
            call(&proxy).await;
            let reason = reason(&proxy).await;
            assert!(reason.contains(alert), "{wire:?}: {reason}");
            assert_eq!(collector.seen().len(), 0);
            proxy.stop().await;
        }
    }
}

/// Files are read for each connection: what is wrong or missing at the start may become right.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_may_come_later() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let pair = authority.server("collector");
    let collector = Collector::tls(Wire::Grpc, &pair, Some(&clients.ca())).await;
    let client = clients.client("criscope", Validity::Over);
    let otlp = settings(&collector, Wire::Grpc, &authority);
    let otlp = with_client(&otlp, &client);
    fs::remove_file(&client.cert).expect("removed");
    let fake = Fake::new();
    let proxy = start(&fake, &otlp).ready().await;
    call(&proxy).await;
    let reason = reason(&proxy).await;
    assert!(reason.contains("criscope.crt"), "{reason}");
    clients.client("criscope", Validity::Now);
    call(&proxy).await;
    collector.wait_spans(2).await;
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_refuses_over_http_costs_spans_only() {
    let collector = Collector::http(Manner::Refuses).await;
    let fake = Fake::new();
    let otlp = format!(
        "endpoint = \"{}\"\nprotocol = \"http/protobuf\"\n",
        collector.endpoint()
    );
    let proxy = start(&fake, &otlp).ready().await;
    call(&proxy).await;
    let reason = reason(&proxy).await;
    assert!(
        reason.contains("the collector answered http status 400"),
        "{reason}"
    );
    assert_eq!(collector.seen().len(), 1, "not retried");
    proxy.stop().await;
}
