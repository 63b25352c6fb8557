//! What containerd tells by events: exits that no call asks for, also after a restart of containerd.

use super::pod::{make, sandbox_config};
use super::{Node, metric};
use crate::prelude::*;

/// Kills the first process of a container or sandbox.
fn end_process(containerd: &Containerd, id: &str) {
    let tasks = Path::new("/run")
        .join(containerd.name())
        .join("state/io.containerd.runtime.v2.task/k8s.io");
    let pid = fs::read_to_string(tasks.join(id).join("init.pid")).expect("its pid");
    let pid = Pid::from_raw(pid.trim().parse().expect("a number"));
    kill(pid, Signal::SIGKILL).expect("kill");
}

async fn headline(proxy: &Proxy) -> String {
    let story = proxy.json("/debug/pods/shop/web").await;
    story["headline"].as_str().unwrap_or_default().to_owned()
}

async fn told(proxy: &Proxy, words: &str) -> String {
    until(words, || async {
        let line = headline(proxy).await;
        line.contains(words).then_some(line)
    })
    .await
}

async fn subscribed(proxy: &Proxy, times: f64) {
    proxy
        .wait_scrape("a subscription", |scrape| {
            let begun = scrape.metric("criscope_containerd_subscriptions_total");
            begun.with("what", "begun").sum() >= times
        })
        .await;
}

/// A node whose criscope has subscribed, with a pod and its container.
async fn subscribed_node() -> (Node, Pod, String) {
    let node = Node::new().await;
    subscribed(&node.proxy, 1.0).await;
    let (pod, container) = make(&node.kubelet, &sandbox_config(&node.containerd)).await;
    (node, pod, container)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_is_told_without_a_call_and_counts_once() {
    let (node, pod, container) = subscribed_node().await;
    let Node {
        containerd,
        proxy,
        kubelet,
    } = &node;
    end_process(containerd, &container);
    let line = told(proxy, "app ended with exit code 137").await;
    assert!(!line.contains("memory"), "{line}");
    let exits = "criscope_container_exits_total";
    proxy
        .wait_scrape("the exit", |scrape| metric(scrape, exits) == 1.0)
        .await;
    assert_eq!(kubelet.status(&container).await.exit_code, 137);
    proxy
        .wait_line("the status", |line| {
            line["event"] == "rpc.end" && is_call(line, "ContainerStatus")
        })
        .await;
    assert_eq!(metric(&proxy.scrape().await, exits), 1.0);

    end_process(containerd, &pod.id);
    let line = told(proxy, "the sandbox died").await;
    assert!(line.contains("exit code 137 (SIGKILL)"), "{line}");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_was_asked_for_is_no_fault() {
    let (node, pod, _) = subscribed_node().await;
    node.kubelet.stop_pod(&pod.id).await;
    node.proxy
        .wait_scrape("the exits of the container and of the sandbox", |scrape| {
            let events = scrape.metric("criscope_containerd_events_total");
            events.with("event", "exit").sum() == 2.0
        })
        .await;
    let line = told(&node.proxy, "app ended with its sandbox").await;
    assert!(
        line.starts_with("the pod was stopped by the kubelet ") && !line.contains("died"),
        "{line}"
    );
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_containerd_is_subscribed_to_again() {
    let (mut node, _, container) = subscribed_node().await;
    node.containerd.kill();
    node.containerd.start().await;
    subscribed(&node.proxy, 2.0).await;
    end_process(&node.containerd, &container);
    told(&node.proxy, "app ended with exit code 137").await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_events_an_exit_is_told_by_its_status() {
    let containerd = Containerd::new().await;
    let start = Start::new(crate::CRISCOPE).upstream(&containerd.socket());
    let proxy = start.config("[containerd]\nevents = false\n").ready().await;
    let node = Node::behind(proxy, containerd).await;
    let Node {
        containerd,
        proxy,
        kubelet,
    } = &node;
    let (_, container) = make(kubelet, &sandbox_config(containerd)).await;
    end_process(containerd, &container);
    let direct = Kubelet::of_containerd(containerd).await;
    direct.ended(&container).await;
    let line = headline(proxy).await;
    assert!(!line.contains("exit code"), "{line}");
    let scrape = proxy.scrape().await;
    for name in ["subscriptions", "events"] {
        let name = format!("criscope_containerd_{name}_total");
        assert_eq!(metric(&scrape, &name), 0.0, "{name}");
    }
    kubelet.status(&container).await;
    told(proxy, "app ended with exit code 137").await;
    node.end().await;
}
