//! What the runtime tells into the stories by itself. No call but those that make and stop a pod is sent until it is told.

use super::shared_pid::{init, member};
use crate::prelude::*;

/// A child that takes all the memory that its container may have.
const HUNGRY: &str = "(x=1234567890; while :; do x=$x$x; done)";

async fn headline(proxy: &Proxy) -> String {
    let story = proxy.json("/debug/pods/test/web").await;
    story["headline"].as_str().unwrap_or_default().to_owned()
}

async fn told(daemon: &Daemon, words: &str) -> String {
    until(words, || async {
        let line = headline(daemon.program()).await;
        line.contains(words).then_some(line)
    })
    .await
}

async fn exits(daemon: &Daemon) -> f64 {
    let scrape = daemon.program().scrape().await;
    scrape.metric("criscope_container_exits_total").sum()
}

/// Waits until an exit was told and counted.
async fn counted(daemon: &Daemon) {
    let exits = "criscope_container_exits_total";
    let counts = daemon.program();
    counts
        .wait_scrape("an exit", |scrape| scrape.metric(exits).sum() >= 1.0)
        .await;
}

fn limited(script: &str) -> v1::ContainerConfig {
    let mut config = shell("app", script);
    let linux = config.linux.get_or_insert_default();
    linux
        .resources
        .get_or_insert_default()
        .memory_limit_in_bytes = 24 << 20;
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_is_told_without_a_call_and_counts_once() {
    let (daemon, kubelet, pod) = node_with_pod("web").await;
    let container = kubelet.launch(&pod, shell("app", "sleep 2; exit 6")).await;
    let line = told(&daemon, "app ended with exit code 6 after 2 s").await;
    assert!(!line.contains("memory"), "{line}");
    counted(&daemon).await;
    assert_eq!(kubelet.status(&container).await.exit_code, 6);
    daemon
        .program()
        .wait_line("the status", |line| {
            line["event"] == "rpc.end" && is_call(line, "ContainerStatus")
        })
        .await;
    assert_eq!(exits(&daemon).await, 1.0);
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_is_told_after_a_restart() {
    let (mut daemon, kubelet, pod) = node_with_pod("web").await;
    let script = "until [ -e /go ]; do sleep 0.05; done; exit 6";
    let container = kubelet.launch(&pod, shell("app", script)).await;
    told(&daemon, "app up").await;
    let kubelet = daemon.restart().await;
    kubelet.says(&container, "touch /go").await;
    told(&daemon, "app ended with exit code 6 after").await;
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_for_lack_of_memory_are_told_each() {
    let (daemon, kubelet, pod) = node_with_pod("web").await;
    let until_told = "until [ -e /go ]; do sleep 0.05; done";
    let script =
        format!("{HUNGRY}; {until_told}; {HUNGRY}; {HUNGRY}; rm /go; {until_told}; exit 5");
    let container = kubelet.launch(&pod, limited(&script)).await;
    told(&daemon, "a process of app was OOM-killed (").await;
    // Once the exec has ended: its processes are in the same cgroup, and could be those that are killed.
    let go = "(sleep 1; touch /go) > /dev/null 2>&1 &";
    kubelet.says(&container, go).await;
    until_true("two kills more", async || {
        let line = headline(daemon.program()).await;
        line.contains("killed 3 processes") || line.contains(" 3 times in ")
    })
    .await;
    kubelet.says(&container, go).await;
    let line = told(&daemon, "exit code 5").await;
    assert!(
        line.contains("after one of its processes was OOM-killed"),
        "{line}"
    );
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_for_lack_of_memory_is_told_as_that() {
    let (daemon, kubelet, pod) = node_with_pod("web").await;
    // The shell itself.
    let hungry = HUNGRY.trim_matches(['(', ')']);
    kubelet.launch(&pod, limited(hungry)).await;
    told(&daemon, "app was OOMKilled").await;
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_dies_with_the_init_of_its_shared_pid_namespace() {
    let (daemon, kubelet) = node().await;
    let pod = kubelet.run(kubelet.shared_pid_config("web")).await;
    let container = kubelet.launch(&pod, member("app", &[])).await;
    let pid = init(&kubelet, &container).await;
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("kill");
    let line = told(&daemon, "the sandbox died").await;
    assert!(
        line.contains("the init of its shared PID namespace ended; no call asked for that"),
        "{line}"
    );
    daemon.end(&kubelet, [&pod]).await;
}

/// The containers of any pod end with its shim, and its sandbox if they share a PID namespace.
#[tokio::test(flavor = "multi_thread")]
async fn what_ends_with_a_shim_is_told() {
    for (is_shared, words) in [
        (false, "the runtime did not see how: its shim died"),
        (
            true,
            "its shim ended, and everything in the sandbox with it; no call asked for that",
        ),
    ] {
        let (daemon, kubelet) = node().await;
        let pod = match is_shared {
            true => kubelet.run(kubelet.shared_pid_config("web")).await,
            false => kubelet.plain_pod("web").await,
        };
        let config = match is_shared {
            true => member("app", &[]),
            false => idle("app"),
        };
        kubelet.launch(&pod, config).await;
        kill(daemon.shim(&pod.id), Signal::SIGKILL).expect("kill");
        told(&daemon, words).await;
        daemon.end(&kubelet, [&pod]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_start_is_no_exit_and_a_stop_no_fault() {
    let (daemon, kubelet, pod) = node_with_pod("web").await;
    let mut config = idle("absent");
    config.command = vec!["/no/such/program".to_owned()];
    let absent = kubelet.try_create(&pod, config).await;
    let absent = absent.expect("CreateContainer");
    kubelet.start(&absent).await.expect_err("no program");
    let container = kubelet.launch(&pod, idle("app")).await;
    kubelet.stop(&container, 0).await;
    counted(&daemon).await;
    let line = headline(daemon.program()).await;
    assert!(line.starts_with("absent cannot start"), "{line}");
    let never = ["ended with", "128", "137", "memory"];
    assert!(!never.iter().any(|word| line.contains(word)), "{line}");
    assert_eq!(exits(&daemon).await, 1.0);
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_stopped_has_not_died() {
    let (daemon, kubelet) = node().await;
    let pod = kubelet.run(kubelet.shared_pid_config("web")).await;
    kubelet.launch(&pod, member("app", &[])).await;
    kubelet.end(&pod).await;
    counted(&daemon).await;
    let line = told(&daemon, "app ended with its sandbox").await;
    assert!(
        line.starts_with("the pod was stopped by the kubelet ") && !line.contains("died"),
        "{line}"
    );
    daemon.assert_clean();
}
