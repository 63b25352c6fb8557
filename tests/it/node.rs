//! The state of the node: conditions of the runtime, and downtimes of criscope.

use prost::Message as _;

use crate::commands::{complaint, output, printed};
use crate::harness::pods::{self, Kubelet};
use crate::prelude::*;

/// containerd's message with an empty `/etc/cni/net.d`.
const NO_CNI: &str = "Network plugin returns error: cni plugin not initialized";

fn network(fake: &Fake, is_ready: bool) {
    for condition in &mut fake.node().conditions {
        if condition.r#type == "NetworkReady" {
            condition.status = is_ready;
            condition.reason = "NetworkPluginNotReady".into();
            condition.message = if is_ready { "" } else { NO_CNI }.into();
        }
    }
}

async fn proxy(fake: &Fake, state: &Path) -> Proxy {
    let config = format!("[story]\nstate_dir = \"{}\"\n", state.display());
    let start = Start::new(crate::CRISCOPE).config(&config);
    start.upstream(fake.path()).ready().await
}

/// Waits until the sentence on a pod contains this. On a slow machine the kubelet or criscope may not answer in time.
async fn tells(proxy: &Proxy, pod: &str, wanted: &str) {
    until_true(wanted, || async {
        let output = output(proxy, &["explain", pod]).await;
        String::from_utf8_lossy(&output.stderr).contains(wanted)
    })
    .await;
}

/// The kubelet's pod resources API has the names of pods that no call has named.
#[tokio::test(flavor = "multi_thread")]
async fn the_kubelet_is_asked_for_a_pod_that_no_call_has_named() {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Pod {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(string, tag = "2")]
        namespace: String,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct Answer {
        #[prost(message, repeated, tag = "1")]
        pods: Vec<Pod>,
    }
    let (fake, kubelet) = (pods::runtime(), Fake::new());
    let (state, dir) = (tempfile::tempdir(), tempfile::tempdir());
    let (state, dir) = (state.expect("dir"), dir.expect("dir"));
    let pods = vec![Pod {
        name: "waits".to_owned(),
        namespace: "shop".to_owned(),
    }];
    let answer = message(&Answer { pods }.encode_to_vec());
    kubelet.on(move |request| match request.uri.path() {
        "/v1.PodResourcesLister/List" => script::ok(std::slice::from_ref(&answer)),
        _ => script::error(12, "unknown method"),
    });
    fs::create_dir_all(dir.path().join("pod-resources")).expect("dir");
    let socket = dir.path().join("pod-resources/kubelet.sock");
    std::os::unix::fs::symlink(kubelet.path(), socket).expect("link");
    let config = format!(
        "[story]\nstate_dir = {:?}\nkubelet_dir = {:?}\n",
        state.path(),
        dir.path()
    );
    let start = Start::new(crate::CRISCOPE).config(&config);
    let proxy = start.upstream(fake.path()).ready().await;
    // As the kubelet makes it for a pod whose volumes it waits for.
    let uid = "1b2c3d4e-0000-4000-8000-000000000001";
    let volumes = "volumes/kubernetes.io~configmap";
    fs::create_dir_all(dir.path().join("pods").join(uid).join(volumes)).expect("dir");
    for (pod, wanted) in [
        (
            "shop/waits",
            "no record of pod shop/waits: the kubelet has known the pod for",
        ),
        (
            "shop/refused",
            "the kubelet does not have it among its active pods",
        ),
    ] {
        tells(&proxy, pod, wanted).await;
    }
    // A kubelet that does not answer holds nothing up.
    kubelet.stop();
    tells(&proxy, "shop/refused", "whose name is not known here yet").await;
}

