//! The life of a pod, recorded in front of containerd and replayed against the built-in runtime and another containerd.

use super::pod::{make, sandbox_config, unmake, use_container};
use super::{Node, end};
use crate::prelude::*;
use crate::replay::{Recording, run, said};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_lives_again_in_other_runtimes() {
    let Node {
        containerd,
        proxy,
        kubelet,
    } = Node::new().await;
    let config = sandbox_config(&containerd);
    let log = containerd.root().join("logs/app.log");
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("life.tar.gz");
    let recording = Recording::begin(&proxy, &file).await;
    let (pod, container) = make(&kubelet, &config).await;
    use_container(&kubelet, &container, &log).await;
    unmake(&kubelet, &pod, &container).await;
    recording.end().await;
    drop(kubelet);
    proxy.stop().await;
    end(containerd);

    let file = file.to_str().expect("utf-8");
    let daemon = Daemon::new(crate::CRISCOPE).await;
    let parent = daemon.cgroup();
    let to = format!("unix://{}", daemon.socket().display());
    let args = ["replay", file, "--to", &to, "--cgroup-parent", &parent];
    let output = run(&args, "").await;
    let text = said(&output);
    assert!(
        output.status.success() && text.contains("every code as recorded"),
        "{text}"
    );
    for method in [
        "RunPodSandbox",
        "CreateContainer",
        "StartContainer",
        "ExecSync",
        "RemoveContainer",
    ] {
        assert!(text.contains(&format!("\n{method} ")), "{method}: {text}");
    }
    daemon.assert_clean();
    drop(daemon);

    let other = Containerd::new().await;
    let parent = other.cgroup();
    let to = other.socket().display().to_string();
    let args = ["replay", file, "--to", &to, "--cgroup-parent", &parent];
    let output = run(&args, "").await;
    assert!(output.status.success(), "{}", said(&output));
    end(other);
}
