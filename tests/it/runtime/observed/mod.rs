//! Observability of the built-in runtime: one trace with every step in place, stories that name the slow plugin and the
//! slow layer, metrics. Needs root, runc and a static busybox.

mod names;
mod node;
mod remarks;

use std::sync::{OnceLock, mpsc};

use criscope::lifecycle::view::{EpisodeState, ImagePullList};
use opentelemetry_proto::tonic::trace::v1::Span;

use self::node::{Node, image};
use super::image::make;
use super::image::registry::Registry;
use crate::harness::collector::attribute;
use crate::prelude::*;

/// How long the plugin sleeps: longer than the threshold for slow, and than the rest of its call.
const SLOW: Duration = Duration::from_millis(3_300);

/// The plugin's result.
const RESULT: &str = r#"{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]}"#;

/// Must not appear in any log.
const SECRET: &str = "hunter2hunter2";

fn hex(id: &[u8]) -> String {
    id.iter().map(|b| format!("{b:02x}")).collect()
}

fn one<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    let span = found.next().unwrap_or_else(|| panic!("no span {name}"));
    assert!(found.next().is_none(), "one {name} only");
    span
}

/// The client span of a call.
fn find_call<'a>(spans: &'a [Span], method: &str) -> Option<&'a Span> {
    const CLIENT: i32 = 3;
    let mut found = spans.iter().filter(|span| span.kind == CLIENT);
    found.find(|span| span.name.ends_with(&format!("/{method}")))
}

fn call_span<'a>(spans: &'a [Span], method: &str) -> &'a Span {
    find_call(spans, method).unwrap_or_else(|| panic!("no {method}"))
}

