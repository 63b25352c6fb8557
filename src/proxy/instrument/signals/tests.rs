//! Metrics and log lines of calls.

mod recording;
mod spans;
mod stuck;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use prometheus::proto::MetricType;
use serde_json::json;

use self::recording::observer;
use super::*;
use crate::call::{Client, Peer, Route, RouteReason, Source};
use crate::catalogue::CATALOGUE;
use crate::config::Config;
use crate::cri::Method;
use crate::cri::method::ApiVersion;
use crate::cri::status::{CODES, Code};
use crate::cri::subject::{ContainerIdentity, PodIdentity, ResponseDetails, Subject};
use crate::lifecycle::containerd::metrics::EventMetrics;
use crate::lifecycle::otlp_receiver::metrics::ReceiverMetrics;
use crate::lifecycle::process_scanner::metrics::ScanMetrics;
use crate::proxy::instrument::in_flight::InFlightCalls;
use crate::proxy::listener::metrics::ConnectionMetrics;
use crate::proxy::pod_index::PodIndex;
use crate::proxy::{backend, pod_index};
use crate::telemetry::Drops;
use crate::telemetry::logging::testing::logged;
use crate::telemetry::metric::{Metric, MetricKind, Values};
use crate::telemetry::process::{self, ConfigHash};
use crate::telemetry::registry::series;
use crate::telemetry::settings::LogFormat;

const BACKEND: &str = "upstream";

fn config() -> Config {
    Config::with_upstream("/run/containerd/containerd.sock".into())
}

fn registry() -> Registry {
    Registry::new(prometheus::Registry::new(), [BACKEND.to_owned()])
}

fn signals(registry: &Registry) -> CallSignals {
    CallSignals::new(registry, &(&config()).into(), None, observer()).expect("signals")
}

fn call(method: Method) -> Call {
    let peer = Peer {
        client: Client::Kubelet,
        pid: Some(4711),
        comm: Some("kubelet".into()),
    };
    let deadline = Some(Duration::from_secs(120));
    let mut call = Call::new(9, method, ApiVersion::V1, deadline, Arc::new(peer), None);
    if method == Method::Other {
        call.other_path = Some("/runtime.v9.RuntimeService/Fly".into());
    }
    call
}

fn route(call: &Call, backend: &str, reason: RouteReason) {
    call.route
        .set(Route {
            backend: backend.into(),
            reason,
        })
        .expect("once");
}

/// A call about a container, with every optional field set.
fn full(method: Method) -> Call {
    let call = call(method);
    let subject = Subject {
        pod: Some(Arc::new(PodIdentity {
            namespace: "shop".into(),
            name: "web-0".into(),
            uid: "5f3c".into(),
            attempt: 1,
        })),
        sandbox_id: Some("sb1".into()),
        container: Some(Arc::new(ContainerIdentity {
            name: "app".into(),
            attempt: 2,
        })),
        container_id: None,
        image: Some("registry:5000/app:1.2@sha256:ab".into()),
        handler: Some("runc".into()),
        origin: None,
        timeout: Some(30),
        request: None,
        limits: None,
    };
    call.subject.set(subject).expect("once");
    let answer = ResponseDetails {
        container_id: Some("c1".into()),
        ..ResponseDetails::default()
    };
    call.response.set(answer).expect("once");
    route(&call, BACKEND, RouteReason::Default);
    call.add_request_bytes(100);
    call.add_response_bytes(30);
    call
}

fn outcome(ending: Ending, code: Code, elapsed: Duration) -> Outcome {
    let message = (code != Code::Ok).then(|| "no such thing".into());
    Outcome {
        ending,
        code,
        source: Source::Backend,
        message,
        elapsed,
    }
}

fn ok() -> Outcome {
    outcome(Ending::Ok, Code::Ok, Duration::from_millis(5))
}

fn text(registry: &Registry) -> String {
    String::from_utf8(registry.encode().expect("encodes")).expect("utf-8")
}

#[track_caller]
fn assert_line(text: &str, line: &str) {
    assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
}

/// A registry in which every metric has a series.
fn populated() -> Registry {
    let registry = registry();
    let signals = signals(&registry);
    for method in Method::ALL {
        for ending in Ending::ALL {
            for code in CODES {
                let call = full(method);
                signals.begin(&call);
                call.backend_begins();
                call.backend_ends();
                signals.stuck(&call, &stuck::report(50));
                signals.end(&call, &outcome(ending, code, Duration::from_millis(1)));
            }
        }
    }
    let in_flight = Arc::<InFlightCalls>::default();
    let pull = Arc::new(call(Method::PullImage));
    pull.reaches(50);
    // It stays in flight.
    std::mem::forget(in_flight.enter(pull));
    watch_in_flight(&registry, &in_flight).expect("once");
    let connections = ConnectionMetrics::new(&registry).expect("once");
    Client::ALL.into_iter().for_each(|c| connections.opened(c));
    backend::metrics::populate(&registry, BACKEND);
    pod_index::metrics::register(&registry, &Arc::new(PodIndex::new(1, 1))).expect("once");
    ScanMetrics::new(&registry).expect("once");
    EventMetrics::new(&registry).expect("once");
    ReceiverMetrics::new(&registry).expect("once");
    Arc::new(Drops::default())
        .register(&registry)
        .expect("once");
    let config = ConfigHash::default();
    config.set("c0ffee");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("runtime");
    crate::proxy::faults::metrics::populate(&registry);
    crate::lifecycle::metrics::populate(&registry);
    crate::streaming::metrics::populate(&registry);
    crate::tls::metrics::populate(&registry);
    crate::runtime::metrics::populate(&registry);
    crate::proxy::sessions::metrics::populate(&registry);
    process::register(&registry, config, vec![runtime.handle().clone()]).expect("once");
    registry
}

