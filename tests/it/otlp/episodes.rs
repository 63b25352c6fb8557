//! The start of a pod as one trace, with a kubelet that traces and one that does not.

use criscope::call::episode::Ids;
use opentelemetry_proto::tonic::trace::v1::Span;

use super::{INTERNAL, SERVER, assert_attributes, hex, of_kind, pair, start};
use crate::prelude::*;

/// The kubelet's trace.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// A start is over soon after its last call.
const QUIET: &str = "[story]\nquiet = \"100ms\"\n";

fn parent(flags: &str) -> String {
    format!("00-{TRACE}-{SPAN}-{flags}")
}

/// The calls of a start.
fn calls() -> [Call; 4] {
    let pull = requests::pull_for("registry.example/app:1", pods::config("web"));
    [
        pods::run("web"),
        Call::image("PullImage", encode(&pull)),
        pods::create(pods::config("web"), 0, None),
        pods::start(),
    ]
}

async fn call(client: &Client, call: Call, parent: Option<&str>) {
    let call = match parent {
        Some(parent) => call.with("traceparent", parent).with("tracestate", "a=1"),
        None => call,
    };
    assert_eq!(client.call(call).await.code(), 0);
}

async fn start_pod(proxy: &Proxy, parent: Option<&str>) {
    let client = proxy.client().await;
    for next in calls() {
        call(&client, next, parent).await;
    }
}

fn episode() -> Ids {
    Ids::start("uid-web", 0)
}

fn name(span: &Span) -> &str {
    span.name.rsplit('/').next().unwrap_or_default()
}

fn find<'a>(spans: &'a [Span], wanted: &str) -> &'a Span {
    let found = spans.iter().find(|s| s.name == wanted);
    found.unwrap_or_else(|| panic!("no {wanted}"))
}

/// Waits for a span with this name, which is exported at the end of something, and gives all.
async fn wait_for(collector: &Collector, wanted: &str) -> Vec<Span> {
    until(wanted, || async {
        let spans = collector.spans();
        let there = spans.iter().any(|s| s.name == wanted);
        there.then_some(spans)
    })
    .await
}

fn links(span: &Span) -> Vec<(String, String)> {
    let ids = span
        .links
        .iter()
        .map(|l| (hex(&l.trace_id), hex(&l.span_id)));
    ids.collect()
}

