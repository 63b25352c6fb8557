//! A hanging shim: how it is reported, and that its pod can still be stopped and removed.

use criscope::cri::v1;
use nix::unistd::Pid;
use tonic::{Code, Status};

use crate::harness::daemon::Daemon;
use crate::harness::kubelet::{Kubelet, Pod, idle};
use crate::harness::leaks;
use crate::harness::process::halt;

/// Stops the shim of a pod, like a process that is stuck in the kernel.
fn hang(daemon: &Daemon, pod: &Pod) {
    let all = leaks::processes(daemon.name());
    let shim = all
        .iter()
        .find(|(_, what)| what.contains("criscope-shim") && what.contains(&pod.id));
    let (pid, _) = shim.expect("a shim");
    halt(Pid::from_raw(*pid));
}

async fn stop_container(kubelet: &Kubelet, id: &str) -> Result<(), Status> {
    let request = v1::StopContainerRequest {
        container_id: id.to_owned(),
        timeout: 5,
    };
    kubelet.runtime.clone().stop_container(request).await?;
    Ok(())
}

async fn stop_pod(kubelet: &Kubelet, pod: &Pod) {
    let request = v1::StopPodSandboxRequest {
        pod_sandbox_id: pod.id.clone(),
    };
    let stopped = kubelet.runtime.clone().stop_pod_sandbox(request).await;
    stopped.expect("StopPodSandbox");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_a_hanging_shim_can_be_removed() {
    let daemon = Daemon::new(crate::CRISCOPE).await;
    let kubelet = Kubelet::of(&daemon).await;
    let mut config = kubelet.pod_config("hangs");
    // With a process of its own, which is a child of the shim.
    let linux = config.linux.get_or_insert_default();
    let context = linux.security_context.get_or_insert_default();
    let options = context.namespace_options.get_or_insert_default();
    options.pid = v1::NamespaceMode::Pod.into();
    let pod = kubelet.run(config).await;
    let container = kubelet.launch(&pod, idle("main")).await;
    let other = kubelet.plain_pod("well").await;
    let well = kubelet.launch(&other, idle("main")).await;
    hang(&daemon, &pod);

    let error = stop_container(&kubelet, &container).await;
    let error = error.expect_err("it cannot be stopped");
    assert_eq!(error.code(), Code::DeadlineExceeded);
    assert!(error.message().contains(&pod.id), "{error}");
    assert_eq!(kubelet.says(&well, "echo well").await, "well");

    stop_pod(&kubelet, &pod).await;
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
    let of = |line: &serde_json::Value| line["criscope.sandbox.id"] == pod.id.as_str();
    let said = |line: &serde_json::Value| line["event"] == "runtime.shim" && of(line);
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
    kubelet.end(&other).await;
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_shim_is_handled_after_a_restart_and_when_its_pod_is_removed() {
    let mut daemon = Daemon::new(crate::CRISCOPE).await;
    let kubelet = Kubelet::of(&daemon).await;
    let before = kubelet.plain_pod("before").await;
    let container = kubelet.launch(&before, idle("main")).await;
    let stopped = kubelet.plain_pod("stopped").await;
    stop_pod(&kubelet, &stopped).await;
    daemon.kill();
    hang(&daemon, &before);
    hang(&daemon, &stopped);
    daemon.start().await;

    let kubelet = Kubelet::of(&daemon).await;
    // As far as is known, it is running.
    let status = kubelet.status(&container).await;
    assert!(status.state() == v1::ContainerState::ContainerRunning);
    kubelet.end(&before).await;
    kubelet.end(&stopped).await;
    daemon.assert_clean();
}