/// With an empty CNI directory the kubelet makes no calls for waiting pods.
#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_is_not_ready_is_the_first_line() {
    let (fake, state) = (pods::runtime(), tempfile::tempdir().expect("dir"));
    network(&fake, false);
    let proxy = proxy(&fake, state.path()).await;
    let is_false = |scrape: &Scrape| {
        let network = scrape.metric("criscope_backend_condition");
        let network = network.with("condition", "NetworkReady");
        !network.is_empty() && network.sum() == 0.0
    };
    proxy.wait_scrape("the condition", is_false).await;
    let error = until("the fact", || async {
        let error = complaint(&proxy, &["explain", "shop/waits"]).await;
        error
            .contains("has reported NetworkReady false for")
            .then_some(error)
    })
    .await;
    let first = error.lines().next().expect("a line");
    assert!(
        first.contains(
            "no record of pod shop/waits: the runtime upstream has reported NetworkReady false for"
        ),
        "{error}"
    );
    assert!(first.contains("cni plugin not initialized"), "{error}");
    assert!(
        error.contains("the kubelet has not asked for a sandbox"),
        "{error}"
    );
    assert!(
        error.contains("no kubelet has connected since criscope started"),
        "{error}"
    );

    // A pod whose sandbox is created nevertheless, but which gets no further call.
    proxy.client().await.call(pods::run("silent")).await;
    let story = until("the silence", || async {
        let story = printed(&proxy, &["explain", "shop/silent"]).await;
        story.contains("NetworkReady").then_some(story)
    })
    .await;
    assert!(
        story.contains("no call since RunPodSandbox ended"),
        "{story}"
    );

    network(&fake, true);
    let again = |line: &Value| line["event"] == "backend.condition" && line["status"] == true;
    let line = proxy
        .wait_line("the network to be ready again", again)
        .await;
    assert_eq!(line["condition"], "NetworkReady", "{line}");
    drop(proxy.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn downtime_of_criscope_is_reported() {
    let (fake, state) = (pods::runtime(), tempfile::tempdir().expect("dir"));
    let first = proxy(&fake, state.path()).await;
    first.client().await.call(pods::run("web")).await;
    let alive = state.path().join("alive");
    until_true("the time", async || alive.exists()).await;
    // It was up for a time, which its end does not tell.
    tokio::time::sleep(Duration::from_millis(200)).await;
    first.signal(Signal::SIGKILL);
    first.ended().await;
    // The downtime: shorter ones are no gap.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let second = proxy(&fake, state.path()).await;
    let error = until("the gap", || async {
        let error = complaint(&second, &["explain", "shop/other"]).await;
        error.contains("criscope was down from").then_some(error)
    })
    .await;
    assert!(error.contains("saw no calls then"), "{error}");
    drop(second.stop().await);
}

/// The file that tells until when criscope ran has the id of the boot; here that of another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_node_is_why_a_sandbox_is_replaced() {
    let (fake, state) = (pods::runtime(), tempfile::tempdir().expect("dir"));
    let first = proxy(&fake, state.path()).await;
    let started = Kubelet::before(&first).await.start("web", false).await;
    assert!(started.is_some());
    drop(first.stop().await);
    let alive = state.path().join("alive");
    let written = fs::read_to_string(&alive).expect("written");
    let (time, boot) = written.split_once(' ').expect("a time and a boot");
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("an id");
    assert_eq!(boot, id.trim());
    fs::write(&alive, format!("{time} of-an-earlier-boot")).expect("written");
    // The downtime: shorter ones are no gap.
    tokio::time::sleep(Duration::from_millis(1500)).await;

    let second = proxy(&fake, state.path()).await;
    second.wait_event("node.restarted").await;
    let kubelet = Kubelet::before(&second).await;
    let pod = kubelet.sandbox_again("web", 1).await.expect("a sandbox");
    kubelet.container(&pod, 1).await.expect("a container");
    let told = until("the reason", || async {
        let told = printed(&second, &["explain", "shop/web"]).await;
        told.contains("app up after ").then_some(told)
    })
    .await;
    assert!(
        told.contains("the sandbox was replaced (attempt 1): the node was restarted at "),
        "{told}"
    );
    drop(second.stop().await);
}

/// With the OCI runtimes of this machine, each of which creates its own files in the rootfs of a container.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_runs_a_container_and_leaves_nothing() {
    program("runc", "runc");
    let temp = tempfile::tempdir().expect("dir");
    let mut command = Command::new(crate::CRISCOPE);
    command.args(["doctor"]).env("TMPDIR", temp.path());
    let run = tokio::task::spawn_blocking(move || command.output());
    let output = run.await.expect("joined").expect("run");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("runc ran a container in"), "{said}");
    let left = fs::read_dir(temp.path()).expect("there");
    assert_eq!(left.count(), 0, "{said}");
}
