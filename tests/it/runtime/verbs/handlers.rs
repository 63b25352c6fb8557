//! Runtime handlers removed from the configuration: their pods can still be inspected, stopped and removed.

use std::os::unix::fs::symlink;

use crate::prelude::*;

const HANDLER: &str = "second";

async fn pod(kubelet: &Kubelet, name: &str) -> (Pod, String) {
    let pod = kubelet.run_with(kubelet.pod_config(name), HANDLER).await;
    let container = kubelet.launch(&pod, idle("main")).await;
    (pod, container)
}

/// Kills the shim of a pod, so that its containers are only known to the OCI runtime.
fn lose(daemon: &Daemon, pod: &Pod) {
    kill(daemon.shim(&pod.id), Signal::SIGKILL).expect("kill");
}

/// Converts the record of a pod to the form of an older version, which stored only the name of its handler.
fn age(daemon: &Daemon, pod: &Pod) {
    let path = daemon
        .root()
        .join("root/sandboxes")
        .join(&pod.id)
        .join("record.json");
    let text = fs::read(&path).expect("a record");
    let mut record: Value = serde_json::from_slice(&text).expect("json");
    let kept = record.as_object_mut().expect("a table").remove("oci");
    assert_eq!(
        kept.expect("its runtime")["path"],
        program("runc", "runc").to_str().expect("text")
    );
    fs::write(&path, record.to_string()).expect("write");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_outlives_its_handler_and_can_be_removed() {
    let mut daemon = Daemon::new(crate::CRISCOPE).await;
    // The oldest form is resolved by its handler's name.
    let bin = daemon.root().join("bin");
    symlink(program("runc", "runc"), bin.join(HANDLER)).expect("link");
    let path = std::env::var("PATH").expect("a path");
    daemon.env("PATH", &format!("{path}:{}", bin.display()));
    let kubelet = Kubelet::of(&daemon).await;
    let (kept, main) = pod(&kubelet, "kept").await;
    let created = kubelet
        .try_create(&kept, idle("late"))
        .await
        .expect("CreateContainer");
    let (lost, _) = pod(&kubelet, "lost").await;
    let (old, _) = pod(&kubelet, "old").await;
    daemon.kill();
    for pod in [&lost, &old] {
        lose(&daemon, pod);
    }
    age(&daemon, &old);
    daemon.without_second();
    let kubelet = daemon.serve().await;
    let list = kubelet.pods().await;
    assert_eq!(list.len(), 3);
    assert!(list.iter().all(|pod| pod.runtime_handler == HANDLER));
    let ready = v1::PodSandboxState::SandboxReady;
    assert!(kubelet.pod_status(&kept).await.state() == ready);
    assert_eq!(kubelet.says(&main, "echo on").await, "on");
    // But nothing new can be created with the handler.
    let refused = [
        kubelet
            .try_run(kubelet.pod_config("new"), HANDLER)
            .await
            .err(),
        kubelet.try_create(&kept, idle("new")).await.err(),
        kubelet.start(&created).await.err(),
    ];
    for error in refused {
        let error = error.expect("its handler is not configured");
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains("\"second\""), "{error}");
    }
    for pod in [&kept, &lost, &old] {
        kubelet.end(pod).await;
    }
    daemon.assert_clean();
}
