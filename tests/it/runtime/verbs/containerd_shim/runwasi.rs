//! What runwasi's shims do otherwise than others: tried with runc's shim.

use super::{HANDLER, Shimmed, containerd_shims, daemon_with};
use crate::prelude::*;
use crate::runtime::own_pid::OwnPid;

/// They answer a create with their own pid. Their PID namespace is that of the node.
#[tokio::test(flavor = "multi_thread")]
async fn a_shared_process_namespace_is_that_of_the_started_sandbox_container() {
    let own_pid = OwnPid::new();
    let (daemon, kubelet) = daemon_with(|_| own_pid.program().display().to_string()).await;
    let own = Shimmed::run(&daemon, &kubelet, kubelet.shared_pid_config("shared")).await;
    let mut config = idle("main");
    let options = &mut security(&mut config).namespace_options;
    options.get_or_insert_default().pid = v1::NamespaceMode::Pod.into();
    let main = kubelet.launch(&own.pod, config).await;
    assert_eq!(kubelet.says(&main, "cat /proc/1/comm").await, "pause");
    let info = kubelet.info(&main).await;
    let pid = &info["pid"];
    assert_ne!(*pid, own_pid.pid());
    let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("a process");
    assert!(cgroup.contains(&main), "{cgroup}");
    kubelet.end(&own.pod).await;
    own.has_no_shim().await;
    daemon.assert_clean();
}

/// They log in every verb, into a FIFO that nothing reads when a container is deleted that could not be created, and want an address for events.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_cannot_be_created_is_deleted_at_once() {
    let script = |done: &str| {
        format!(
            "#!/bin/sh
for verb; do :; done
[ \"$verb\" != delete ] || {{ : \"${{TTRPC_ADDRESS:?}}\"; echo deleting > log && touch {done}; }}
exec /usr/bin/containerd-shim-runc-v2 \"$@\"
"
        )
    };
    let (daemon, kubelet) = daemon_with(|daemon| {
        let done = daemon.root().join("deleted").display().to_string();
        let program = daemon.add_program("containerd-shim-runc-logs-v2", &script(&done));
        program.display().to_string()
    })
    .await;
    let own = Shimmed::run(&daemon, &kubelet, kubelet.pod_config("logs")).await;
    let mut config = shell("none", "");
    config.command = words("/no/such/program");
    let none = kubelet.try_create(&own.pod, config).await.expect("created");
    let failed = kubelet.start(&none).await.expect_err("it does not exist");
    assert!(failed.message().contains("/no/such/program"), "{failed}");
    assert!(
        daemon.root().join("deleted").exists(),
        "it failed, or was killed"
    );
    own.end(&kubelet, &daemon).await;
}

/// Their `delete` ends no process, whether criscope-shim calls it, or the daemon after that one has ended too.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_containerd_shim_leaves_that_was_killed_is_ended() {
    let script = "#!/bin/sh
for verb; do :; done
[ \"$verb\" = delete ] || exec /usr/bin/containerd-shim-runc-v2 \"$@\"
";
    let (daemon, kubelet) = daemon_with(|daemon| {
        let program = daemon.add_program("containerd-shim-runc-leaves-v2", script);
        program.display().to_string()
    })
    .await;
    for with_own in [false, true] {
        let own = Shimmed::run(&daemon, &kubelet, kubelet.pod_config("left")).await;
        let main = kubelet.launch(&own.pod, idle("main")).await;
        if with_own {
            kill(daemon.shim(&own.pod.id), Signal::SIGKILL).expect("kill");
        } else {
            for shim in containerd_shims(&own.pod.id) {
                kill(Pid::from_raw(shim), Signal::SIGKILL).expect("kill");
            }
        }
        assert_eq!(kubelet.ended(&main).await.reason, "Unknown");
        own.is_not_ready(&kubelet).await;
        kubelet.end(&own.pod).await;
        own.has_no_shim().await;
        // runc's state of what it did not delete, which runwasi's keep as well.
        for id in [&own.pod.id, &main] {
            let state = daemon.state().join("state/oci").join(HANDLER);
            let _left = fs::remove_dir_all(state.join("k8s.io").join(id));
        }
    }
    daemon.assert_clean();
}
