//! criscope-shim with real runc: needs root, runc and a static busybox. Leftovers are errors.

mod execs;
mod orphans;
mod pod;
mod restart;
mod shutdown;
mod streams;
mod task;

use criscope::runtime::shim_client::{
    Create, Error, Event, Exit, ExitFate, PidNamespace, Runtime, Stdio, exit_records,
};
use tokio::sync::broadcast::Receiver;
use tokio::time::{sleep, timeout};

use self::pod::{Pod, exit, has_ended, read, target, until};
use crate::prelude::*;

#[tokio::test]
async fn exit_codes_and_logs() {
    let pod = Pod::new().await;
    let ended = pod.run("a", "echo out; echo err >&2; head -c 20000 /dev/zero | tr '\\0' x; echo; printf tail; exit 7").await;
    assert_eq!((ended.code, ended.signal, ended.oom_kills), (7, 0, 0));
    // Output is logged completely before the exit is reported.
    let log = pod.log("a");
    assert!(log.contains(&"stderr F err".to_owned()), "{log:?}");
    let out: Vec<_> = log
        .iter()
        .filter_map(|line| line.strip_prefix("stdout "))
        .collect();
    assert_eq!(out.first(), Some(&"F out"));
    assert_eq!(out.last(), Some(&"P tail"));
    let state = pod.shim.state().await.expect("state");
    assert_eq!(state.processes[0].exit, Some(ended.clone()));
    let fates = exit_records(&pod.path("state")).expect("fates");
    assert_eq!(
        fates["a"],
        ExitFate::Ended {
            code: 7,
            signal: 0,
            oom_kills: 0,
            at: ended.at
        }
    );
    assert!(matches!(
        pod.shim.start(pod.verb("b")).await,
        Err(Error::NotFound(_))
    ));
    pod.end(&["a"]).await;
}

#[tokio::test]
async fn a_failed_create_reports_the_reason_and_leaves_nothing() {
    let pod = Pod::new().await;
    let create = Create {
        id: "a".into(),
        bundle: pod.text("none"),
        runtime: pod.runtime(),
        ..Create::default()
    };
    match pod.shim.create(create).await {
        Err(Error::Runtime(words)) => assert!(words.contains("none"), "{words}"),
        other => panic!("{other:?}"),
    }
    assert!(pod.shim.state().await.expect("state").processes.is_empty());
    pod.end(&[]).await;
}

#[tokio::test]
async fn killed_for_want_of_memory() {
    let pod = Pod::new().await;
    let mut events = pod.shim.events();
    pod.start("a", "x=a; while :; do x=$x$x; done", 16 << 20)
        .await;
    // The kill is reported before the exit that it caused, and once.
    assert_eq!(kills(&mut events).await, Ok(1));
    let ended = kills(&mut events).await.expect_err("an exit");
    assert_eq!((ended.code, ended.oom_kills), (137, 1));
    pod.end(&["a"]).await;
}

/// The next report of OOM kills in the only container, or its exit.
async fn kills(events: &mut Receiver<Event>) -> Result<u64, Exit> {
    let wait = async {
        loop {
            match events.recv().await.expect("events") {
                Event::Oom(oom) => return Ok(oom.kills),
                Event::Exit(exit) => return Err(exit),
                _ => {}
            }
        }
    };
    soon("a kill or an exit", wait).await
}

/// With cgroup v1 the kernel notifies before it kills, and more often than that.
#[tokio::test]
async fn children_killed_for_want_of_memory_are_reported_while_the_container_runs() {
    let pod = Pod::new().await;
    let mut events = pod.shim.events();
    let hungry = "(x=a; while :; do x=$x$x; done)";
    let script = format!("for n in 1 2 3; do {hungry}; sleep 0.3; done; sleep 1000");
    pod.start("a", &script, 16 << 20).await;
    for n in 1..=3 {
        assert_eq!(kills(&mut events).await, Ok(n));
    }
    let state = pod.shim.state().await.expect("state");
    assert_eq!(state.processes[0].exit, None);
    pod.kill("", false).await;
    let ended = kills(&mut events).await.expect_err("an exit");
    assert_eq!((ended.code, ended.oom_kills), (137, 3));
    pod.end(&["a"]).await;
}

#[tokio::test]
async fn logs_are_reopened() {
    let pod = Pod::new().await;
    let mut events = pod.shim.events();
    let stdio = Stdio {
        stdin: true,
        stdin_once: true,
        ..pod.logged("a")
    };
    pod.create("a", "cat", stdio).await;
    pod.shim.start(pod.verb("a")).await.expect("start");
    let (mut attached, mut input) = pod.attach("a", "").await;
    input.write(b"one\n").await.expect("input");
    read(&mut attached, "one").await;
    fs::rename(pod.path("a.log"), pod.path("old.log")).expect("rename");
    pod.shim.reopen_log(target("a", "")).await.expect("reopen");
    input.write(b"two\n").await.expect("input");
    read(&mut attached, "two").await;
    input.end().await.expect("end");
    exit(&mut events, "a", "").await;
    assert_eq!(
        (pod.log("old"), pod.log("a")),
        (vec!["stdout F one".into()], vec!["stdout F two".into()])
    );
    pod.end(&["a"]).await;
}

#[tokio::test]
async fn a_pid_namespace_has_an_init_that_ends_with_the_shim() {
    let pod = Pod::new().await;
    let init = pod
        .shim
        .pid_namespace(PidNamespace::default())
        .await
        .expect("namespace");
    assert_eq!(
        pod.shim
            .pid_namespace(PidNamespace::default())
            .await
            .expect("namespace"),
        init
    );
    let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).expect("link");
    assert_ne!(of(&init.to_string()), of("self"));
    pod.end(&[]).await;
    until(|| has_ended(init)).await;
}

#[tokio::test]
async fn the_exit_of_the_init_is_noticed_during_a_call() {
    let pod = Pod::new().await;
    let init = pod
        .shim
        .pid_namespace(PidNamespace::default())
        .await
        .expect("namespace");
    let (called, go, program) = (pod.path("called"), pod.path("go"), pod.path("slow"));
    let wait = format!(
        "#!/bin/sh\n: > {}\nuntil [ -e {} ]; do sleep 0.02; done\nexit 1\n",
        called.display(),
        go.display()
    );
    executable(&program, &wait);
    let create = Create {
        id: "a".into(),
        bundle: pod.text("none"),
        runtime: Runtime {
            argv: vec![pod.text("slow")],
            ..pod.runtime()
        },
        ..Create::default()
    };
    let shim = pod.shim.clone();
    let creating = tokio::spawn(async move { shim.create(create).await });
    until(|| called.exists()).await;
    kill(Pid::from_raw(init as i32), Signal::SIGKILL).expect("kill");
    let seen = async {
        while pod.shim.state().await.expect("state").pid_namespace != 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let seen = timeout(PATIENCE, seen).await;
    assert!(!creating.is_finished(), "the call is still in progress");
    fs::write(&go, "").expect("go");
    creating
        .await
        .expect("a task")
        .expect_err("nothing is created");
    seen.expect("the end of the init is not seen");
    // The next one is a new namespace.
    let next = pod
        .shim
        .pid_namespace(PidNamespace::default())
        .await
        .expect("namespace");
    assert!(!has_ended(next));
    pod.end(&[]).await;
}
