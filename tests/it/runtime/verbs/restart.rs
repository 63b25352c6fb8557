//! A restart loses nothing.

use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_of_the_daemon_touches_no_container() {
    let (mut daemon, kubelet, pod) = node_with_pod("survivor").await;
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
    fs::write(shm, "").expect("the memory of the pod is still there");
    let kubelet = daemon.serve().await;
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
    daemon.end(&kubelet, [&pod]).await;
}

/// The cache may belong to other runtimes as well: their attachments are kept, too.
#[tokio::test(flavor = "multi_thread")]
async fn plugins_release_at_start_what_no_attachment_holds_if_asked() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let told = daemon.root().join("told");
    let result = format!(
        r#"{{"cniVersion": "1.1.0", "interfaces": [{{"name": "eth0", "sandbox": "x"}}], "ips": [{{"address": "{}.9/24", "interface": 0}}]}}"#,
        daemon.subnet()
    );
    let script = format!(
        "#!/bin/sh\nif [ \"$CNI_COMMAND\" = GC ]; then cat >{told}; else cat >/dev/null; fi\n\
         [ \"$CNI_COMMAND\" != ADD ] || echo '{result}'\n",
        told = told.display()
    );
    daemon.add_program("collects", &script);
    let network = r#"{"cniVersion": "1.1.0", "name": "new", "plugins": [{"type": "collects"}]}"#;
    fs::write(daemon.root().join("cni/10-test.conflist"), network).expect("a network");
    let kubelet = daemon.serve().await;
    let pod = kubelet.plain_pod("attached").await;
    let cache = daemon.root().join("cache/results");
    let own = fs::read_to_string(cache.join(format!("new-{}-eth0", pod.id))).expect("cached");
    let other = own
        .replace(&pod.id, "other")
        .replace("/state/ns/", "/elsewhere/");
    fs::write(cache.join("new-other-eth0"), other).expect("of another runtime");

    daemon.restart().await;
    assert!(!told.exists(), "GC is not called unless asked for");
    daemon.kill();
    daemon.set_cni("gc_at_start = true\n");
    daemon.start().await;
    let config: Value =
        serde_json::from_str(&fs::read_to_string(&told).expect("GC")).expect("JSON");
    let kept = config["cni.dev/valid-attachments"]
        .as_array()
        .expect("a list");
    let mut kept: Vec<_> = kept.iter().map(|one| one["containerID"].as_str()).collect();
    kept.sort_unstable();
    let mut expected = [Some(pod.id.as_str()), Some("other")];
    expected.sort_unstable();
    assert_eq!(kept, expected);

    // With an entry that cannot be understood, something in use could be released.
    fs::write(cache.join("new-damaged-eth0"), "{").expect("damaged");
    fs::remove_file(&told).expect("there");
    daemon.restart().await;
    assert!(!told.exists(), "GC is not called without a complete list");
    let kubelet = Kubelet::of(&daemon).await;
    daemon.end(&kubelet, [&pod]).await;
}
