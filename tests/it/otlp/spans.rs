//! What a span says.

use criscope::call::episode::Ids;

use super::{FAST, SERVER, assert_attributes, hex, of_kind, pair, proxy};
use crate::harness::collector::attribute;
use crate::prelude::*;

fn sandbox_config() -> v1::PodSandboxConfig {
    let mut config = pods::config("web");
    config.metadata.get_or_insert_default().attempt = 2;
    config
}

fn run_sandbox() -> Call {
    pods::run_with(sandbox_config(), "kata").with("grpc-timeout", "4M")
}

fn create_container() -> Call {
    let image = "registry.example:5000/shop/app:1.2@sha256:ab";
    pods::create(sandbox_config(), 3, Some(image))
}

#[tokio::test(flavor = "multi_thread")]
async fn both_spans_say_what_and_whose() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = pods::runtime();
    let proxy = proxy(&fake, &collector, "").await;
    let client = proxy.client().await;
    let stop = requests::stop("container-1", 1);
    for call in [
        run_sandbox(),
        create_container(),
        Call::runtime("StopContainer", encode(&stop)),
    ] {
        assert_eq!(client.call(call).await.code(), 0);
    }
    let spans = collector.wait_spans(6).await;
    assert_eq!(spans.len(), 6);

    let listen = proxy.socket().display().to_string();
    let runtime = fake.path().display().to_string();
    let pid = std::process::id().to_string();
    let (server, upstream) = pair(&spans, "RunPodSandbox");
    assert_eq!(upstream.trace_id, server.trace_id);
    assert_eq!(upstream.parent_span_id, server.span_id);
    let episode = Ids::start("uid-web", 2);
    assert_eq!(hex(&server.trace_id), episode.trace_id.to_string());
    assert_eq!(hex(&server.parent_span_id), episode.root.to_string());
    assert!(server.start_time_unix_nano <= upstream.start_time_unix_nano);
    assert!(upstream.start_time_unix_nano < upstream.end_time_unix_nano);
    assert!(upstream.end_time_unix_nano <= server.end_time_unix_nano);
    assert_attributes(server, &[("server.address", Some(&listen))]);
    assert_attributes(server, &[("network.peer.address", None)]);
    for key in ["server.address", "network.peer.address"] {
        assert_attributes(upstream, &[(key, Some(&runtime))]);
    }
    for span in [server, upstream] {
        assert_eq!(span.name, "runtime.v1.RuntimeService/RunPodSandbox");
        assert_eq!(span.status.as_ref().map_or(0, |s| s.code), 0, "unset");
        assert_attributes(
            span,
            &[
                ("rpc.system.name", Some("grpc")),
                (
                    "rpc.method",
                    Some("runtime.v1.RuntimeService/RunPodSandbox"),
                ),
                ("rpc.status_code", Some("OK")),
                ("error.type", None),
                ("rpc.method_original", None),
                ("criscope.mode", Some("proxy")),
                ("criscope.backend", Some("upstream")),
                ("criscope.client", Some("kubelet")),
                ("criscope.client.pid", Some(&pid)),
                ("criscope.deadline_ms", Some("240000")),
                ("criscope.runtime_handler", Some("kata")),
                ("k8s.namespace.name", Some("shop")),
                ("k8s.pod.name", Some("web")),
                ("k8s.pod.uid", Some("uid-web")),
                ("criscope.sandbox.id", Some("sandbox-1")),
                ("criscope.sandbox.attempt", Some("2")),
            ],
        );
        for key in ["criscope.request.bytes", "criscope.response.bytes"] {
            let bytes = attribute(&span.attributes, key).expect(key);
            assert!(bytes.parse::<u64>().expect(key) > 5, "{key} {bytes}");
        }
    }
    let (server, _) = pair(&spans, "CreateContainer");
    assert_attributes(
        server,
        &[
            ("k8s.container.name", Some("app")),
            ("k8s.container.restart_count", Some("3")),
            ("container.id", Some("container-1")),
            (
                "container.image.name",
                Some("registry.example:5000/shop/app"),
            ),
            ("container.image.tags", Some("1.2")),
            (
                "container.image.repo_digests",
                Some("registry.example:5000/shop/app@sha256:ab"),
            ),
            ("criscope.deadline_ms", None),
        ],
    );
    let (server, _) = pair(&spans, "StopContainer");
    assert_attributes(
        server,
        &[
            ("container.id", Some("container-1")),
            ("k8s.container.name", Some("app")),
            ("k8s.pod.name", Some("web")),
            ("k8s.pod.uid", Some("uid-web")),
            ("criscope.sandbox.id", Some("sandbox-1")),
        ],
    );
    let request = collector.requests().remove(0).resource_spans.remove(0);
    assert_eq!(
        request.schema_url,
        "https://opentelemetry.io/schemas/1.45.0"
    );
    let resource = request.resource.expect("a resource");
    for (key, value) in [
        ("service.name", "criscope"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("process.pid", &proxy.pid().to_string()),
        ("os.type", "linux"),
    ] {
        let got = attribute(&resource.attributes, key);
        assert_eq!(got.as_deref(), Some(value), "{key}");
    }
    for key in ["service.instance.id", "host.name"] {
        assert!(attribute(&resource.attributes, key).is_some(), "{key}");
    }
    assert!(attribute(&resource.attributes, "k8s.pod.name").is_none());
    proxy.stop().await;
}

