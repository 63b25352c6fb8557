//! A restart loses nothing.

use criscope::cri::v1;

use crate::harness::daemon::Daemon;
use crate::harness::kubelet::{Kubelet, shell};

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_of_the_daemon_touches_no_container() {
    let mut daemon = Daemon::new(crate::CRISCOPE).await;
    let kubelet = Kubelet::of(&daemon).await;
    let pod = kubelet.plain_pod("survivor").await;
    let script = "trap 'exit 9' TERM; echo up; until [ -e /go ]; do sleep 0.02; done; echo on; sleep 1000000 & wait";
    let runs = kubelet.launch(&pod, shell("runs", script)).await;
    let script = "echo up; until [ -e /dev/shm/end ]; do sleep 0.02; done; exit 23";
    let ends = kubelet.launch(&pod, shell("ends", script)).await;
    kubelet.logged(&runs, "up").await;
    kubelet.logged(&ends, "up").await;
    let ip = kubelet.address(&pod).await;
    let before = kubelet.status(&runs).await;

    // One exits while the daemon is down.
    kubelet.says(&runs, "touch /dev/shm/ready").await;
    daemon.kill();
    let shm = daemon
        .state()
        .join("state/pods")
        .join(&pod.id)
        .join("shm/end");
    std::fs::write(shm, "").expect("the memory of the pod is still there");
    daemon.start().await;

    let kubelet = Kubelet::of(&daemon).await;
    let ended = kubelet.ended(&ends).await;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (23, "Error"));
    let after = kubelet.status(&runs).await;
    assert!(after.state() == v1::ContainerState::ContainerRunning);
    assert_eq!(
        (after.started_at, &after.log_path),
        (before.started_at, &before.log_path)
    );
    assert_eq!(kubelet.address(&pod).await, ip);
    let ready = v1::PodSandboxState::SandboxReady;
    assert!(kubelet.pod_status(&pod).await.state() == ready);
    kubelet.says(&runs, "touch /go").await;
    kubelet.logged(&runs, "on").await;
    kubelet.stop(&runs, 30).await;
    assert_eq!(kubelet.status(&runs).await.exit_code, 9);
    kubelet.end(&pod).await;
    daemon.assert_clean();
}
