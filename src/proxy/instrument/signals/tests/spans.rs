//! Spans of calls, and which calls have any.

use std::sync::OnceLock;

use opentelemetry::Value;
use opentelemetry::trace::{SpanKind, Status};
use opentelemetry_sdk::trace::SpanData;

use super::recording::recording;
use super::*;
use crate::call::episode::Ids;
use crate::call::steps::{RuntimeStep, RuntimeSteps, StepOutcome};
use crate::lifecycle::recorder::FlightRecorder;
use crate::telemetry::otlp::testing::{Behaviour, Exported, sink};
use crate::telemetry::sampling::testing::sampling;
use crate::telemetry::settings::MethodSampling;
use crate::testing::PATIENCE;

/// Runs calls through signals with a sink and returns what was exported.
async fn exported(run: impl FnOnce(&CallSignals)) -> Vec<SpanData> {
    let taken = Exported::default();
    let (sink, _) = sink(Behaviour::Take(taken.clone()), 100, PATIENCE);
    let signals = CallSignals::new(
        &registry(),
        &(&config()).into(),
        Some(sink.clone()),
        observer(),
    )
    .expect("signals");
    run(&signals);
    tokio::task::spawn_blocking(move || sink.finish())
        .await
        .expect("finish");
    taken.lock().expect("lock").clone()
}

