//! Spans of the runtime and of the kubelet in the story of their pod.

use std::time::{SystemTime, UNIX_EPOCH};

use criscope::lifecycle::view::PodStory;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};

use super::{attribute, client, parent, received, receiving, request, run_pod_sandbox, span};
use crate::prelude::*;

fn nanos_ago(ms: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("after 1970").as_nanos();
    u64::try_from(now).expect("before 2554") - ms * 1_000_000
}

/// A span of the kubelet 1.36, with its names and attributes, and a secret in one of them and in its error.
fn sync_pod(update: &str, began_ms_ago: u64, ended_ms_ago: u64, error: &str) -> Span {
    Span {
        name: "syncPod".into(),
        kind: 1,
        start_time_unix_nano: nanos_ago(began_ms_ago),
        end_time_unix_nano: nanos_ago(ended_ms_ago),
        attributes: vec![
            attribute("k8s.pod.uid", "u1"),
            attribute("k8s.pod", "shop/web"),
            attribute("k8s.pod.name", "web"),
            attribute("k8s.pod.update_type", update),
            attribute("k8s.namespace.name", "shop"),
            attribute("token", "hunter2"),
        ],
        status: (!error.is_empty()).then(|| Status {
            message: error.into(),
            code: 2,
        }),
        ..span(&[3; 16], 5, &[], "")
    }
}

/// In the scope of the kubelet's pod workers, beside spans of its CRI client.
fn of_kubelet(spans: Vec<Span>) -> ExportTraceServiceRequest {
    let scope = |name: &str| {
        Some(InstrumentationScope {
            name: name.into(),
            ..InstrumentationScope::default()
        })
    };
    let client = "go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc";
    let call = "runtime.v1.RuntimeService/ListPodSandbox";
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            scope_spans: vec![
                ScopeSpans {
                    scope: scope(client),
                    spans: vec![span(&[4; 16], 6, &[], call)],
                    ..ScopeSpans::default()
                },
                ScopeSpans {
                    scope: scope("k8s.io/kubernetes/pkg/kubelet"),
                    spans,
                    ..ScopeSpans::default()
                },
            ],
            ..ResourceSpans::default()
        }],
    }
}

/// Waits for a story whose headline contains this.
async fn story_that_says(proxy: &Proxy, said: &str) -> PodStory {
    until(said, || async {
        let (status, text) = proxy.get("/debug/pods/shop/web?format=json").await;
        assert!(!text.contains("hunter2"), "{text}");
        let story = (status == 200).then(|| serde_json::from_str::<PodStory>(&text));
        story
            .map(|it| it.expect("a story"))
            .filter(|it| it.headline.contains(said))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_of_the_runtime_is_part_of_the_story_of_its_pod() {
    let fake = Fake::new();
    let all = receiving(&fake, "").await;
    let caller = all.proxy.client().await;
    assert_eq!(caller.call(run_pod_sandbox()).await.code(), 0);
    let seen = fake.take(|_| true).remove(0);
    let (trace, client_span) = parent(&seen);
    let spans = vec![
        span(
            &trace,
            1,
            &client_span,
            "runtime.v1.RuntimeService/RunPodSandbox",
        ),
        span(&trace, 2, &[1; 8], "cni.setup_pod_network"),
    ];
    let mut exporter = client(all.address).await;
    exporter.export(request(spans)).await.expect("taken");
    let details = until("the span in the story", || async {
        let (status, text) = all.proxy.get("/debug/pods/shop/web?format=json").await;
        assert_eq!(status, 200, "{text}");
        let story: PodStory = serde_json::from_str(&text).expect("a story");
        let details = story.episodes[0].calls[0].details.clone();
        (!details.is_empty()).then_some(details)
    })
    .await;
    // The runtime's own span of the call would repeat the call.
    let [detail] = &details[..] else {
        panic!("{details:?}")
    };
    assert_eq!(detail.name, "cni.setup_pod_network");
    assert_eq!((&*detail.what, &*detail.source), ("runtime", "span"));
    all.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_of_the_kubelet_are_the_story_of_a_pod_before_its_first_call() {
    let fake = Fake::new();
    let all = receiving(&fake, "").await;
    let mut exporter = client(all.address).await;
    let error = "unmounted volumes=[data], unattached volumes=[], failed to process volumes=[]: hunter2: context deadline exceeded";
    let failed = [(250_000, 127_000), (126_000, 3000)];
    for (began, ended) in failed {
        let spans = of_kubelet(vec![sync_pod("create", began, ended, error)]);
        exporter.export(spans).await.expect("taken");
    }
    let story = story_that_says(&all.proxy, "2 tries").await;
    let said = "the kubelet's syncPod failed: volume data is not mounted: <redacted>: context deadline exceeded (2 tries";
    assert!(story.headline.starts_with(said), "{}", story.headline);
    assert!(story.episodes.is_empty());
    // Then the volume is there, and the sandbox is made, but a secret is missing.
    let caller = all.proxy.client().await;
    assert_eq!(caller.call(run_pod_sandbox()).await.code(), 0);
    let error = r#"failed to "StartContainer" for "app" with CreateContainerConfigError: "secret \"db-login\" not found: hunter2""#;
    let spans = of_kubelet(vec![sync_pod("sync", 1500, 0, error)]);
    exporter.export(spans).await.expect("taken");
    let story = story_that_says(&all.proxy, "CreateContainerConfigError of app").await;
    let [episode] = &story.episodes[..] else {
        panic!("{story:?}")
    };
    assert_eq!(episode.cause, "kubelet_sync_failed");
    let last = episode.kubelet.last().expect("its span");
    assert_eq!((&*last.name, last.tries), ("syncPod", 1));
    assert!(last.offset_ms < 0.0 && (last.duration_ms - 1500.0).abs() < 1.0);
    let scrape = all.proxy.scrape().await;
    assert_eq!(received(&scrape, "attributed"), 3.0);
    assert_eq!(received(&scrape, "unknown"), 3.0);
    let log = all.proxy.stop().await.join("\n");
    assert!(!log.contains("hunter2"), "{log}");
}
