//! ExecSync.

use prost::Message as _;

use crate::harness::kubelet::LIMIT;
use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn commands_in_a_container() {
    let (daemon, kubelet, pod) = node_with_pod("exec").await;
    let container = kubelet.launch(&pod, idle("main")).await;

    let said = kubelet
        .exec(&container, "echo out; echo err >&2; exit 42")
        .await;
    assert_eq!(
        (said.out.as_str(), said.err.as_str(), said.code),
        ("out", "err", 42)
    );
    let killed = kubelet.exec(&container, "kill -9 $$").await;
    assert_eq!(killed.code, 137);

    // Output beyond the limit is read and discarded: the command succeeds.
    let large = words("dd if=/dev/zero bs=1048576 count=17");
    let large = kubelet
        .try_exec(&container, large, LIMIT)
        .await
        .expect("ExecSync");
    // As much as fits into a message of the kubelet.
    let kept = large.stdout.len() + large.stderr.len();
    assert_eq!((kept, large.exit_code), ((16 << 20) - 32, 0));
    assert!(large.encoded_len() <= 16 << 20);

    let slow = kubelet.try_exec(&container, words("sleep 54321"), 1).await;
    assert_eq!(slow.err().map(|e| e.code()), Some(Code::DeadlineExceeded));
    until_true("the end of a command that timed out", async || {
        let left = kubelet
            .exec(&container, "ps -o args | grep -c '^sleep 54321'")
            .await;
        left.out == "0"
    })
    .await;

    // A child that keeps the output open does not block the call forever.
    let said = kubelet.exec(&container, "sleep 54321 & echo done").await;
    assert_eq!((said.out.as_str(), said.code), ("done", 0));
    // A command that has ended within its timeout, which is shorter than the drain, has not exceeded it.
    for (script, code) in [("echo ready", 0), ("echo failed; exit 3", 3)] {
        let probe = ["sh", "-c", &format!("sleep 54321 & {script}")].map(str::to_owned);
        let ended = kubelet.try_exec(&container, probe.into(), 1).await;
        let ended = ended.expect("the command has ended");
        let said = script.split([' ', ';']).nth(1).expect("a word");
        let out = String::from_utf8(ended.stdout).expect("text");
        assert_eq!((out.trim(), ended.exit_code), (said, code));
    }

    let none = kubelet
        .try_exec(&container, words("/no/such/program"), LIMIT)
        .await;
    let error = none.err().expect("there is no such program");
    assert_eq!(
        error.message(),
        "OCI runtime: exec failed: unable to start container process: exec: \"/no/such/program\": \
         stat /no/such/program: no such file or directory"
    );
    let nothing = kubelet.try_exec(&container, Vec::new(), 5).await;
    assert_eq!(nothing.err().map(|e| e.code()), Some(Code::InvalidArgument));
    kubelet.stop(&container, 0).await;
    assert!(
        kubelet
            .try_exec(&container, words("true"), 5)
            .await
            .is_err()
    );
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_oci_runtime_logs_is_in_no_output() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let path = oci_runtime();
    daemon.configure(&format!(
        "[runtime.handlers.second]\npath = {path:?}\noptions = [\"--debug\"]\n"
    ));
    daemon.without_second();
    let kubelet = daemon.serve().await;
    let pod = kubelet.run_with(kubelet.pod_config("logs"), "second").await;
    let container = kubelet
        .launch(
            &pod,
            shell("main", "echo err >&2; sleep 1; echo out; sleep 54321"),
        )
        .await;
    kubelet.logged(&container, "out").await;
    let mut log = kubelet.log(&container).await;
    log.sort();
    let written = [("stderr", "err"), ("stdout", "out")];
    assert_eq!(
        log,
        written.map(|(stream, line)| (stream.to_owned(), line.to_owned()))
    );

    let said = kubelet.exec(&container, "echo out; echo err >&2").await;
    assert_eq!((said.out.as_str(), said.err.as_str()), ("out", "err"));
    let none = words("/no/such/program");
    let none = kubelet.try_exec(&container, none, LIMIT).await;
    let error = none.err().expect("there is no such program");
    assert!(error.message().contains("exec failed: "), "{error}");
    assert!(!error.message().contains("level"), "{error}");
    daemon.end(&kubelet, [&pod]).await;
}
