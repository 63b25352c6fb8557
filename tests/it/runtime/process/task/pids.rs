//! Containerd shims that know the pid of a container only when it was started.

use criscope::runtime::shim_client::{Stdio, TaskShim};

use super::super::pod::{Pod, exit};
use super::{create, end, new_id, spec};
use crate::prelude::*;
use crate::runtime::own_pid::OwnPid;

#[tokio::test]
async fn a_container_has_the_pid_and_the_cgroup_of_its_start() {
    let own = OwnPid::new();
    let sandbox = new_id();
    let task = TaskShim {
        program: own.program().display().to_string(),
        ..spec(&sandbox)
    };
    let pod = Pod::with(Some(task)).await;
    let mut events = pod.shim.events();
    let made = create(&pod, &sandbox, "exec sleep 7654", Stdio::default(), None).await;
    assert_eq!(made, own.pid());
    pod.shim.start(pod.verb(&sandbox)).await.expect("start");
    let pid = pod.shim.pid_of(&sandbox).await.expect("state");
    let pid = pid.expect("it runs");
    let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("a process");
    assert!(command.contains("7654"), "{command}");
    let state = pod.shim.state().await.expect("state");
    assert_eq!(state.pid_namespace, pid);

    let script = "until [ -e /go ]; do sleep 0.02; done; x=a; while :; do x=$x$x; done";
    create(&pod, "a", script, pod.logged("a"), Some(16 << 20)).await;
    pod.shim.start(pod.verb("a")).await.expect("start");
    fs::write(pod.path("a/rootfs/go"), "").expect("go");
    let ended = exit(&mut events, "a", "").await;
    assert_eq!((ended.code, ended.oom_kills), (137, 1));
    end(pod, &sandbox, &["a"]).await;
}
