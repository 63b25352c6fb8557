//! What containerd tells by events: exits that no call asks for, also after a restart of containerd.

use std::fs;
use std::path::Path;

use criscope::cri::v1;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::pod::{Clients, make, sandbox_config};
use super::{before, end, metric};
use crate::harness::containerd::Containerd;
use crate::harness::proxy::{Proxy, Start, is_call};
use crate::harness::until;

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
    let (_, text) = proxy.get("/debug/pods/shop/web?format=json").await;
    let story: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
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

async fn status(clients: &mut Clients, id: &str) -> v1::ContainerStatus {
    let request = v1::ContainerStatusRequest {
        container_id: id.into(),
        verbose: false,
    };
    let answer = clients.runtime.container_status(request).await;
    answer.expect("status").into_inner().status.expect("one")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_is_told_without_a_call_and_counts_once() {
    let containerd = Containerd::new().await;
    let config = sandbox_config(&containerd);
    let proxy = before(&containerd).await;
    subscribed(&proxy, 1.0).await;
    let mut clients = Clients::of(&proxy.socket()).await;
    let (sandbox, container) = make(&mut clients, &config).await;
    end_process(&containerd, &container);
    let line = told(&proxy, "container app ended with exit code 137 (SIGKILL)").await;
    assert!(!line.contains("memory"), "{line}");
    let exits = "criscope_container_exits_total";
    proxy
        .wait_scrape("the exit", |scrape| metric(scrape, exits) == 1.0)
        .await;
    assert_eq!(status(&mut clients, &container).await.exit_code, 137);
    proxy
        .wait_line("the status", |line| {
            line["event"] == "rpc.end" && is_call(line, "ContainerStatus")
        })
        .await;
    assert_eq!(metric(&proxy.scrape().await, exits), 1.0);

    end_process(&containerd, &sandbox);
    let line = told(&proxy, "the sandbox died").await;
    assert!(line.contains("exit code 137 (SIGKILL)"), "{line}");
    proxy.stop().await;
    end(containerd);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_was_asked_for_is_no_fault() {
    let containerd = Containerd::new().await;
    let config = sandbox_config(&containerd);
    let proxy = before(&containerd).await;
    subscribed(&proxy, 1.0).await;
    let mut clients = Clients::of(&proxy.socket()).await;
    let (sandbox, _) = make(&mut clients, &config).await;
    let request = v1::StopPodSandboxRequest {
        pod_sandbox_id: sandbox,
    };
    let stopped = clients.runtime.stop_pod_sandbox(request).await;
    stopped.expect("stopped");
    proxy
        .wait_scrape("the exits of the container and of the sandbox", |scrape| {
            let events = scrape.metric("criscope_containerd_events_total");
            events.with("event", "exit").sum() == 2.0
        })
        .await;
    let line = told(&proxy, "app ended with its sandbox").await;
    assert!(
        line.starts_with("the pod was stopped by another client ") && !line.contains("died"),
        "{line}"
    );
    proxy.stop().await;
    end(containerd);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_containerd_is_subscribed_to_again() {
    let mut containerd = Containerd::new().await;
    let config = sandbox_config(&containerd);
    let proxy = before(&containerd).await;
    subscribed(&proxy, 1.0).await;
    let mut clients = Clients::of(&proxy.socket()).await;
    let (_, container) = make(&mut clients, &config).await;
    containerd.kill();
    containerd.start().await;
    subscribed(&proxy, 2.0).await;
    end_process(&containerd, &container);
    told(&proxy, "container app ended with exit code 137 (SIGKILL)").await;
    proxy.stop().await;
    end(containerd);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_events_an_exit_is_told_by_its_status() {
    let containerd = Containerd::new().await;
    let config = sandbox_config(&containerd);
    let proxy = Start::new(crate::CRISCOPE)
        .upstream(&containerd.socket())
        .config("[containerd]\nevents = false\n")
        .ready()
        .await;
    let mut clients = Clients::of(&proxy.socket()).await;
    let (_, container) = make(&mut clients, &config).await;
    end_process(&containerd, &container);
    let mut direct = Clients::of(&containerd.socket()).await;
    until("the exit", || {
        let mut direct = Clients {
            runtime: direct.runtime.clone(),
            images: direct.images.clone(),
        };
        let id = &container;
        async move {
            let exited = v1::ContainerState::ContainerExited as i32;
            (status(&mut direct, id).await.state == exited).then_some(())
        }
    })
    .await;
    status(&mut direct, &container).await;
    let line = headline(&proxy).await;
    assert!(!line.contains("exit code"), "{line}");
    let scrape = proxy.scrape().await;
    for name in ["subscriptions", "events"] {
        let name = format!("criscope_containerd_{name}_total");
        assert_eq!(metric(&scrape, &name), 0.0, "{name}");
    }
    status(&mut clients, &container).await;
    told(&proxy, "container app ended with exit code 137 (SIGKILL)").await;
    proxy.stop().await;
    end(containerd);
}
