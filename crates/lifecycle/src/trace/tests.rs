//! The spans that an episode adds to its trace.

use std::collections::HashMap;
use std::time::Duration;

use opentelemetry::trace::{SpanKind, TraceFlags, TraceState};

use super::*;
use crate::TEST_TIMEOUT;
use crate::view::InitContainerWaitView;
use criscope_cri::units::times::UnixMicros;
use criscope_telemetry::otlp::testing::{Behaviour, Exported, sink};
use criscope_telemetry::sampling::testing::sampling;

const KUBELET: u128 = 7;

/// Exports an episode and returns its spans.
async fn exported_spans(episode: &EpisodeView, share: f64) -> Vec<SpanData> {
    exported_by(share, |trace| {
        trace.closed(episode, &ids());
        trace.keeps(episode, &ids())
    })
    .await
}

/// The spans that this exports; it returns whether there should be some.
async fn exported_by(share: f64, export: impl FnOnce(&EpisodeTracer) -> bool) -> Vec<SpanData> {
    let taken = Exported::default();
    let (sink, _) = sink(Behaviour::Take(taken.clone()), 1000, TEST_TIMEOUT);
    let mut settings = sampling(1.0, 0.0);
    settings.episodes = share;
    let trace = EpisodeTracer::new(sink.clone(), LiveSamplingRules::new(&settings));
    let some = export(&trace);
    tokio::task::spawn_blocking(move || sink.finish())
        .await
        .expect("finish");
    let spans = taken.lock().expect("lock").clone();
    assert_eq!(!spans.is_empty(), some);
    spans
}

fn ids() -> Ids {
    Ids::start("uid-1", 2)
}

/// The caller's tracing, and where the spans are.
#[derive(Clone, Copy, PartialEq)]
enum Caller {
    Plain,
    Samples,
    DoesNot,
    Respected,
}

fn spans(caller: Caller, kept: bool) -> SpanIds {
    let context = |flags| {
        let trace = TraceId::from(KUBELET);
        SpanContext::new(trace, SpanId::from(8u64), flags, true, TraceState::NONE)
    };
    let inside = matches!(caller, Caller::Plain | Caller::DoesNot);
    SpanIds {
        trace_id: if inside {
            ids().trace_id
        } else {
            TraceId::from(KUBELET)
        },
        server: SpanId::from(1u64),
        client: SpanId::from(2u64),
        caller: match caller {
            Caller::Plain => None,
            Caller::Samples => Some(Box::new(context(TraceFlags::SAMPLED))),
            Caller::DoesNot | Caller::Respected => Some(Box::new(context(TraceFlags::default()))),
        },
        kept,
    }
}

fn call(
    method: &str,
    (offset_ms, duration_ms): (f64, f64),
    spans: Option<Box<SpanIds>>,
) -> CallView {
    CallView {
        method: method.into(),
        offset_ms,
        duration_ms,
        outcome: "ok".into(),
        code: "OK".into(),
        spans,
        ..CallView::default()
    }
}

/// 300 ms of a sandbox, gaps of 49 ms and 50 ms around a create, and a start that overlaps the create.
fn start(spans: &SpanIds) -> EpisodeView {
    let spans = Some(Box::new(spans.clone()));
    EpisodeView {
        kind: "start".into(),
        namespace: "shop".into(),
        name: "web".into(),
        uid: "uid-1".into(),
        attempt: 2,
        sandbox_id: Some("sandbox-1".into()),
        handler: "kata".into(),
        state: EpisodeState::Ok,
        began_unix_us: UnixMicros::new(1_000_000_000),
        duration_ms: 600.0,
        retries: 1,
        pulled: true,
        calls: vec![
            call("RunPodSandbox", (0.0, 300.0), spans.clone()),
            call("CreateContainer", (349.0, 100.0), spans.clone()),
            call("ListNothing", (360.0, 10.0), spans.clone()),
            call("StartContainer", (499.0, 101.0), spans),
        ],
        ..EpisodeView::default()
    }
}

fn attributes(span: &SpanData) -> HashMap<&str, String> {
    let pairs = span.attributes.iter();
    pairs
        .map(|a| (a.key.as_str(), a.value.to_string()))
        .collect()
}

