//! Calls that carry only an id are logged with their pod.

use crate::prelude::*;

fn stop(container: &str) -> Call {
    let request = requests::stop(container, 1);
    Call::runtime("StopContainer", encode(&request))
}

async fn wait_entries(proxy: &Proxy, n: usize) {
    let filled = |scrape: &Scrape| scrape.metric("criscope_identity_entries").sum() >= n as f64;
    proxy.wait_scrape("the index is filled", filled).await;
}

async fn line(proxy: &Proxy, method: &str, container: &str) -> Value {
    let matches =
        |l: &Value| l["event"] == "rpc.end" && is_call(l, method) && l["container.id"] == container;
    proxy.wait_line(container, matches).await
}

fn assert_pod(line: &Value, pod: &str) {
    assert_eq!(line["k8s.namespace.name"], "shop", "{line}");
    assert_eq!(line["k8s.pod.name"], pod, "{line}");
    assert_eq!(line["k8s.pod.uid"], format!("uid-{pod}"), "{line}");
    assert_eq!(line["k8s.container.name"], "app", "{line}");
}

#[tokio::test]
async fn ids_are_learnt_from_the_runtimes_lists() {
    let fake = Fake::new();
    fake.node().add_pod("web", "sandbox-1", "container-1");
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    wait_entries(&proxy, 2).await;
    let client = proxy.client().await;
    assert_eq!(client.call(stop("container-1")).await.code(), 0);
    let told = line(&proxy, "StopContainer", "container-1").await;
    assert_pod(&told, "web");
    assert_eq!(told["cri.sandbox.id"], "sandbox-1");

    // Pods created while disconnected are listed after a reconnect.
    fake.stop();
    proxy.wait_event("backend.down").await;
    fake.node().add_pod("new", "sandbox-2", "container-2");
    fake.start();
    wait_entries(&proxy, 4).await;
    assert_eq!(client.call(stop("container-2")).await.code(), 0);
    assert_pod(&line(&proxy, "StopContainer", "container-2").await, "new");
    let scrape = proxy.wait_balanced(2).await;
    let lookups = scrape.metric("criscope_identity_lookups_total");
    assert_eq!(lookups.with("result", "hit").sum(), 2.0);
}

#[tokio::test]
async fn an_old_runtime_is_listed_in_v1alpha2() {
    let fake = Fake::new();
    fake.node().v1 = false;
    fake.node().add_pod("old", "sandbox-1", "container-1");
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    wait_entries(&proxy, 2).await;
    let client = proxy.client().await;
    assert_eq!(client.call(stop("container-1")).await.code(), 0);
    assert_pod(&line(&proxy, "StopContainer", "container-1").await, "old");
}

#[tokio::test]
async fn ids_are_learnt_from_calls() {
    let fake = Fake::new();
    fake.on(|head| match head.uri.path().rsplit('/').next() {
        Some("RunPodSandbox") => script::ok(&[encode(&v1::RunPodSandboxResponse {
            pod_sandbox_id: "sandbox-7".into(),
        })]),
        Some("CreateContainer") => script::ok(&[encode(&v1::CreateContainerResponse {
            container_id: "container-7".into(),
        })]),
        Some("RemoveContainer") => script::error(5, "no such container"),
        _ => script::empty(),
    });
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let client = proxy.client().await;
    let sandbox = pods::config("api");
    let run = requests::run_pod(sandbox.clone(), "");
    let create = requests::create(
        "sandbox-7",
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: "app".into(),
                attempt: 3,
            }),
            ..Default::default()
        },
        sandbox,
    );
    let calls = [
        Call::runtime("RunPodSandbox", encode(&run)),
        Call::runtime("CreateContainer", encode(&create)),
        stop("container-7"),
        Call::runtime("RemoveContainer", encode(&requests::remove("container-7"))),
    ];
    for call in calls {
        client.call(call).await;
    }
    assert_pod(&line(&proxy, "CreateContainer", "container-7").await, "api");
    let told = line(&proxy, "StopContainer", "container-7").await;
    assert_pod(&told, "api");
    assert_eq!(told["k8s.container.restart_count"], 3);
    let told = line(&proxy, "RemoveContainer", "container-7").await;
    assert_pod(&told, "api");
    assert_eq!(told["error.type"], "NOT_FOUND");
    assert_eq!(told["cri.error.source"], "backend");
}

#[tokio::test]
async fn an_unknown_id_makes_criscope_list_again() {
    let (fake, proxy, client) = proxied_client().await;
    fake.node().add_pod("late", "sandbox-1", "container-1");
    assert_eq!(client.call(stop("container-1")).await.code(), 0);
    wait_entries(&proxy, 2).await;
    assert_eq!(client.call(stop("container-1")).await.code(), 0);
    let known = |l: &Value| l["container.id"] == "container-1" && l["k8s.pod.name"] == "late";
    assert_pod(&proxy.wait_line("the pod", known).await, "late");
}
