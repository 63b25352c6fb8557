//! The lifecycle of a container: logs, exits, signals, limits.

use tokio::net::UnixDatagram;

use crate::prelude::*;

/// Log lines as stream and text.
fn lines(log: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(stream, text): &(&str, &str)| ((*stream).to_owned(), (*text).to_owned());
    log.iter().map(own).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn how_containers_end() {
    let (daemon, kubelet, pod) = node_with_pod("ends").await;

    let id = kubelet
        .launch(&pod, shell("well", "echo out; echo err >&2"))
        .await;
    let status = kubelet.ended(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (0, "Completed"));
    assert!(status.created_at <= status.started_at && status.started_at <= status.finished_at);
    until_true("both lines", async || {
        let mut log = kubelet.log(&id).await;
        log.sort();
        log == lines(&[("stderr", "err"), ("stdout", "out")])
    })
    .await;
    assert_eq!(
        kubelet.start(&id).await.err().map(|e| e.code()),
        Some(Code::FailedPrecondition)
    );

    let id = kubelet.launch(&pod, shell("badly", "exit 3")).await;
    let status = kubelet.ended(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (3, "Error"));

    let mut config = shell("hungry", "x=0123456789abcdef; while :; do x=$x$x; done");
    resources(&mut config).memory_limit_in_bytes = 24 << 20;
    let id = kubelet.launch(&pod, config).await;
    let status = kubelet.ended(&id).await;
    assert_eq!(
        (status.exit_code, status.reason.as_str()),
        (137, "OOMKilled")
    );

    let mut config = idle("absent");
    config.command = vec!["/no/such/program".to_owned()];
    let id = kubelet
        .try_create(&pod, config)
        .await
        .expect("CreateContainer");
    let error = kubelet.start(&id).await.expect_err("the start fails");
    // Only the reason, without runc's warnings and log prefixes.
    let said = error.message();
    assert!(said.contains("no such file or directory"), "{said}");
    assert!(
        said.starts_with("OCI runtime: runc create failed: "),
        "{said}"
    );
    assert!(!said.contains("level="), "{said}");
    let status = kubelet.ended(&id).await;
    assert_eq!(
        (status.exit_code, status.reason.as_str()),
        (128, "StartError")
    );

    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn how_containers_are_stopped() {
    let (daemon, kubelet, pod) = node_with_pod("stops").await;

    let script = "trap 'exit 7' TERM; echo up; sleep 1000000 & wait";
    let id = kubelet.launch(&pod, shell("polite", script)).await;
    kubelet.logged(&id, "up").await;
    kubelet.stop(&id, 30).await;
    assert_eq!(kubelet.status(&id).await.exit_code, 7);
    kubelet.stop(&id, 30).await;

    let mut config = shell(
        "own",
        "trap 'exit 8' USR1; echo up; while :; do sleep 0.02; done",
    );
    config.set_stop_signal(v1::Signal::Sigusr1);
    let id = kubelet.launch(&pod, config).await;
    kubelet.logged(&id, "up").await;
    assert!(kubelet.status(&id).await.stop_signal() == v1::Signal::Sigusr1);
    kubelet.stop(&id, 30).await;
    assert_eq!(kubelet.status(&id).await.exit_code, 8);

    let script = "trap '' TERM; echo up; while :; do sleep 1; done";
    for (name, grace) in [("deaf", 1), ("at-once", 0)] {
        let id = kubelet.launch(&pod, shell(name, script)).await;
        kubelet.logged(&id, "up").await;
        kubelet.stop(&id, grace).await;
        let status = kubelet.status(&id).await;
        assert_eq!(
            (status.exit_code, status.reason.as_str()),
            (137, "Error"),
            "{name}"
        );
    }
    // A grace period that ends with SIGKILL is not an error.
    let scrape = daemon.program().scrape().await;
    let waits = |outcome| {
        let waits = scrape.metric("criscope_runtime_phase_duration_seconds_count");
        let waits = waits.with("phase", "grace_wait");
        waits.with("outcome", outcome).sum()
    };
    assert!(waits("ok") >= 1.0);
    assert_eq!(waits("error"), 0.0);
    kubelet.stop("0123456789abcdef", 0).await;
    kubelet.remove("0123456789abcdef").await;

    // A running container can be removed, and its log stays for the kubelet.
    let id = kubelet.launch(&pod, shell("running", script)).await;
    kubelet.logged(&id, "up").await;
    let log = PathBuf::from(kubelet.status(&id).await.log_path);
    kubelet.remove(&id).await;
    assert!(log.exists());
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_log_is_reopened() {
    let (daemon, kubelet, pod) = node_with_pod("rotates").await;
    let script = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done";
    let id = kubelet.launch(&pod, shell("main", script)).await;
    kubelet.logged(&id, "3").await;
    let path = PathBuf::from(kubelet.status(&id).await.log_path);
    let old = path.with_extension("old");
    fs::rename(&path, &old).expect("rename");
    let reopen = requests::reopen_log(&id);
    let mut runtime = kubelet.runtime.clone();
    let reopened = runtime.reopen_container_log(reopen.clone()).await;
    reopened.expect("ReopenContainerLog");
    until_true("lines in the new file", async || {
        kubelet.log(&id).await.len() > 2
    })
    .await;
    // No line is lost or duplicated.
    let numbers = |path| {
        let text = fs::read_to_string(path).expect("a log");
        let last = |line: &str| line.rsplit(' ').next().and_then(|n| n.parse::<u32>().ok());
        text.lines().filter_map(last).collect::<Vec<_>>()
    };
    let all = [numbers(&old), numbers(&path)].concat();
    assert!(
        all.iter()
            .copied()
            .eq(1..=all.len().try_into().expect("few")),
        "{all:?}"
    );
    kubelet.stop(&id, 0).await;
    let ended = kubelet.runtime.clone().reopen_container_log(reopen).await;
    assert!(ended.is_err(), "it is no longer running");
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_change_while_it_runs() {
    let (daemon, kubelet, pod) = node_with_pod("limits").await;
    let id = kubelet.launch(&pod, idle("main")).await;
    let resources = v1::LinuxContainerResources {
        memory_limit_in_bytes: 48 << 20,
        cpu_shares: 512,
        cpu_period: 100_000,
        cpu_quota: 50_000,
        ..Default::default()
    };
    kubelet.update(&id, resources).await;
    let resources = kubelet.status(&id).await.resources.and_then(|r| r.linux);
    let resources = resources.expect("resources");
    assert_eq!(
        (resources.memory_limit_in_bytes, resources.cpu_quota),
        (48 << 20, 50_000)
    );
    // It is set in the kernel too, with either version of cgroups.
    let limit = ["memory/", ""].iter().find_map(|hierarchy| {
        let dir = format!("/sys/fs/cgroup/{hierarchy}{}/{id}", daemon.name());
        let files = ["memory.limit_in_bytes", "memory.max"].map(|file| format!("{dir}/{file}"));
        files.iter().find_map(|file| fs::read_to_string(file).ok())
    });
    assert_eq!(limit.as_deref().map(str::trim), Some("50331648"));
    daemon.end(&kubelet, [&pod]).await;
}

/// runc would pass NOTIFY_SOCKET to its container, and wait for it to report ready.
#[tokio::test(flavor = "multi_thread")]
async fn containers_do_not_inherit_notify_socket() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let path = daemon.state().join("notify");
    let manager = UnixDatagram::bind(&path).expect("bind");
    daemon.env("NOTIFY_SOCKET", &path.display().to_string());
    daemon.start().await;
    let mut said = [0; 1024];
    let n = soon("readiness", manager.recv(&mut said)).await;
    let said = String::from_utf8_lossy(&said[..n.expect("recv")]);
    assert!(said.contains("READY=1"), "{said}");
    let kubelet = Kubelet::of(&daemon).await;
    let pod = kubelet.plain_pod("notified").await;
    let id = kubelet.launch(&pod, idle("main")).await;
    let environment = kubelet.says(&id, "cat /proc/1/environ").await;
    assert!(environment.contains("PATH=/bin"), "{environment}");
    assert!(!environment.contains("NOTIFY"), "{environment}");
    daemon.end(&kubelet, [&pod]).await;
}