/// What the runtime was told.
fn told(fake: &Fake) -> Vec<String> {
    let seen = fake.take(|_| true).into_iter();
    seen.map(|s| s.headers["traceparent"].to_str().expect("text").to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tracing_in_the_kubelet_a_start_is_one_trace() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = pods::runtime();
    let proxy = start(&fake, &collector, QUIET).ready().await;
    let client = proxy.client().await;
    for (i, next) in calls().into_iter().enumerate() {
        if i == 2 {
            // The kubelet's own time, which shall be seen.
            tokio::time::sleep(Duration::from_millis(80)).await;
        }
        call(&client, next, None).await;
    }
    let spans = collector.wait_spans(4 * 2 + 2).await;
    let (trace, root_id) = (episode().trace_id.to_string(), episode().root.to_string());
    assert_eq!(spans.len(), 4 * 2 + 2);
    assert!(
        spans.iter().all(|s| hex(&s.trace_id) == trace),
        "{spans:#?}"
    );

    let root = find(&spans, "pod.start");
    assert_eq!(root.kind, INTERNAL);
    assert_eq!(hex(&root.span_id), root_id);
    assert!(root.parent_span_id.is_empty(), "it is a root");
    assert_attributes(
        root,
        &[
            ("k8s.namespace.name", Some("shop")),
            ("k8s.pod.name", Some("web")),
            ("k8s.pod.uid", Some("uid-web")),
            ("cri.sandbox.attempt", Some("0")),
            ("cri.sandbox.id", Some("sandbox-1")),
            ("cri.outcome", Some("ok")),
            ("cri.image.pulled", Some("true")),
            ("error.type", None),
        ],
    );
    let children = of_kind(&spans, SERVER);
    assert_eq!(children.len(), 4);
    let gap = find(&spans, "outside_cri");
    for span in children.iter().copied().chain([gap]) {
        assert_eq!(hex(&span.parent_span_id), root_id, "{}", span.name);
        assert_eq!(links(span), []);
        // The view of a story has microseconds.
        assert!(root.start_time_unix_nano <= span.start_time_unix_nano);
        assert!(span.end_time_unix_nano <= root.end_time_unix_nano + 5_000);
    }
    let (pull, create) = (
        pair(&spans, "PullImage").0,
        pair(&spans, "CreateContainer").0,
    );
    assert!(gap.end_time_unix_nano - gap.start_time_unix_nano >= 50_000_000);
    assert!(gap.start_time_unix_nano.abs_diff(pull.end_time_unix_nano) < 5_000);
    assert!(gap.end_time_unix_nano.abs_diff(create.start_time_unix_nano) < 5_000);

    let told = told(&fake);
    assert_eq!(told.len(), 4);
    for told in told {
        assert!(told.starts_with(&format!("00-{trace}-")), "{told}");
        assert!(told.ends_with("-01"), "{told}");
    }
    let line = proxy
        .wait_line("StartContainer", |l| is_call(l, "StartContainer"))
        .await;
    assert_eq!(line["trace_id"], trace);
    let (server, _) = pair(&spans, "StartContainer");
    assert_eq!(line["span_id"], hex(&server.span_id));

    // Its end is another.
    for method in ["StopPodSandbox", "RemovePodSandbox"] {
        // The two requests are alike.
        let request = requests::stop_pod("sandbox-1");
        call(&client, Call::runtime(method, encode(&request)), None).await;
    }
    // The stop is over before the removal.
    wait_for(&collector, "pod.stop").await;
    let spans = wait_for(&collector, "runtime.v1.RuntimeService/RemovePodSandbox").await;
    let stop = Ids::stop("uid-web", "sandbox-1");
    let root = find(&spans, "pod.stop");
    assert_eq!(hex(&root.span_id), stop.root.to_string());
    let (server, _) = pair(&spans, "RemovePodSandbox");
    assert_eq!(hex(&server.trace_id), stop.trace_id.to_string());
    assert_eq!(hex(&server.parent_span_id), stop.root.to_string());
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_samples_keeps_its_trace() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = pods::runtime();
    let proxy = start(&fake, &collector, QUIET).ready().await;
    start_pod(&proxy, Some(&parent("01"))).await;
    wait_for(&collector, "pod.start").await;
    proxy.stop().await;
    let spans = collector.spans();
    let root = (episode().trace_id.to_string(), episode().root.to_string());
    let servers = of_kind(&spans, SERVER);
    assert_eq!(servers.len(), 4);
    for span in servers {
        assert_eq!(hex(&span.trace_id), TRACE);
        assert_eq!(hex(&span.parent_span_id), SPAN);
        assert_eq!(span.trace_state, "a=1");
        assert_eq!(links(span), std::slice::from_ref(&root), "{}", span.name);
        let stands_for = find(&spans, &format!("cri.call/{}", name(span)));
        assert_eq!(hex(&stands_for.trace_id), root.0);
        assert_eq!(hex(&stands_for.parent_span_id), root.1);
        assert_eq!(links(stands_for), [(TRACE.to_owned(), hex(&span.span_id))]);
    }
    let links_of_root = links(find(&spans, "pod.start"));
    assert_eq!(links_of_root, [(TRACE.to_owned(), SPAN.to_owned())]);
    assert!(
        told(&fake)
            .iter()
            .all(|t| t.starts_with(&format!("00-{TRACE}-")))
    );
}

/// As every kubelet with tracing on does that has no sampling rate set.
#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_does_not_sample_is_linked_to() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = pods::runtime();
    let proxy = start(&fake, &collector, QUIET).ready().await;
    start_pod(&proxy, Some(&parent("00"))).await;
    let spans = wait_for(&collector, "pod.start").await;
    let (trace, root) = (episode().trace_id.to_string(), episode().root.to_string());
    for span in of_kind(&spans, SERVER) {
        assert_eq!(hex(&span.trace_id), trace);
        assert_eq!(hex(&span.parent_span_id), root);
        assert_eq!(span.trace_state, "");
        assert_eq!(links(span), [(TRACE.to_owned(), SPAN.to_owned())]);
    }
    assert_eq!(links(find(&spans, "pod.start")), []);
    for seen in fake.take(|_| true) {
        let told = seen.headers["traceparent"].to_str().expect("text");
        assert!(told.starts_with(&format!("00-{trace}-")), "{told}");
        assert!(told.ends_with("-01"), "{told}");
        assert!(!seen.headers.contains_key("tracestate"), "of another trace");
    }
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_no_can_be_respected() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = pods::runtime();
    let respect = format!("[telemetry.sampling]\non_unsampled_parent = \"respect\"\n{QUIET}");
    let proxy = start(&fake, &collector, &respect).ready().await;
    start_pod(&proxy, Some(&parent("00"))).await;
    for told in told(&fake) {
        assert!(told.starts_with(&format!("00-{TRACE}-")), "{told}");
        assert!(told.ends_with("-00"), "{told}");
    }
    fake.always(script::error(13, "broken"));
    let client = proxy.client().await;
    let failing = pods::run("web").with("traceparent", &parent("00"));
    assert_eq!(client.call(failing).await.code(), 13);
    proxy.wait_event("pod.start.summary").await;
    proxy.stop().await;
    let spans = collector.spans();
    assert_eq!(spans.len(), 2, "the failure: {spans:#?}");
    let (server, _) = pair(&spans, "RunPodSandbox");
    assert_eq!(hex(&server.trace_id), TRACE);
    assert_eq!(hex(&server.parent_span_id), SPAN);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_episodes_that_are_not_chosen_only_failures_are_exported() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = pods::runtime();
    let none = format!("[telemetry.sampling]\nepisodes = 0.0\n{QUIET}");
    let proxy = start(&fake, &collector, &none).ready().await;
    start_pod(&proxy, None).await;
    assert!(told(&fake).iter().all(|t| t.ends_with("-00")));
    proxy.wait_event("pod.start.summary").await;
    assert_eq!(collector.spans().len(), 0);

    // A setting for one method holds all the same, and takes effect at once.
    let otlp = format!(
        "[telemetry.otlp]\nendpoint = \"{}\"\n",
        collector.endpoint()
    );
    let row = "[[telemetry.sampling.methods]]\nmethod = \"CreateContainer\"\nratio = 1.0\n";
    proxy.reload(&format!("{otlp}{none}{row}"));
    proxy.wait_event("config.reloaded").await;
    start_pod(&proxy, None).await;
    let told = told(&fake);
    let chosen = told.iter().filter(|t| t.ends_with("-01")).count();
    assert_eq!(chosen, 1, "{told:?}");

    fake.always(script::error(13, "broken"));
    let client = proxy.client().await;
    assert_eq!(client.call(pods::start()).await.code(), 13);
    let spans = collector.wait_spans(4).await;
    proxy.stop().await;
    let (failed, _) = pair(&spans, "StartContainer");
    let (create, _) = pair(&spans, "CreateContainer");
    for span in [failed, create] {
        assert_eq!(hex(&span.trace_id), episode().trace_id.to_string());
    }
    assert_eq!(of_kind(&spans, SERVER).len(), 2);
}

/// Another process comes to the same ids.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_stays_one_trace_when_criscope_is_replaced() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = pods::runtime();
    for next in [pods::run("web"), pods::create(pods::config("web"), 0, None)] {
        let proxy = start(&fake, &collector, "").ready().await;
        let client = proxy.client().await;
        call(&client, next, None).await;
        drop(client);
        proxy.stop().await;
    }
    let spans = collector.spans();
    let servers = of_kind(&spans, SERVER);
    assert_eq!(servers.len(), 2);
    for span in servers {
        assert_eq!(hex(&span.trace_id), episode().trace_id.to_string());
        assert_eq!(hex(&span.parent_span_id), episode().root.to_string());
    }
}