fn attribute(span: &SpanData, key: &str) -> Option<Value> {
    span.attributes
        .iter()
        .find(|a| a.key.as_str() == key)
        .map(|a| a.value.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn spans_of_a_call_follow_the_conventions() {
    let mut headers = HeaderMap::new();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    headers.insert("traceparent", parent.parse().expect("value"));
    headers.insert("tracestate", "a=1".parse().expect("value"));
    let trace = OnceLock::new();
    let started = OnceLock::new();
    let spans = exported(|signals| {
        let mut call = full(Method::CreateContainer);
        call.trace = signals.trace(&headers, Method::CreateContainer);
        call.backend_begins();
        trace
            .set(call.trace.clone().expect("traced"))
            .expect("once");
        started.set(call.started_at).expect("once");
        signals.end(
            &call,
            &outcome(Ending::Error, Code::NotFound, Duration::from_millis(20)),
        );
    })
    .await;
    let trace = trace.get().expect("set");
    let [client, server] = &spans[..] else {
        panic!("{} spans", spans.len())
    };

    for span in [client, server] {
        assert_eq!(span.name, "runtime.v1.RuntimeService/CreateContainer");
        assert_eq!(
            span.span_context.trace_id().to_string(),
            "0af7651916cd43dd8448eb211c80319c"
        );
        assert!(span.span_context.is_sampled());
        assert_eq!(span.span_context.trace_state().header(), "a=1");
        assert_eq!(span.instrumentation_scope.name(), "criscope");
        assert_eq!(
            span.end_time,
            *started.get().expect("set") + Duration::from_millis(20)
        );
        for (key, value) in [
            ("rpc.system.name", "grpc"),
            ("rpc.method", "runtime.v1.RuntimeService/CreateContainer"),
            ("rpc.status_code", "NOT_FOUND"),
            ("criscope.mode", "proxy"),
            ("criscope.backend", "upstream"),
            ("criscope.client", "kubelet"),
            ("criscope.client.pid", "4711"),
            ("criscope.deadline_ms", "120000"),
            ("criscope.request.bytes", "100"),
            ("criscope.response.bytes", "30"),
            ("k8s.namespace.name", "shop"),
            ("k8s.pod.name", "web-0"),
            ("k8s.pod.uid", "5f3c"),
            ("criscope.sandbox.id", "sb1"),
            ("criscope.sandbox.attempt", "1"),
            ("k8s.container.name", "app"),
            ("k8s.container.restart_count", "2"),
            ("container.id", "c1"),
            ("container.image.name", "registry:5000/app"),
            ("container.image.tags", "[\"1.2\"]"),
            (
                "container.image.repo_digests",
                "[\"registry:5000/app@sha256:ab\"]",
            ),
            ("criscope.runtime_handler", "runc"),
        ] {
            assert_eq!(
                attribute(span, key).map(|v| v.to_string()).as_deref(),
                Some(value),
                "{key}"
            );
        }
    }
    assert_eq!(server.span_kind, SpanKind::Server);
    assert_eq!(server.span_context.span_id(), trace.server);
    assert_eq!(server.parent_span_id.to_string(), "b7ad6b7169203331");
    assert!(server.parent_span_is_remote);
    assert_eq!(server.start_time, *started.get().expect("set"));
    assert_eq!(
        server.status,
        Status::Unset,
        "not found is not the server's fault"
    );
    assert_eq!(attribute(server, "error.type"), None);
    assert_eq!(
        attribute(server, "server.address"),
        Some("/run/criscope/criscope.sock".into())
    );

    assert_eq!(client.span_kind, SpanKind::Client);
    assert_eq!(client.span_context.span_id(), trace.client);
    assert_eq!(client.parent_span_id, trace.server);
    assert!(!client.parent_span_is_remote);
    assert!(client.start_time > server.start_time);
    assert_eq!(client.status, Status::error("no such thing"));
    assert_eq!(attribute(client, "error.type"), Some("NOT_FOUND".into()));
    assert_eq!(
        attribute(client, "server.address"),
        Some("/run/containerd/containerd.sock".into())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_call_that_reached_no_backend_has_one_span() {
    let spans = exported(|signals| {
        let mut call = call(Method::Other);
        call.trace = signals.trace(&HeaderMap::new(), Method::Other);
        signals.end(
            &call,
            &outcome(Ending::Error, Code::Unavailable, Duration::ZERO),
        );
    })
    .await;
    let [server] = &spans[..] else {
        panic!("{} spans", spans.len())
    };
    assert_eq!(server.name, "grpc");
    assert_eq!(attribute(server, "rpc.method"), Some("_OTHER".into()));
    assert_eq!(
        attribute(server, "rpc.method_original"),
        Some("runtime.v9.RuntimeService/Fly".into())
    );
    assert_eq!(server.status, Status::error("no such thing"));
    assert_eq!(attribute(server, "error.type"), Some("UNAVAILABLE".into()));
    assert!(!server.parent_span_is_remote);
    assert_eq!(attribute(server, "k8s.pod.name"), None);
}

/// Which calls are exported if no sampling decision was made when they began.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn sampling_is_decided_again_at_the_end() {
    let (fast, slow) = (Duration::from_millis(999), Duration::from_secs(1));
    let table = [
        (Method::Version, outcome(Ending::Ok, Code::Ok, fast), false),
        (Method::Version, outcome(Ending::Ok, Code::Ok, slow), true),
        (
            Method::Version,
            outcome(Ending::Error, Code::NotFound, fast),
            true,
        ),
        (
            Method::Version,
            outcome(Ending::Cancelled, Code::Cancelled, fast),
            true,
        ),
        (
            Method::Version,
            outcome(Ending::Deadline, Code::DeadlineExceeded, fast),
            true,
        ),
        (
            Method::GetContainerEvents,
            outcome(Ending::Ok, Code::Ok, slow),
            false,
        ),
        (
            Method::GetContainerEvents,
            outcome(Ending::Error, Code::Unavailable, slow),
            true,
        ),
        (
            Method::RunPodSandbox,
            outcome(Ending::Ok, Code::Ok, fast),
            true,
        ),
    ];
    for (method, outcome, kept) in table {
        let spans = exported(|signals| {
            let mut call = call(method);
            call.trace = signals.trace(&HeaderMap::new(), method);
            signals.end(&call, &outcome);
        })
        .await;
        assert_eq!(spans.len(), usize::from(kept), "{method} {outcome:?}");
        assert!(spans.iter().all(|s| s.span_context.is_sampled()));
    }
}

/// Calls that are notable for other reasons, with a sampling ratio of zero.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn notable_calls_are_kept_regardless_of_ratios() {
    let second = outcome(Ending::Ok, Code::Ok, Duration::from_secs(1));
    let mut settings = sampling(0.0, 0.0);
    settings.episodes = 0.0;
    settings.methods = vec![MethodSampling {
        method: Method::PullImage,
        ratio: None,
        slow: Some(Duration::from_secs(30)),
    }];
    let minute = outcome(Ending::Ok, Code::Ok, Duration::from_secs(60));
    let failed = outcome(Ending::Error, Code::NotFound, Duration::ZERO);
    let table = [
        (Method::RunPodSandbox, ok(), 0, false),
        (Method::RunPodSandbox, second.clone(), 0, true),
        (Method::RunPodSandbox, ok(), 50, true),
        (Method::RunPodSandbox, failed, 0, true),
        (Method::PullImage, second, 0, false),
        (Method::PullImage, minute, 0, true),
    ];
    for (method, outcome, share_used, kept) in table {
        let episode = Ids::start("5f3c", 1);
        let is_kept = OnceLock::new();
        let spans = exported(|signals| {
            signals.set_sampling(&settings);
            let mut call = full(method);
            call.trace = signals.trace(&HeaderMap::new(), method);
            call.episode.set(episode).expect("once");
            call.reaches(share_used);
            signals.end(&call, &outcome);
            is_kept.set(call.is_kept()).expect("once");
        })
        .await;
        assert_eq!(!spans.is_empty(), kept, "{method} {outcome:?}");
        assert_eq!(is_kept.get(), Some(&kept), "{method} {outcome:?}");
        for span in spans {
            assert_eq!(span.span_context.trace_id(), episode.trace_id);
            assert_eq!(span.parent_span_id, episode.root);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn log_line_spans_and_record_name_the_same_trace() {
    let mut headers = HeaderMap::new();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    headers.insert("traceparent", parent.parse().expect("value"));
    headers.insert("tracestate", "a=1".parse().expect("value"));
    let episode = Ids::start("5f3c", 1);
    let recorder = Arc::new(FlightRecorder::new(16, 16));
    let taken = Exported::default();
    let (sink, _) = sink(Behaviour::Take(taken.clone()), 100, PATIENCE);
    let observer = recording(Arc::clone(&recorder));
    let registry = registry();
    let signals = CallSignals::new(&registry, &(&config()).into(), Some(sink.clone()), observer)
        .expect("signals");
    let lines = logged("info", LogFormat::Json, |_| {
        let mut call = full(Method::RunPodSandbox);
        call.trace = signals.trace(&headers, call.method);
        call.episode.set(episode).expect("once");
        signals.end(&call, &ok());
    });
    tokio::task::spawn_blocking(move || sink.finish())
        .await
        .expect("finish");

    let spans = taken.lock().expect("lock").clone();
    let [server] = &spans[..] else {
        panic!("{} spans", spans.len())
    };
    assert_eq!(server.span_context.trace_id(), episode.trace_id);
    assert_eq!(server.parent_span_id, episode.root);
    assert!(!server.parent_span_is_remote);
    assert_eq!(server.span_context.trace_state().header(), "");
    let [link] = &server.links.links[..] else {
        panic!("{:?}", server.links)
    };
    assert_eq!(link.span_context.span_id().to_string(), "b7ad6b7169203331");
    assert_eq!(link.span_context.trace_state().header(), "a=1");

    let record = recorder.calls()[0].spans.clone().expect("traced");
    assert_eq!(record.trace_id, episode.trace_id);
    assert_eq!(record.server, server.span_context.span_id());
    assert!(record.kept);
    let line = &lines.objects()[0];
    assert_eq!(line["trace_id"], episode.trace_id.to_string());
    assert_eq!(line["span_id"], record.server.to_string());
    let exemplar = format!("# {{trace_id=\"{}\"}} 0.005 ", episode.trace_id);
    let text = registry.encode_openmetrics();
    let lines = text.lines().filter(|l| l.contains(&exemplar));
    assert_eq!(lines.count(), 1, "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn sampling_can_be_changed_and_is_off_without_a_sink() {
    assert!(
        signals(&registry())
            .trace(&HeaderMap::new(), Method::RunPodSandbox)
            .is_none()
    );
    let spans = exported(|signals| {
        signals.set_sampling(&sampling(0.0, 0.0));
        let mut call = call(Method::RunPodSandbox);
        call.trace = signals.trace(&HeaderMap::new(), Method::RunPodSandbox);
        assert!(!call.trace.as_ref().expect("traced").sampled);
        signals.end(&call, &ok());
    })
    .await;
    assert!(spans.is_empty());
}

/// The decision at the end of the call counts, not the one at its start.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn steps_are_exported_with_their_call_or_not_at_all() {
    let spans = exported(|signals| {
        signals.set_sampling(&sampling(0.0, 0.0));
        for elapsed in [Duration::from_millis(1), Duration::from_secs(3600)] {
            let mut call = full(Method::StopContainer);
            call.trace = signals.trace(&HeaderMap::new(), Method::StopContainer);
            call.backend_begins();
            let placement = call.placement().expect("traced");
            let phases = Arc::new(RuntimeSteps::new(Some(&placement)));
            assert!(call.steps.set(Arc::clone(&phases)).is_ok());
            let header = phases.traceparent(phases.root()).expect("traced");
            assert!(header.ends_with("-00"), "the sampled flag is off: {header}");
            let wait = phases.begin(RuntimeStep::GraceWait, None, phases.root());
            phases.end(wait, StepOutcome::Error);
            let plugin = Some("bridge".into());
            let late = phases.begin(RuntimeStep::CniDel, plugin, wait.span);
            signals.end(&call, &outcome(Ending::Ok, Code::Ok, elapsed));
            phases.end(late, StepOutcome::Ok);
        }
    })
    .await;
    let names: Vec<_> = spans.iter().map(|span| &*span.name).collect();
    let call = "runtime.v1.RuntimeService/StopContainer";
    assert_eq!(names, [call, "grace_wait", call, "cni_del"]);
    let [client, wait, server, late] = &spans[..] else {
        panic!("not four spans");
    };
    assert_eq!(wait.parent_span_id, client.span_context.span_id());
    assert_eq!(late.parent_span_id, wait.span_context.span_id());
    assert!(matches!(wait.status, Status::Error { .. }));
    assert_eq!(late.status, Status::Unset);
    for span in [wait, late] {
        assert_eq!(span.span_context.trace_id(), server.span_context.trace_id());
        assert_eq!(span.span_kind, SpanKind::Internal);
    }
    let plugin = attribute(late, "criscope.cni.plugin").map(|value| value.to_string());
    assert_eq!(plugin.as_deref(), Some("bridge"));
    let mode = attribute(server, "criscope.mode").map(|value| value.to_string());
    assert_eq!(mode.as_deref(), Some("runtime"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_worker_of_a_step_is_named_by_its_kind() {
    const STEPS: [(RuntimeStep, &str, &str); 5] = [
        (RuntimeStep::CniAdd, "bridge", "criscope.cni.plugin"),
        (RuntimeStep::Nri, "10-quota", "criscope.nri.plugin"),
        (
            RuntimeStep::ImageVerify,
            "policy",
            "criscope.image.verifier",
        ),
        (
            RuntimeStep::LayerFetch,
            "sha256:0a1b",
            "criscope.image.layer",
        ),
        (RuntimeStep::LayerKey, "sha256:0a1b", "criscope.image.layer"),
    ];
    let spans = exported(|signals| {
        let mut call = full(Method::PullImage);
        call.trace = signals.trace(&HeaderMap::new(), Method::PullImage);
        call.backend_begins();
        let placement = call.placement().expect("traced");
        let steps = Arc::new(RuntimeSteps::new(Some(&placement)));
        assert!(call.steps.set(Arc::clone(&steps)).is_ok());
        for (step, name, _) in STEPS {
            let begun = steps.begin(step, Some(name.into()), steps.root());
            steps.end(begun, StepOutcome::Ok);
        }
        let hour = Duration::from_secs(3600);
        signals.end(&call, &outcome(Ending::Ok, Code::Ok, hour));
    })
    .await;
    for (step, name, key) in STEPS {
        let span = spans.iter().find(|span| span.name == step.name());
        let named =
            attribute(span.expect("a span of the step"), key).map(|value| value.to_string());
        assert_eq!(named.as_deref(), Some(name), "{key}");
    }
}
