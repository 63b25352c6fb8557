//! A hanging shim: how it is reported, and that its pod can still be stopped and removed.

use crate::prelude::*;

/// Stops the shim of a pod, like a process that is stuck in the kernel.
fn hang(daemon: &Daemon, pod: &Pod) {
    halt(daemon.shim(&pod.id));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_a_hanging_shim_can_be_removed() {
    let (daemon, kubelet) = node().await;
    let mut config = kubelet.pod_config("hangs");
    // With a process of its own, which is a child of the shim.
    let options = pod_namespaces(&mut config);
    options.pid = v1::NamespaceMode::Pod.into();
    let pod = kubelet.run(config).await;
    let container = kubelet.launch(&pod, idle("main")).await;
    let other = kubelet.plain_pod("well").await;
    let well = kubelet.launch(&other, idle("main")).await;
    hang(&daemon, &pod);

    assert_refused(
        kubelet.try_stop(&container, 5).await,
        Code::DeadlineExceeded,
        &pod.id,
    );
    assert_eq!(kubelet.says(&well, "echo well").await, "well");

    kubelet.stop_pod(&pod.id).await;
    let status = kubelet.status(&container).await;
    assert!(status.state() == v1::ContainerState::ContainerExited);
    assert_eq!((status.exit_code, status.reason.as_str()), (255, "Unknown"));
    let state = kubelet.pod_status(&pod).await.state();
    assert!(state == v1::PodSandboxState::SandboxNotready);
    let scrape = daemon.program().scrape().await;
    let lost = scrape.metric("criscope_runtime_shims_lost_total");
    assert_eq!(lost.with("how", "killed").sum(), 1.0);
    let lost = scrape.metric("criscope_runtime_shims_lost_total");
    assert_eq!(lost.with("how", "died").sum(), 0.0);
    let of = |line: &Value| line["cri.sandbox.id"] == pod.id.as_str();
    let said = |line: &Value| line["event"] == "runtime.shim" && of(line);
    daemon
        .program()
        .wait_line("the log line of the kill", said)
        .await;
    let left = leaks::processes(daemon.name());
    assert!(
        !left.iter().any(|(_, what)| what.contains(&pod.id)),
        "{left:?}"
    );

    kubelet.end(&pod).await;
    assert_eq!(kubelet.says(&well, "echo well").await, "well");
    daemon.end(&kubelet, [&other]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_shim_is_handled_after_a_restart_and_when_its_pod_is_removed() {
    let (mut daemon, kubelet) = node().await;
    let before = kubelet.plain_pod("before").await;
    let container = kubelet.launch(&before, idle("main")).await;
    let stopped = kubelet.plain_pod("stopped").await;
    kubelet.stop_pod(&stopped.id).await;
    daemon.kill();
    hang(&daemon, &before);
    hang(&daemon, &stopped);
    let kubelet = daemon.serve().await;
    // As far as is known, it is running.
    let status = kubelet.status(&container).await;
    assert!(status.state() == v1::ContainerState::ContainerRunning);
    daemon.end(&kubelet, [&before, &stopped]).await;
}