#[test]
fn the_catalogue_matches_a_scrape() {
    let families = populated().gather();
    let scraped: BTreeSet<_> = families.iter().map(|f| f.name().to_owned()).collect();
    let by_agent = crate::lifecycle::node::rollout::METRICS.iter();
    let by_agent: BTreeSet<_> = by_agent.map(|m| m.full_name()).collect();
    let listed: BTreeSet<_> = CATALOGUE.iter().map(|m| m.full_name()).collect();
    assert_eq!(scraped, &listed - &by_agent);

    for family in &families {
        let metric: &Metric = CATALOGUE
            .iter()
            .find(|m| m.full_name() == family.name())
            .expect("listed");
        let kind = match family.get_field_type() {
            MetricType::COUNTER => MetricKind::Counter,
            MetricType::GAUGE => MetricKind::Gauge,
            MetricType::HISTOGRAM => MetricKind::Histogram,
            other => panic!("{}: {other:?}", family.name()),
        };
        assert_eq!(kind, metric.kind, "{}", metric.name);
        assert_eq!(family.help(), metric.help);
        let names: BTreeSet<_> = metric.labels.iter().map(|l| l.name).collect();
        for sample in family.get_metric() {
            let found: BTreeSet<_> = sample.get_label().iter().map(|l| l.name()).collect();
            assert_eq!(found, names, "{}", metric.name);
            for pair in sample.get_label() {
                let label = metric
                    .labels
                    .iter()
                    .find(|l| l.name == pair.name())
                    .expect("listed");
                match label.values {
                    Values::Fixed(values) => assert!(
                        values.contains(&pair.value()),
                        "{}: {}",
                        metric.name,
                        pair.value()
                    ),
                    Values::Backends => assert_eq!(pair.value(), BACKEND),
                    Values::Handlers => assert!(["default", "other"].contains(&pair.value())),
                    Values::One(_) => assert_eq!(family.get_metric().len(), 1),
                }
            }
        }
    }
}

