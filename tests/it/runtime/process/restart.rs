//! Restarts of the daemon, and a killed shim.

use criscope::runtime::shim_client::{Error, ExitFate, Stdio, exit_records};

use super::pod::{Pod, until};
use crate::prelude::*;

#[tokio::test]
async fn a_restarted_daemon_finds_what_happened_meanwhile() {
    let pod = Pod::new().await;
    let script = "echo before; until [ -e /end ]; do sleep 0.1; done; echo after; exit 5";
    pod.create("a", script, pod.logged("a")).await;
    pod.shim.start(pod.verb("a")).await.expect("start");
    let ground = pod.leave();
    let other = ground.launch().await;
    assert!(
        matches!(other, Err(Error::Launch { .. })),
        "two shims: {other:?}"
    );
    let fate = || exit_records(&ground.path("state")).expect("fates")["a"].clone();
    assert!(matches!(fate(), ExitFate::Abandoned { .. }), "{:?}", fate());
    fs::write(ground.path("a/rootfs/end"), "").expect("end");
    until(|| matches!(fate(), ExitFate::Ended { .. })).await;
    let pod = ground.connect().await;
    let found = pod.shim.state().await.expect("state");
    assert_eq!(
        found.processes[0].exit.as_ref().map(|exit| exit.code),
        Some(5)
    );
    assert_eq!(pod.log("a"), ["stdout F before", "stdout F after"]);
    pod.end(&["a"]).await;
}

#[tokio::test]
async fn a_killed_shim_is_noticed_and_accounted_for() {
    let pod = Pod::new().await;
    assert_eq!(pod.run("a", "exit 4").await.code, 4);
    let pid = pod.create("b", "sleep 1000", Stdio::default()).await;
    pod.shim.start(pod.verb("b")).await.expect("start");
    let mut events = pod.shim.events();
    kill(Pid::from_raw(pod.shim_pid() as i32), Signal::SIGKILL).expect("kill");
    soon("the end of events", async {
        while events.recv().await.is_ok() {}
    })
    .await;
    assert!(matches!(pod.shim.state().await, Err(Error::Gone { .. })));
    let fates = exit_records(&pod.path("state")).expect("fates");
    assert!(
        matches!(fates["a"], ExitFate::Ended { code: 4, .. }),
        "{fates:?}"
    );
    assert!(
        matches!(fates["b"], ExitFate::Abandoned { pid: p, .. } if p == pid),
        "{fates:?}"
    );
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).expect("kill");
    until(|| exit_records(&pod.path("state")).expect("fates")["b"] == ExitFate::Unknown).await;
}