/// SERVER spans count as failed when the server is at fault, CLIENT spans whenever the status is not OK (OpenTelemetry,
/// semantic conventions for gRPC).
#[tokio::test(flavor = "multi_thread")]
async fn errors_are_told_and_who_is_at_fault() {
    const UNSET: i32 = 0;
    const ERROR: i32 = 2;
    let cases = [
        (5, "NOT_FOUND", UNSET),
        (13, "INTERNAL", ERROR),
        (14, "UNAVAILABLE", ERROR),
        (3, "INVALID_ARGUMENT", UNSET),
        (4, "DEADLINE_EXCEEDED", ERROR),
    ];
    let collector = Collector::new(Manner::Takes).await;
    let fake = Fake::new();
    let proxy = proxy(&fake, &collector, "").await;
    let client = proxy.client().await;
    for (i, (code, name, server_status)) in cases.into_iter().enumerate() {
        fake.always(script::error(code, "no such container hunter2"));
        // A poll: it would not be sampled if it were well.
        let got = client.call(Call::plain("ContainerStatus")).await;
        assert_eq!(got.code(), code);
        let spans = collector.wait_spans(2 * i + 2).await;
        let (server, upstream) = pair(&spans[2 * i..], "ContainerStatus");
        for (span, wanted) in [(server, server_status), (upstream, ERROR)] {
            let status = span.status.clone().unwrap_or_default();
            assert_eq!(status.code, wanted, "{name}");
            assert_attributes(
                span,
                &[
                    ("rpc.status_code", Some(name)),
                    ("error.type", (wanted == ERROR).then_some(name)),
                ],
            );
            if wanted == ERROR {
                assert_eq!(status.message, "no such container <redacted>");
            }
        }
    }
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_polls_only_the_slow_the_cancelled_and_the_failed_are_exported() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = Fake::new();
    // Only what is made slow is slow, and nothing that the machine is slow with.
    let sampling =
        format!("{FAST}[[telemetry.sampling.methods]]\nmethod = \"ListImages\"\nslow = \"2s\"\n");
    let proxy = proxy(&fake, &collector, &sampling).await;
    let client = proxy.client().await;
    for _ in 0..20 {
        let got = client.call(Call::plain("ListContainers")).await;
        assert_eq!(got.code(), 0);
    }

    fake.always(vec![Step::Read, Step::Hang]);
    let open = client.start(Call::plain("PodSandboxStatus")).await;
    fake.wait_count(21).await;
    open.reset(h2::Reason::CANCEL);

    let gate = CancellationToken::new();
    let mut steps = script::empty();
    steps.insert(1, Step::Wait(gate.clone()));
    fake.always(steps);
    let open = client.start(Call::image("ListImages", encode(&()))).await;
    until("a slow call", || async {
        let calls = proxy.json("/debug/calls").await;
        (calls[0]["duration_ms"].as_f64()? > 2000.0).then_some(())
    })
    .await;
    gate.cancel();
    assert_eq!(open.finish().await.code(), 0);

    fake.always(script::error(5, "no"));
    client.call(Call::image("ImageStatus", encode(&()))).await;
    proxy.wait_balanced(23).await;
    // All spans are sent before it ends.
    proxy.stop().await;
    let spans = collector.spans();
    let mut names: Vec<_> = of_kind(&spans, SERVER)
        .into_iter()
        .map(|s| s.name.rsplit('/').next().unwrap_or_default())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["ImageStatus", "ListImages", "PodSandboxStatus"]);
    let (server, _) = pair(&spans, "PodSandboxStatus");
    assert_attributes(server, &[("rpc.status_code", Some("CANCELLED"))]);
    assert_eq!(server.status.as_ref().map_or(0, |s| s.code), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_call_has_its_name_in_an_attribute() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = Fake::new();
    let proxy = proxy(&fake, &collector, "").await;
    let client = proxy.client().await;
    client
        .call(Call::new("/grpc.health.v1.Health/Check", encode(&())))
        .await;
    let spans = collector.wait_spans(2).await;
    for span in &spans {
        assert_eq!(span.name, "grpc");
        assert_attributes(
            span,
            &[
                ("rpc.method", Some("_OTHER")),
                ("rpc.method_original", Some("grpc.health.v1.Health/Check")),
            ],
        );
    }
    proxy.stop().await;
}
