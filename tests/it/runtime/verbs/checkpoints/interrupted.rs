//! Checkpoints that end before their container runs again.

use super::{Dumps, assert_untouched, begin, ended, json, record, running};
use crate::prelude::*;

/// Kills all processes that dump into the directory of a container.
fn kill_dump(id: &str) {
    for entry in fs::read_dir("/proc").expect("proc").flatten() {
        let pid = entry.file_name().into_string().expect("text");
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments);
        if arguments.contains(id) && arguments.contains("--image-path") {
            let killed = Command::new("kill").args(["-9", &pid]).status();
            assert!(killed.expect("kill").success());
        }
    }
}

fn status(daemon: &Daemon, id: &str) -> String {
    let root = daemon.state().join("state/oci/second");
    let mut state = Command::new(oci_runtime());
    let state = state.arg("--root").arg(root).args(["state", id]).output();
    let state = json(&state.expect("state").stdout);
    state["status"].as_str().expect("a status").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_runs_again_after_its_checkpoint_was_killed() {
    let (mut daemon, kubelet, dumps) = Dumps::start().await;
    let id = running(&kubelet, idle("main")).await;
    let archive = dumps.archive();

    // The OCI runtime and CRIU.
    let call = begin(&kubelet, &id, &archive, 0);
    dumps.entered().await;
    assert_eq!(status(&daemon, &id), "paused");
    kill_dump(&id);
    call.await.expect("a task").expect_err("killed");
    assert_untouched(&daemon, &kubelet, &id).await;

    // All of them, and the daemon.
    fs::remove_file(dumps.gate.join("dumped")).expect("gate");
    let call = begin(&kubelet, &id, &archive, 0);
    dumps.entered().await;
    daemon.kill();
    call.await.expect("a task").expect_err("the daemon is gone");
    kill_dump(&id);
    assert_eq!(status(&daemon, &id), "paused");
    daemon.start().await;
    ended(&daemon, &id).await;
    assert_eq!(status(&daemon, &id), "running");
    let log = daemon.program();
    let told = log.wait_line("the interrupted checkpoint", |line| {
        line["event"] == "runtime.checkpoint" && line["container.id"] == id.as_str()
    });
    let told = told.await["msg"].to_string();
    assert!(told.contains("runs again"), "{told}");
    let kubelet = Kubelet::of(&daemon).await;
    assert_untouched(&daemon, &kubelet, &id).await;
    assert_eq!(dumps.left(), [""; 0]);
}

/// The kubelet's order comes first, and no archive pretends that memory and files fit together.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_stopped_does_not_wait_for_its_checkpoint() {
    let (daemon, kubelet, dumps) = Dumps::start().await;
    let ends = "trap 'exit 7' TERM; sleep 1000000 & wait";
    for (name, script, grace, code) in [
        ("polite", ends, 100, 7),
        (
            "killed",
            "trap '' TERM; while :; do sleep 0.1; done",
            0,
            137,
        ),
    ] {
        let _before = fs::remove_file(dumps.gate.join("dumped"));
        let _before = fs::remove_file(dumps.gate.join("open"));
        let id = running(&kubelet, shell(name, script)).await;
        kubelet.says(&id, "true").await;
        let call = begin(&kubelet, &id, &dumps.archive(), 0);
        dumps.entered().await;
        kubelet.stop(&id, grace).await;
        assert_eq!(kubelet.status(&id).await.exit_code, code, "{name}");
        dumps.set("open");
        let error = call.await.expect("a task").expect_err("it was thawed");
        assert_eq!(error.code(), Code::FailedPrecondition, "{name}: {error}");
        assert!(error.message().contains("was thawed"), "{error}");
        until_true("the end of the attempt", async || {
            record(&daemon, &id).0.get("checkpoint").is_none()
        })
        .await;
        assert_eq!(dumps.left(), [""; 0], "{name}");
    }
}
