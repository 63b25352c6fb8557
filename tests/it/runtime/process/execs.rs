//! Exec in a running container.

use criscope::runtime::shim_client::{Event, Stdio};

use super::pod::{Pod, exit, read, target};
use crate::prelude::*;

#[tokio::test]
async fn execs_and_signals() {
    let pod = Pod::new().await;
    let mut events = pod.shim.events();
    pod.create("a", "sleep 1000", Stdio::default()).await;
    pod.shim.start(pod.verb("a")).await.expect("start");
    let exec = async |name: &str, script: &str| {
        let stdio = Stdio {
            stdin: true,
            ..Stdio::default()
        };
        let exec = pod.exec(target("a", name), script, stdio);
        pod.shim.exec(exec).await.expect("exec");
    };
    exec("e1", "cat; echo err >&2; exit 9").await;
    let (mut attached, mut input) = pod.attach("a", "e1").await;
    input.write(b"hello").await.expect("input");
    input.end().await.expect("end");
    assert_eq!(
        read(&mut attached, "").await,
        ("hello".to_owned(), "err\n".to_owned())
    );
    assert_eq!(exit(&mut events, "a", "e1").await.code, 9);
    pod.shim.forget(target("a", "e1")).await.expect("forget");

    exec("e2", "cat").await;
    pod.kill("e2", false).await;
    assert_eq!(exit(&mut events, "a", "e2").await.code, 137);
    // Output of an exec that exits before an attach is retained.
    exec("e3", "echo kept").await;
    exit(&mut events, "a", "e3").await;
    let (mut attached, _input) = pod.attach("a", "e3").await;
    assert_eq!(read(&mut attached, "").await.0, "kept\n");

    pod.kill("", true).await;
    assert_eq!(exit(&mut events, "a", "").await.code, 137);
    pod.end(&["a"]).await;
}

#[tokio::test]
async fn concurrent_exits_are_retained_until_forgotten() {
    const MANY: usize = 80;
    let pod = Pod::new().await;
    let mut events = pod.shim.events();
    pod.create("a", "sleep 1000", Stdio::default()).await;
    pod.shim.start(pod.verb("a")).await.expect("start");
    let script = "until [ -e /end ]; do sleep 0.1; done; echo kept";
    for number in 0..MANY {
        let target = target("a", &number.to_string());
        let exec = pod.exec(target, script, Stdio::default());
        pod.shim.exec(exec).await.expect("exec");
    }
    // Requested while it runs, done when it has exited.
    pod.shim.forget(target("a", "0")).await.expect("forget");
    let known = || async { pod.shim.state().await.expect("state").processes.len() };
    assert_eq!(known().await, MANY + 1);
    fs::write(pod.path("a/rootfs/end"), "").expect("end");
    let mut left = MANY;
    while left > 0 {
        let event = soon("an end", events.recv()).await;
        left -= usize::from(matches!(event, Ok(Event::Exit(_))));
    }
    assert_eq!(known().await, MANY);
    for number in 1..MANY {
        let name = number.to_string();
        let (mut attached, _input) = pod.attach("a", &name).await;
        assert_eq!(read(&mut attached, "").await.0, "kept\n");
        pod.shim.forget(target("a", &name)).await.expect("forget");
    }
    assert_eq!(known().await, 1);
    pod.kill("", true).await;
    exit(&mut events, "a", "").await;
    pod.end(&["a"]).await;
}
