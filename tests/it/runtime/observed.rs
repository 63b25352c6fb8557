//! The daemon with the built-in runtime, seen from inside: one trace with every step in its place, stories that name the
//! slow plugin and the slow layer, metrics. Needs root, runc and a static busybox.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use criscope::cri::v1;
use criscope::story::view::{PodStory, Pulls};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use super::Scratch;
use super::image::make::{self, Image};
use super::image::registry::Registry;
use crate::harness::client::{Call, Client};
use crate::harness::collector::{Collector, Manner, attribute};
use crate::harness::proxy::{Proxy, Start};
use crate::harness::{encode, until};

/// How long the slow ones sleep: longer than what is called quick.
const SLOW: Duration = Duration::from_millis(2_300);

/// What the plugin answers in the end.
const RESULT: &str = r#"{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]}"#;

/// What no log may show.
const SECRET: &str = "hunter2hunter2";

struct Node {
    proxy: Proxy,
    scratch: Scratch,
}

impl Node {
    /// With a plugin that says this for ADD.
    async fn start(collector: &Collector, add: &str) -> Self {
        let scratch = Scratch::new();
        let dir = scratch.path();
        for name in ["bin", "net.d", "cni"] {
            fs::create_dir(dir.join(name)).expect("dir");
        }
        let conf = r#"{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"dawdler"}]}"#;
        fs::write(dir.join("net.d/net.conflist"), conf).expect("write");
        plugin(dir, add);
        let path = |name: &str| dir.join(name).display().to_string();
        let config = format!(
            "[backends.main]\nkind = \"builtin\"\n\
             [runtime]\nroot = {:?}\nstate = {:?}\nshim = {:?}\n\
             [runtime.cni]\nconf_dir = {:?}\nbin_dirs = [{:?}]\ncache_dir = {:?}\n\
             [telemetry.otlp]\nendpoint = {:?}\n\
             [story]\nstate_dir = {:?}\n",
            path("root"),
            path("state"),
            env!("CARGO_BIN_EXE_criscope-shim"),
            path("net.d"),
            path("bin"),
            path("cni"),
            collector.endpoint(),
            path("story"),
        );
        let start = Start::new()
            .config(&config)
            .env("OTEL_BSP_SCHEDULE_DELAY", "50");
        Self {
            proxy: start.ready().await,
            scratch,
        }
    }

    async fn client(&self) -> Client {
        self.proxy.client().await
    }

    async fn story(&self, pod: &str) -> PodStory {
        let path = format!("/debug/pods/ns/{pod}?format=json");
        until("the story", || async {
            let (_, text) = self.proxy.get(&path).await;
            serde_json::from_str(&text).ok()
        })
        .await
    }
}

fn plugin(dir: &Path, add: &str) {
    let script = format!(
        "#!/bin/sh\ncat >/dev/null\nenv >{}/env.$CNI_COMMAND\n[ \"$CNI_COMMAND\" = ADD ] || exit 0\n{add}\n",
        dir.display()
    );
    let path = dir.join("bin/dawdler");
    fs::write(&path, script).expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
}

fn pod(name: &str) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            namespace: "ns".to_owned(),
            attempt: 0,
        }),
        ..Default::default()
    }
}

async fn good<M: Message + Default>(client: &Client, call: Call) -> M {
    let got = client.call(call).await;
    assert_eq!(got.code(), 0, "{}", got.text());
    M::decode(&got.data[5..]).expect("a message")
}

async fn run(client: &Client, name: &str) -> String {
    let request = v1::RunPodSandboxRequest {
        config: Some(pod(name)),
        ..Default::default()
    };
    let call = Call::runtime("RunPodSandbox", encode(&request));
    let made: v1::RunPodSandboxResponse = good(client, call).await;
    made.pod_sandbox_id
}

fn pull(image: &str, name: &str) -> Call {
    let request = v1::PullImageRequest {
        image: Some(v1::ImageSpec {
            image: image.to_owned(),
            ..Default::default()
        }),
        sandbox_config: Some(pod(name)),
        ..Default::default()
    };
    Call::image("PullImage", encode(&request))
}

async fn start_container(client: &Client, sandbox: &str, name: &str, image: &str) -> String {
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: sandbox.to_owned(),
        config: Some(v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: "app".to_owned(),
                attempt: 0,
            }),
            image: Some(v1::ImageSpec {
                image: image.to_owned(),
                ..Default::default()
            }),
            command: vec![
                "/bin/busybox".to_owned(),
                "sleep".to_owned(),
                "600".to_owned(),
            ],
            ..Default::default()
        }),
        sandbox_config: Some(pod(name)),
    };
    let call = Call::runtime("CreateContainer", encode(&request));
    let made: v1::CreateContainerResponse = good(client, call).await;
    let request = v1::StartContainerRequest {
        container_id: made.container_id.clone(),
    };
    let call = Call::runtime("StartContainer", encode(&request));
    let _: v1::StartContainerResponse = good(client, call).await;
    made.container_id
}

async fn remove(client: &Client, sandbox: &str) {
    let request = v1::StopPodSandboxRequest {
        pod_sandbox_id: sandbox.to_owned(),
    };
    let call = Call::runtime("StopPodSandbox", encode(&request));
    let _: v1::StopPodSandboxResponse = good(client, call).await;
    let request = v1::RemovePodSandboxRequest {
        pod_sandbox_id: sandbox.to_owned(),
    };
    let call = Call::runtime("RemovePodSandbox", encode(&request));
    let _: v1::RemovePodSandboxResponse = good(client, call).await;
}