/// The parent call of each step.
const TREE: &[(&str, &str)] = &[
    ("sandbox_files", "RunPodSandbox"),
    ("namespaces", "RunPodSandbox"),
    ("shim_launch", "RunPodSandbox"),
    ("network_attach", "RunPodSandbox"),
    ("image_resolve", "PullImage"),
    ("image_record", "PullImage"),
    ("rootfs_mount", "CreateContainer"),
    ("spec", "CreateContainer"),
    ("oci_create", "StartContainer"),
    ("oci_start", "StartContainer"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_start_is_traced_step_by_step() {
    let collector = Collector::new(Manner::Takes).await;
    let add = format!("sleep {}\necho '{}'", SLOW.as_secs_f64(), RESULT);
    let node = Node::start(&collector, &add).await;
    let registry = Registry::start().await;
    let image = image();
    let name = registry.push("tools", "1", &image);
    let slow = make::digest(&image.layers[1]).to_string();
    // A layer is named by the first twelve digits of its diff id.
    let config: Value = serde_json::from_slice(&image.config).expect("json");
    let shown = config["rootfs"]["diff_ids"][1].as_str().expect("a digest");
    let fetch = format!("the fetch of layer {}", &shown[.."sha256:".len() + 12]);
    // The layer is sent when this is dropped.
    let (held_back, waits) = mpsc::sync_channel::<()>(0);
    let waits = Mutex::new(waits);
    let asked_at = Arc::new(OnceLock::new());
    let first = Arc::clone(&asked_at);
    registry.hook(move |asked| {
        if asked.path.contains(&slow) {
            first.get_or_init(Instant::now);
            // Other work on this thread continues.
            #[expect(clippy::disallowed_methods, reason = "a hook is no future")]
            let _ = tokio::task::block_in_place(|| lock(&waits).recv_timeout(PATIENCE));
        }
        None
    });

    let client = node.client().await;
    let sandbox = node.run(&client).await;
    // Checked now, because the duration of the concurrent pull depends on the machine.
    let story = node.story("the end of the call", |story| {
        story.episodes[0].calls[0].outcome == "ok"
    });
    let headline = story.await.headline;
    assert!(headline.contains("in the CNI plugin dawdler"), "{headline}");
    let pulling = client.call(node.pull_call(&name));
    let looking = async {
        let progress = until("the pull on its page", || async {
            let pulls: ImagePullList =
                serde_json::from_value(node.proxy.json("/debug/images/pulls").await).ok()?;
            let progress = pulls.in_flight.first()?.progress.clone()?;
            let fetching = progress
                .layers
                .iter()
                .any(|layer| layer.phase == "fetching");
            fetching.then_some(progress)
        });
        let progress = progress.await;
        let now = format!("now in {fetch}");
        node.story("the slow layer in the headline", |story| {
            story.headline.contains(&now)
        })
        .await;
        let held = asked_at.get().expect("it is fetched").elapsed();
        drop(held_back);
        (progress, held)
    };
    let (pulled, (progress, held)) = tokio::join!(pulling, looking);
    assert_eq!(pulled.code(), 0, "{}", pulled.text());
    assert_eq!(progress.layers.len(), 2);
    assert!(progress.of_bytes >= 200_000);
    node.start_container(&client, &sandbox, &name).await;

    let story = node
        .story("the start", |story| {
            story.episodes[0].state == EpisodeState::Ok
        })
        .await;
    let calls = &story.episodes[0].calls;
    let detail = |method: &str, what: &str| {
        let call = calls.iter().find(|call| call.method == method);
        let details = &call.unwrap_or_else(|| panic!("no {method}")).details;
        let found = details.iter().find(|detail| detail.name.starts_with(what));
        let found = found.unwrap_or_else(|| panic!("no {what} in {details:?}"));
        assert_eq!(found.source, "runtime");
        found.duration_ms
    };
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    assert!(detail("RunPodSandbox", "dawdler") >= ms(SLOW));
    assert!(detail("PullImage", &fetch) >= ms(held));
    detail("RunPodSandbox", "making namespaces");
    detail("RunPodSandbox", "the launch of the shim");
    detail("StartContainer", "runc");

    let spans = until("all steps at the collector", || async {
        let spans = collector.spans();
        // Steps end before their call.
        let all = TREE.iter().all(|(step, method)| {
            spans.iter().any(|s| s.name == *step) && find_call(&spans, method).is_some()
        });
        all.then_some(spans)
    })
    .await;
    let trace = &call_span(&spans, "RunPodSandbox").trace_id;
    for (step, method) in TREE {
        let (span, call) = (one(&spans, step), call_span(&spans, method));
        assert_eq!(
            span.parent_span_id, call.span_id,
            "{step} is a part of {method}"
        );
        assert_eq!(&span.trace_id, trace, "{step}");
        assert_eq!(
            attribute(&call.attributes, "cri.mode").as_deref(),
            Some("runtime")
        );
    }
    let plugin = one(&spans, "cni_add");
    assert_eq!(plugin.parent_span_id, one(&spans, "network_attach").span_id);
    let told = attribute(&plugin.attributes, "cri.cni.plugin");
    assert_eq!(told.as_deref(), Some("dawdler"));
    let env = fs::read_to_string(node.scratch.path().join("env.ADD")).expect("the plugin ran");
    let parent = format!("TRACEPARENT=00-{}-{}-01", hex(trace), hex(&plugin.span_id));
    assert!(
        env.lines().any(|line| line == parent),
        "{parent} is not in\n{env}"
    );
    let layers = spans.iter().filter(|span| span.name == "image_layer");
    assert_eq!(layers.count(), 2);

    let scrape = node.proxy.scrape().await;
    let count = "criscope_runtime_phase_duration_seconds_count";
    for phase in [
        "namespaces",
        "network_attach",
        "cni_add",
        "oci_create",
        "layer_fetch",
    ] {
        let steps = scrape
            .metric(count)
            .with("phase", phase)
            .with("outcome", "ok");
        assert!(steps.sum() >= 1.0, "{phase}");
    }
    let plugins = scrape.metric("criscope_runtime_cni_plugin_duration_seconds_count");
    assert!(
        plugins
            .with("plugin", "other")
            .with("verb", "cni_add")
            .sum()
            >= 1.0
    );
    for (name, label, value) in [
        ("criscope_runtime_sandboxes", ("state", "ready"), 1.0),
        ("criscope_runtime_containers", ("state", "running"), 1.0),
    ] {
        let found = scrape.metric(name).with(label.0, label.1);
        assert_eq!(found.sum(), value, "{name}");
    }
    assert_eq!(scrape.metric("criscope_runtime_shims").sum(), 1.0);
    assert_eq!(scrape.metric("criscope_runtime_images").sum(), 1.0);
    assert!(scrape.metric("criscope_runtime_image_bytes").sum() >= 200_000.0);
    assert!(
        scrape
            .metric("criscope_runtime_image_pull_bytes_total")
            .sum()
            >= 200_000.0
    );

    node.remove(&client, &sandbox).await;
    let spans = until("the end at the collector", || async {
        let spans = collector.spans();
        spans
            .iter()
            .any(|s| s.name == "sandbox_remove")
            .then_some(spans)
    })
    .await;
    let detach = one(&spans, "network_detach");
    assert_eq!(
        detach.parent_span_id,
        call_span(&spans, "StopPodSandbox").span_id
    );
    assert_eq!(one(&spans, "cni_del").parent_span_id, detach.span_id);
    node.proxy.stop().await;
}

/// Errors of plugins may quote anything from their input.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_in_errors_of_plugins_are_hidden() {
    let collector = Collector::new(Manner::Takes).await;
    let add = format!(
        "echo '{{\"cniVersion\":\"1.0.0\",\"code\":11,\"msg\":\"cannot log in: password={SECRET}\"}}'\nexit 1"
    );
    let node = Node::start(&collector, &add).await;
    let client = node.client().await;
    let got = client.call(node.run_call()).await;
    assert_ne!(got.code(), 0);
    assert!(
        got.text().contains(SECRET),
        "the caller gets the complete error: {}",
        got.text()
    );
    let spans = until("the failed step at the collector", || async {
        let spans = collector.spans();
        spans.iter().any(|s| s.name == "cni_add").then_some(spans)
    })
    .await;
    let plugin = spans
        .iter()
        .find(|span| span.name == "cni_add")
        .expect("just seen");
    let kind = attribute(&plugin.attributes, "error.type");
    assert_eq!(kind.as_deref(), Some("error"));
    assert!(!format!("{spans:?}").contains(SECRET));
    let story = node
        .story("the failure", |story| story.episodes[0].failures > 0)
        .await;
    assert!(
        story.headline.contains("cannot log in"),
        "{}",
        story.headline
    );
    assert!(!format!("{story:?}").contains(SECRET), "{}", story.headline);
    let (_, metrics) = node.proxy.get("/metrics").await;
    assert!(!metrics.contains(SECRET));
    let log = node.proxy.stop().await.join("\n");
    assert!(
        log.contains("RunPodSandbox") && !log.contains(SECRET),
        "{log}"
    );
}
