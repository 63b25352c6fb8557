//! The life of a pod, recorded in front of containerd and replayed against the built-in runtime and another containerd.

use super::pod::{Clients, make, sandbox_config, unmake, use_container};
use super::{before, end};
use crate::harness::containerd::Containerd;
use crate::harness::daemon::Daemon;
use crate::replay::{Recording, run, said};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_lives_again_in_other_runtimes() {
    let containerd = Containerd::new().await;
    let config = sandbox_config(&containerd);
    let log = containerd.root().join("logs/app.log");
    let proxy = before(&containerd).await;
    let mut clients = Clients::of(&proxy.socket()).await;
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("life.tar.gz");
    let recording = Recording::begin(&proxy, &file).await;
    let (sandbox, container) = make(&mut clients, &config).await;
    use_container(&mut clients, &container, &log).await;
    unmake(&mut clients, &sandbox, &container).await;
    recording.end().await;
    drop(clients);
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