/// Busybox in one layer, and something that cannot be made smaller in another.
fn image() -> Image {
    let busybox = fs::read("/bin/busybox").expect("busybox-static is installed");
    let program = make::layer().dir("bin", 0o755).entry(
        "bin/busybox",
        tar::EntryType::Regular,
        &busybox,
        |header| header.set_mode(0o755),
    );
    let noise = make::layer().file("noise", &make::noise(7, 200_000));
    make::gzipped(&[program.end(), noise.end()])
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|b| format!("{b:02x}")).collect()
}

fn one<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    let span = found.next().unwrap_or_else(|| panic!("no span {name}"));
    assert!(found.next().is_none(), "one {name} only");
    span
}

fn call_span<'a>(spans: &'a [Span], method: &str) -> &'a Span {
    const CLIENT: i32 = 3;
    let mut found = spans.iter().filter(|span| span.kind == CLIENT);
    found
        .find(|span| span.name.ends_with(&format!("/{method}")))
        .unwrap_or_else(|| panic!("no {method}"))
}

/// Where each step of a start belongs.
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
async fn a_start_is_told_step_by_step() {
    let collector = Collector::new(Manner::Takes).await;
    let add = format!("sleep {}\necho '{}'", SLOW.as_secs_f64() + 1.0, RESULT);
    let node = Node::start(&collector, &add).await;
    let registry = Registry::start().await;
    let image = image();
    let name = registry.push("tools", "1", &image);
    let slow = make::digest(&image.layers[1]).to_string();
    registry.hook(move |asked| {
        if asked.path.contains(&slow) {
            std::thread::sleep(SLOW);
        }
        None
    });

    let client = node.client().await;
    let sandbox = run(&client, "web").await;
    let pulling = client.call(pull(&name, "web"));
    let looking = until("the pull on its page", || async {
        let (_, text) = node.proxy.get("/debug/images/pulls?format=json").await;
        let pulls: Pulls = serde_json::from_str(&text).ok()?;
        let progress = pulls.in_flight.first()?.progress.clone()?;
        let fetching = progress
            .layers
            .iter()
            .any(|layer| layer.phase == "fetching");
        fetching.then_some(progress)
    });
    let (pulled, progress) = tokio::join!(pulling, looking);
    assert_eq!(pulled.code(), 0, "{}", pulled.text());
    assert_eq!(progress.layers.len(), 2);
    assert!(progress.of_bytes >= 200_000);
    let _container = start_container(&client, &sandbox, "web", &name).await;

    let story = node.story("web").await;
    let headline = &story.headline;
    assert!(headline.contains("in the CNI plugin dawdler"), "{headline}");
    let calls = &story.episodes[0].calls;
    let detail = |method: &str, what: &str| {
        let call = calls.iter().find(|call| call.method == method);
        let details = &call.unwrap_or_else(|| panic!("no {method}")).details;
        let found = details.iter().find(|detail| detail.name.starts_with(what));
        let found = found.unwrap_or_else(|| panic!("no {what} in {details:?}"));
        assert_eq!(found.source, "runtime");
        found.duration_ms
    };
    let slow = SLOW.as_secs_f64() * 1e3;
    assert!(detail("RunPodSandbox", "dawdler") >= slow);
    assert!(detail("PullImage", "the fetch of layer sha256:") > 0.0);
    detail("RunPodSandbox", "making namespaces");
    detail("RunPodSandbox", "the launch of the shim");
    detail("StartContainer", "runc");
    let pull = calls.iter().find(|call| call.method == "PullImage");
    let fetched = pull.into_iter().flat_map(|call| &call.details);
    assert!(fetched.map(|detail| detail.duration_ms).fold(0.0, f64::max) >= slow);

    let spans = until("all steps at the collector", || async {
        let spans = collector.spans();
        let all = TREE
            .iter()
            .all(|(step, _)| spans.iter().any(|s| s.name == *step));
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

    remove(&client, &sandbox).await;
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

/// Plugins put into their errors whatever they were told.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_plugin_quotes_is_hidden() {
    let collector = Collector::new(Manner::Takes).await;
    let add = format!(
        "echo '{{\"cniVersion\":\"1.0.0\",\"code\":11,\"msg\":\"cannot log in: password={SECRET}\"}}'\nexit 1"
    );
    let node = Node::start(&collector, &add).await;
    let client = node.client().await;
    let request = v1::RunPodSandboxRequest {
        config: Some(pod("web")),
        ..Default::default()
    };
    let got = client
        .call(Call::runtime("RunPodSandbox", encode(&request)))
        .await;
    assert_ne!(got.code(), 0);
    assert!(
        got.text().contains(SECRET),
        "the caller is told all: {}",
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
    let story = node.story("web").await;
    assert!(!format!("{story:?}").contains(SECRET), "{}", story.headline);
    let (_, metrics) = node.proxy.get("/metrics").await;
    assert!(!metrics.contains(SECRET));
    let log = node.proxy.stop().await.join("\n");
    assert!(
        log.contains("RunPodSandbox") && !log.contains(SECRET),
        "{log}"
    );
}
