//! Containerd shims that start a process for each container.

use criscope::runtime::shim_client::{Stdio, TaskShim};

use super::super::pod::{Pod, exit, has_ended, target, until};
use super::{containerd_shims, create, end, new_id, signal, socket, spec};
use crate::prelude::*;

/// A containerd shim that runs each container in a process of its own, as gVisor's: runc's, without the annotation that it groups
/// containers by.
const ALONE: &str = "#!/bin/sh
case \" $* \" in *' start '*) sed -i 's/io.kubernetes.cri.sandbox-id/other/' config.json;; esac
exec /usr/bin/containerd-shim-runc-v2 \"$@\"
";

fn alone(dir: &Path, sandbox: &str) -> TaskShim {
    let program = dir.join("containerd-shim-alone-v1");
    executable(&program, ALONE);
    TaskShim {
        program: program.display().to_string(),
        ..spec(sandbox)
    }
}

/// The processes of the containerd shim that was started for a container.
fn started_for(pod: &Pod, id: &str) -> Vec<u32> {
    let bundle = pod.path(id);
    let is_its =
        |pid: &u32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == bundle);
    let mut all = containerd_shims("containerd-shim-runc-v2");
    all.retain(is_its);
    all
}

#[tokio::test]
async fn each_container_may_have_a_containerd_shim_of_its_own() {
    let programs = tempfile::tempdir().expect("a directory");
    let sandbox = new_id();
    let pod = Pod::with(Some(alone(programs.path(), &sandbox))).await;
    create(&pod, &sandbox, "exec sleep 1000", Stdio::default(), None).await;
    pod.shim.start(pod.verb(&sandbox)).await.expect("start");
    let mut events = pod.shim.events();
    let mut pids = Vec::new();
    for id in ["a", "b"] {
        let script = "echo up; exec sleep 1000";
        pids.push(create(&pod, id, script, pod.logged(id), None).await);
        pod.shim.start(pod.verb(id)).await.expect("start");
    }
    for id in [&*sandbox, "a", "b"] {
        assert_eq!(started_for(&pod, id).len(), 1, "{id}");
    }
    // Each call reaches the right one.
    let exec = pod.exec(target("b", "e"), "exec sleep 1000", Stdio::default());
    pod.shim.exec(exec).await.expect("exec");
    signal(&pod, ("b", "e"), Signal::SIGTERM)
        .await
        .expect("kill");
    assert_eq!(exit(&mut events, "b", "e").await.code, 143);
    signal(&pod, ("b", ""), Signal::SIGKILL)
        .await
        .expect("kill");
    assert_eq!(exit(&mut events, "b", "").await.code, 137);
    assert!(!has_ended(pids[0]), "another container was killed");
    pod.shim.delete(pod.verb("b")).await.expect("delete");
    until(|| started_for(&pod, "b").is_empty()).await;
    // The end of one is that of its container only.
    let socket = socket(&pod, "a");
    for shim in started_for(&pod, "a") {
        kill(Pid::from_raw(shim.cast_signed()), Signal::SIGKILL).expect("kill");
    }
    let ended = exit(&mut events, "a", "").await;
    assert!(ended.unobserved.starts_with("the containerd shim ended"));
    assert!(has_ended(pids[0]) && !socket.exists());
    pod.shim.delete(pod.verb("a")).await.expect("delete");
    create(&pod, "c", "exec sleep 1000", Stdio::default(), None).await;
    let left = started_for(&pod, "c");
    assert_eq!(left.len(), 1);
    end(pod, &sandbox, &["c"]).await;
    for pid in left {
        until(|| has_ended(pid)).await;
    }
}