fn since_begin(span: &SpanData) -> (u128, u128) {
    let began = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    let ms = |at: SystemTime| at.duration_since(began).expect("later").as_millis();
    (ms(span.start_time), ms(span.end_time))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn time_that_an_init_container_took_is_a_span_of_its_name() {
    let mut episode = start(&spans(Caller::Plain, true));
    episode.waits = vec![InitContainerWaitView {
        before: 3,
        offset_ms: 451.0,
        duration_ms: 46.0,
        container: "migrate".into(),
    }];
    let spans = exported_spans(&episode, 1.0).await;
    let [_, gap] = &spans[..] else {
        panic!("{spans:#?}")
    };
    assert_eq!(
        (&*gap.name, since_begin(gap)),
        ("init_container", (449, 499))
    );
    assert_eq!(attributes(gap)["k8s.container.name"], "migrate");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_episode_has_a_root_and_spans_for_the_time_between_calls() {
    let spans = exported_spans(&start(&spans(Caller::Plain, true)), 1.0).await;
    let [root, gap] = &spans[..] else {
        panic!("{spans:#?}")
    };
    assert_eq!((&*root.name, &*gap.name), ("pod.start", "outside_cri"));
    assert_eq!(
        (since_begin(root), since_begin(gap)),
        ((0, 600), (449, 499))
    );
    assert_eq!(root.span_context.span_id(), ids().root);
    assert_eq!(root.parent_span_id, SpanId::INVALID);
    assert_eq!(gap.parent_span_id, ids().root);
    for span in [root, gap] {
        assert_eq!(span.span_kind, SpanKind::Internal);
        assert_eq!(span.span_context.trace_id(), ids().trace_id);
        assert!(span.span_context.is_sampled());
        assert_eq!(span.status, Status::Unset);
        assert!(span.links.is_empty());
    }
    assert!(gap.attributes.is_empty());
    let wanted = [
        ("k8s.namespace.name", "shop"),
        ("k8s.pod.name", "web"),
        ("k8s.pod.uid", "uid-1"),
        ("criscope.sandbox.attempt", "2"),
        ("criscope.sandbox.id", "sandbox-1"),
        ("criscope.runtime_handler", "kata"),
        ("criscope.outcome", "ok"),
        ("criscope.retries", "1"),
        ("criscope.image.pulled", "true"),
    ];
    let wanted = wanted.map(|(key, value)| (key, value.to_owned()));
    assert_eq!(attributes(root), HashMap::from(wanted));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_not_known_is_not_told() {
    let mut episode = start(&spans(Caller::Plain, true));
    episode.calls_forgotten = 1;
    assert_eq!(exported_spans(&episode, 1.0).await.len(), 1, "no gaps");
    // Impossible durations have no spans.
    episode.duration_ms = f64::NAN;
    assert_eq!(since_begin(&exported_spans(&episode, 1.0).await[0]), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_failure_is_named() {
    let mut episode = start(&spans(Caller::Plain, true));
    episode.kind = "restart".into();
    episode.container = Some("app".into());
    episode.state = EpisodeState::Failed;
    let given_up = &exported_spans(&episode, 1.0).await[0];
    assert_eq!(given_up.name, "pod.restart");
    assert_eq!(attributes(given_up)["error.type"], "given_up");
    assert_eq!(attributes(given_up)["k8s.container.name"], "app");
    assert_eq!(attributes(given_up)["k8s.container.restart_count"], "2");
    assert!(!attributes(given_up).contains_key("criscope.sandbox.attempt"));

    let last = &mut episode.calls[1];
    last.outcome = "deadline".into();
    last.code = "DEADLINE_EXCEEDED".into();
    last.error = Some("é".repeat(200));
    let failed = &exported_spans(&episode, 1.0).await[0];
    assert_eq!(attributes(failed)["error.type"], "DEADLINE_EXCEEDED");
    assert_eq!(attributes(failed)["criscope.outcome"], "failed");
    assert_eq!(failed.status, Status::error("é".repeat(128)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_was_seen_of_processes_hangs_below_the_call_to_the_backend() {
    let mut episode = start(&spans(Caller::Plain, true));
    let detail = |what: &str, name: &str, source: &str| CallDetail {
        what: what.into(),
        name: name.into(),
        command: None,
        doing: (what == "cni").then(|| "iptables".into()),
        offset_ms: 20.0,
        duration_ms: 70.0,
        source: source.into(),
    };
    episode.calls[0].details = vec![
        detail("cni", "calico", "process"),
        detail("oci", "runc", "process"),
        // Exported by the OTLP receiver already.
        detail("runtime", "container.Create", "span"),
    ];
    let all = exported_spans(&episode, 1.0).await;
    let inferred: Vec<_> = all
        .iter()
        .filter(|span| attributes(span).contains_key("criscope.inferred"))
        .collect();
    let names: Vec<_> = inferred.iter().map(|span| &*span.name).collect();
    assert_eq!(names, ["cni.plugin/calico", "oci.runc"]);
    for span in &inferred {
        assert_eq!(span.parent_span_id, SpanId::from(2u64));
        assert_eq!(since_begin(span), (20, 90));
        assert_eq!(attributes(span)["criscope.inferred"], "true");
    }
    assert_eq!(attributes(inferred[0])["criscope.doing"], "iptables");

    // A call that was not exported has no children.
    let calls = episode.calls.iter_mut().take(1);
    calls.for_each(|call| call.spans = Some(Box::new(spans(Caller::Plain, false))));
    let all = exported_spans(&episode, 1.0).await;
    assert!(!all.is_empty());
    assert!(
        all.iter()
            .all(|s| !attributes(s).contains_key("criscope.inferred"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_in_the_kubelets_trace_have_stand_ins_that_lead_there() {
    let all = exported_spans(&start(&spans(Caller::Samples, true)), 1.0).await;
    let names: Vec<_> = all.iter().map(|span| &*span.name).collect();
    let wanted = [
        "pod.start",
        "outside_cri",
        "cri.call/RunPodSandbox",
        "cri.call/CreateContainer",
        "cri.call/ListNothing",
        "cri.call/StartContainer",
    ];
    assert_eq!(names, wanted);
    let links = |span: &SpanData| -> Vec<_> {
        let contexts = span.links.iter().map(|link| &link.span_context);
        contexts.map(|c| (c.trace_id(), c.span_id())).collect()
    };
    let kubelet = TraceId::from(KUBELET);
    assert_eq!(links(&all[0]), [(kubelet, SpanId::from(8u64))], "once");
    for span in &all[2..] {
        assert_eq!(links(span), [(kubelet, SpanId::from(1u64))]);
        assert_eq!(span.parent_span_id, ids().root);
        assert_eq!(span.span_context.trace_id(), ids().trace_id);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn which_episodes_are_exported() {
    use Caller::{DoesNot, Plain, Respected, Samples};
    // Caller, whether the calls were exported, the share of episodes, and whether there is a root.
    let table = [
        (Plain, true, 1.0, true),
        (DoesNot, true, 1.0, true),
        (Samples, true, 1.0, true),
        // No call was exported.
        (Plain, false, 1.0, false),
        // The kubelet's decision not to sample was respected.
        (Respected, false, 1.0, false),
        (Respected, true, 1.0, false),
        // Not sampled; but a call failed, and needs its parent.
        (Plain, false, 0.0, false),
        (Plain, true, 0.0, true),
        (Samples, true, 0.0, false),
    ];
    for (i, (caller, kept, share, exported)) in table.into_iter().enumerate() {
        let spans = exported_spans(&start(&spans(caller, kept)), share).await;
        assert_eq!(!spans.is_empty(), exported, "row {i}");
    }
    // From before a restart.
    let mut episode = start(&spans(Plain, true));
    episode.calls.iter_mut().for_each(|call| call.spans = None);
    assert!(!exported_spans(&episode, 1.0).await.is_empty());
    assert!(exported_spans(&episode, 0.0).await.is_empty());
}

/// The trace of a start that fails for long has a root meanwhile; its end comes later, and no span twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_failing_start_has_a_root_before_it_is_over() {
    let mut episode = start(&spans(Caller::Plain, true));
    episode.state = EpisodeState::Failing;
    let failing = exported_by(1.0, |trace| {
        trace.failing(&episode, &ids());
        true
    });
    let failing = failing.await;
    let [root] = &failing[..] else {
        panic!("{failing:#?}")
    };
    assert_eq!(root.span_context.span_id(), ids().root);
    assert_eq!(attributes(root)["criscope.outcome"], "failing");
    assert!(matches!(root.status, Status::Error { .. }));

    episode.state = EpisodeState::Ok;
    let over = |from| {
        exported_by(1.0, move |trace| {
            let mut episode = start(&spans(Caller::Plain, true));
            episode.state = EpisodeState::Ok;
            trace.continued(&episode, &ids(), from);
            true
        })
    };
    let all = over(0.0).await;
    let [end, gap] = &all[..] else {
        panic!("{all:#?}")
    };
    assert_eq!((&*end.name, &*gap.name), ("pod.start.end", "outside_cri"));
    assert_eq!(end.parent_span_id, ids().root);
    assert_ne!(end.span_context.span_id(), ids().root);
    assert_eq!(attributes(end)["criscope.outcome"], "ok");
    assert_eq!(over(500.0).await.len(), 1, "the gap was exported before");
}

/// The trace of a call follows from the call alone; that it only tries again in the start of the pod is known later.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_container_that_is_tried_again_links_to_the_start() {
    let mut episode = start(&spans(Caller::Plain, true));
    let own = Ids::restart("uid-1", "app", 1);
    for call in &mut episode.calls[1..] {
        call.container = Some("app".into());
        call.container_attempt = Some(1);
        call.spans = Some(Box::new(SpanIds {
            trace_id: own.trace_id,
            ..spans(Caller::Plain, true)
        }));
    }
    let all = exported_spans(&episode, 1.0).await;
    let retry = all.iter().filter(|s| s.span_context.span_id() == own.root);
    let [root] = &retry.collect::<Vec<_>>()[..] else {
        panic!("{all:#?}")
    };
    assert_eq!(root.span_context.trace_id(), own.trace_id);
    assert_eq!(since_begin(root), (349, 600));
    let link = &root.links.links[0].span_context;
    assert_eq!(
        (link.trace_id(), link.span_id()),
        (ids().trace_id, ids().root)
    );
}