#[test]
fn promtool_accepts_a_scrape() {
    let spawned = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = spawned.expect("promtool is needed (Debian package prometheus)");
    let scrape = populated().encode().expect("encodes");
    promtool
        .stdin
        .take()
        .expect("stdin")
        .write_all(&scrape)
        .expect("written");
    let output = promtool.wait_with_output().expect("promtool ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success() && said.is_empty(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}

/// The conformance suite makes 33 kinds of calls, and some ten of them fail.
#[test]
fn the_series_of_a_node_stay_within_budget() {
    let registry = registry();
    let signals = signals(&registry);
    let error = outcome(Ending::Error, Code::NotFound, Duration::ZERO);
    let calls = Method::ALL.into_iter().take(33).map(|m| (m, ok()));
    for (method, outcome) in
        calls.chain(Method::ALL.into_iter().take(10).map(|m| (m, error.clone())))
    {
        let call = full(method);
        call.backend_begins();
        signals.begin(&call);
        signals.end(&call, &outcome);
    }
    let others = CATALOGUE.len() + 50;
    let series = series(&registry.gather());
    assert!(series + others < 2000, "{series} and {others}");
}

#[test]
fn one_call_counts_once_everywhere() {
    let registry = registry();
    let signals = signals(&registry);
    let call = full(Method::ListContainers);
    signals.begin(&call);
    assert_line(
        &text(&registry),
        "criscope_rpc_in_flight{method=\"ListContainers\"} 1",
    );
    call.backend_begins();
    call.backend_ends();
    signals.end(&call, &ok());
    let text = text(&registry);
    for line in [
        "criscope_rpc_in_flight{method=\"ListContainers\"} 0",
        "criscope_rpc_total{client=\"kubelet\",code=\"OK\",method=\"ListContainers\"} 1",
        "criscope_rpc_duration_seconds_bucket{method=\"ListContainers\",outcome=\"ok\",le=\"0.0025\"} 0",
        "criscope_rpc_duration_seconds_bucket{method=\"ListContainers\",outcome=\"ok\",le=\"0.005\"} 1",
        "criscope_rpc_duration_seconds_sum{method=\"ListContainers\",outcome=\"ok\"} 0.005",
        "criscope_rpc_response_bytes_sum{method=\"ListContainers\"} 30",
        "criscope_backend_rpc_duration_seconds_count{backend=\"upstream\",method=\"ListContainers\",outcome=\"ok\"} 1",
        "criscope_proxy_overhead_seconds_count 1",
        "criscope_route_decisions_total{backend=\"upstream\",reason=\"default\"} 1",
    ] {
        assert_line(&text, line);
    }
    assert!(
        !text.contains("Version"),
        "a series of a method that was not called"
    );
}

#[test]
fn overhead_and_sizes_are_recorded_only_where_meaningful() {
    let table = [
        (Method::Version, ok(), true, 1, 0),
        (Method::ListImages, ok(), true, 1, 1),
        (Method::StreamImages, ok(), true, 0, 1),
        (Method::GetContainerEvents, ok(), true, 0, 0),
        (Method::Other, ok(), true, 0, 0),
        (Method::Version, ok(), false, 0, 0),
        (
            Method::ListImages,
            outcome(Ending::Error, Code::Unknown, Duration::ZERO),
            true,
            0,
            0,
        ),
        (
            Method::ListImages,
            outcome(Ending::Cancelled, Code::Cancelled, Duration::ZERO),
            true,
            0,
            0,
        ),
    ];
    for (method, outcome, asked, overhead, sizes) in table {
        let registry = registry();
        let signals = signals(&registry);
        let call = full(method);
        if asked {
            call.backend_begins();
            call.backend_ends();
        }
        signals.begin(&call);
        signals.end(&call, &outcome);
        let families = registry.gather();
        let count = |name: &str| {
            let family = families.iter().find(|f| f.name() == name);
            family.map_or(0, |f| f.get_metric()[0].get_histogram().get_sample_count())
        };
        assert_eq!(
            count("criscope_proxy_overhead_seconds"),
            overhead,
            "{method} {outcome:?}"
        );
        assert_eq!(
            count("criscope_rpc_response_bytes"),
            sizes,
            "{method} {outcome:?}"
        );
    }
}

#[test]
fn a_call_to_several_backends_has_their_common_label() {
    let registry = registry();
    let signals = signals(&registry);
    let call = Call::example(Method::ListContainers);
    route(&call, "upstream+other", RouteReason::All);
    signals.begin(&call);
    signals.end(&call, &ok());
    assert_line(
        &text(&registry),
        "criscope_route_decisions_total{backend=\"_ALL\",reason=\"all\"} 1",
    );
}

#[test]
fn log_lines_of_calls_have_the_documented_keys() {
    let signals = signals(&registry());
    let written = logged("info", LogFormat::Json, |_| {
        let mut call = full(Method::CreateContainer);
        let rules = LiveSamplingRules::new(&config().telemetry.sampling);
        call.trace = Some(propagation::begin(
            &HeaderMap::new(),
            Method::CreateContainer,
            &rules.load(),
        ));
        signals.end(
            &call,
            &outcome(
                Ending::Error,
                Code::Unavailable,
                Duration::from_micros(1500),
            ),
        );
        let other = self::call(Method::Other);
        signals.end(&other, &ok());
        signals.end(
            &self::call(Method::PullImage),
            &outcome(Ending::Cancelled, Code::Cancelled, Duration::ZERO),
        );
    });
    let mut lines = written.objects();
    for key in ["trace_id", "span_id", "ts"] {
        let value = lines[0]
            .as_object_mut()
            .expect("object")
            .remove(key)
            .expect(key);
        assert!(value.as_str().is_some_and(|v| v.len() >= 16), "{key}");
    }
    assert_eq!(
        lines[0],
        json!({
            "level": "warn", "target": "criscope::rpc", "event": "rpc.end", "msg": "call ended", "seq": 9,
            "rpc.method": "runtime.v1.RuntimeService/CreateContainer", "rpc.status_code": "UNAVAILABLE",
            "duration_ms": 1.5, "criscope.deadline_ms": 120000, "criscope.client": "kubelet", "criscope.client.pid": 4711,
            "criscope.backend": "upstream", "k8s.pod.uid": "5f3c", "k8s.pod.name": "web-0", "k8s.namespace.name": "shop",
            "criscope.sandbox.id": "sb1", "criscope.sandbox.attempt": 1, "container.id": "c1", "k8s.container.name": "app",
            "k8s.container.restart_count": 2, "criscope.image.ref": "registry:5000/app:1.2@sha256:ab",
            "error.type": "UNAVAILABLE", "criscope.error.source": "backend", "error.message": "no such thing"
        })
    );
    lines[1].as_object_mut().expect("object").remove("ts");
    assert_eq!(
        lines[1],
        json!({
            "level": "info", "target": "criscope::rpc", "event": "rpc.end", "msg": "call ended", "seq": 9,
            "rpc.method": "_OTHER", "rpc.method_original": "runtime.v9.RuntimeService/Fly",
            "rpc.status_code": "OK", "duration_ms": 5.0, "criscope.deadline_ms": 120000, "criscope.client": "kubelet",
            "criscope.client.pid": 4711
        })
    );
    assert_eq!(lines[2]["event"], "rpc.cancelled");
    assert_eq!(lines[2]["rpc.status_code"], "CANCELLED");
}
