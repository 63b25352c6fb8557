//! Attacks by the author of a pod: through its configuration, and through its containers.

use super::stage::Stage;
use crate::prelude::*;
use crate::streaming::client::lazy;

/// Bytes of a stream that ExecSync returns (CRI, `ExecSyncResponse`).
const KEPT: usize = (16 << 20) - 32;

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_pod_that_are_huge() {
    let stage = Stage::new().await;
    let kubelet = &stage.kubelet;
    stage
        .withstands(async {
            let pod = kubelet.plain_pod("files").await;
            let id = kubelet.launch(&pod, idle("main")).await;
            let files = "/etc/hostname /etc/hosts /etc/resolv.conf /etc/passwd /etc/group";
            let script = format!(
                "for f in {files}; do dd if=/dev/zero of=$f bs=1 count=1 seek=2147483647 2>/dev/null || exit 1; done"
            );
            kubelet.says(&id, &script).await;
            for name in ["a", "b", "c"] {
                let sibling = kubelet.launch(&pod, idle(name)).await;
                // It shares the file, but not the manipulated content.
                assert_eq!(kubelet.says(&sibling, "echo $HOSTNAME").await, "files");
            }
            kubelet.end(&pod).await;
        })
        .await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_without_end() {
    let stage = Stage::new().await;
    let kubelet = &stage.kubelet;
    stage
        .withstands(async {
            let pod = kubelet.plain_pod("output").await;
            // One line of 256 MB for the log, and the same for each exec.
            let flood = "dd if=/dev/zero bs=1000000 count=256 2>/dev/null";
            let id = kubelet.launch(&pod, shell("main", flood)).await;
            let other = kubelet.launch(&pod, idle("other")).await;
            let command = ["/bin/sh", "-c", flood].map(str::to_owned).to_vec();
            let (one, two) = tokio::join!(
                kubelet.try_exec(&other, command.clone(), 0),
                kubelet.try_exec(&other, command, 0),
            );
            for said in [one, two] {
                // Either an error, if a message would be too large, or the truncated output.
                let length = said.map_or(KEPT, |said| said.stdout.len());
                assert_eq!(length, KEPT);
            }
            assert_eq!(kubelet.ended(&id).await.exit_code, 0);
            kubelet.end(&pod).await;
        })
        .await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_without_a_reader() {
    const SESSIONS: usize = 40;
    let stage = Stage::new().await;
    let kubelet = &stage.kubelet;
    stage
        .withstands(async {
            let pod = kubelet.plain_pod("sessions").await;
            let id = kubelet.launch(&pod, idle("main")).await;
            let mut clients = Vec::new();
            for _ in 0..SESSIONS {
                let url = kubelet.exec_url(&id, words("/bin/busybox yes"), "o").await;
                clients.push(lazy(&url, ("spdy", "v4.channel.k8s.io")).await);
            }
            // The attack lasts, so that there are calls about the healthy pod meanwhile.
            tokio::time::sleep(Duration::from_secs(2)).await;
            drop(clients);
            kubelet.end(&pod).await;
        })
        .await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_that_end_by_the_thousand() {
    let stage = Stage::new().await;
    let kubelet = &stage.kubelet;
    stage
        .withstands(async {
            let mut config = kubelet.pod_config("orphans");
            let options = pod_namespaces(&mut config);
            options.pid = v1::NamespaceMode::Node.into();
            let pod = kubelet.run(config).await;
            let on_the_node = |mut config: v1::ContainerConfig| {
                let options = namespaces(&mut config);
                options.pid = v1::NamespaceMode::Node.into();
                config
            };
            // Each is reparented to the shim, the subreaper, and exits there.
            let storm = "while [ ! -e /enough ]; do ((sleep 0 &) &); done; trap 'exit 0' TERM; sleep 1000000 & wait";
            let storm = kubelet.launch(&pod, on_the_node(shell("storm", storm))).await;
            for number in 0..10 {
                let short = on_the_node(shell(&format!("short-{number}"), "exit 7"));
                let short = kubelet.launch(&pod, short).await;
                assert_eq!(kubelet.ended(&short).await.exit_code, 7);
            }
            kubelet.says(&storm, "touch /enough").await;
            kubelet.end(&pod).await;
        })
        .await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_init_that_is_killed_by_its_own_pod() {
    let stage = Stage::new().await;
    let kubelet = &stage.kubelet;
    stage
        .withstands(async {
            let mut config = kubelet.pod_config("init");
            let options = pod_namespaces(&mut config);
            options.pid = v1::NamespaceMode::Pod.into();
            let pod = kubelet.run(config).await;
            let mut main = idle("main");
            namespaces(&mut main).pid = v1::NamespaceMode::Pod.into();
            let id = kubelet.launch(&pod, main.clone()).await;
            let script = "for s in TERM INT QUIT HUP KILL; do kill -$s 1; done";
            let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
            // Which of these signals end the init depends on the pod.
            let _ = kubelet.try_exec(&id, command, 5).await;
            until_true("the pod to be either working or not ready", async || {
                let ready =
                    kubelet.pod_status(&pod).await.state() == v1::PodSandboxState::SandboxReady;
                let running =
                    kubelet.status(&id).await.state() == v1::ContainerState::ContainerRunning;
                ready == running
            })
            .await;
            if kubelet.pod_status(&pod).await.state() != v1::PodSandboxState::SandboxReady {
                let refused = kubelet
                    .try_create(&pod, main)
                    .await
                    .expect_err("the init has exited");
                assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
            }
            kubelet.end(&pod).await;
        })
        .await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_without_end() {
    let stage = Stage::new().await;
    let kubelet = &stage.kubelet;
    stage
        .withstands(async {
            let pod = kubelet.plain_pod("disk").await;
            let id = kubelet.launch(&pod, idle("main")).await;
            let script = "i=0; while [ $i -lt 1500 ]; do mkdir d && cd d || exit 1; i=$((i+1)); done; \
                          dd if=/dev/zero of=deep bs=1000000 count=8 2>/dev/null; \
                          mkdir /many && cd /many && busybox seq 1 20000 | busybox xargs touch";
            kubelet.says(&id, script).await;
            until("its writable layer to be counted", || async {
                let stats = kubelet.stats(&id).await?;
                let bytes = stats.writable_layer?.used_bytes?.value;
                (bytes >= 8_000_000).then_some(())
            })
            .await;
            kubelet.end(&pod).await;
        })
        .await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn configurations_that_no_kubelet_writes() {
    let stage = Stage::new().await;
    let kubelet = &stage.kubelet;
    let long = "x".repeat(1 << 20);
    let words = [
        "..",
        "../../../etc",
        "a/b",
        "a;b=c",
        "a\nb",
        "a\0b",
        "\u{1b}[2J",
        "a,b\"c",
        "",
        long.as_str(),
    ];
    stage
        .withstands(async {
            for word in words {
                let word = word.to_owned();
                let mut hostile = Vec::new();
                let base = kubelet.pod_config("words");
                let mut one = base.clone();
                if let Some(metadata) = &mut one.metadata {
                    metadata.name.clone_from(&word);
                    metadata.namespace.clone_from(&word);
                }
                hostile.push(one);
                let mut one = base.clone();
                one.hostname.clone_from(&word);
                hostile.push(one);
                let mut one = base.clone();
                one.labels = HashMap::from([(word.clone(), word.clone())]);
                one.annotations = HashMap::from([(word.clone(), word.clone())]);
                hostile.push(one);
                let mut one = base.clone();
                one.dns_config = Some(v1::DnsConfig {
                    servers: vec![word.clone()],
                    searches: vec![word.clone()],
                    options: vec![word.clone()],
                });
                hostile.push(one);
                let mut one = base;
                let linux = one.linux.get_or_insert_default();
                linux.sysctls = HashMap::from([(word.clone(), word.clone())]);
                hostile.push(one);
                for config in hostile {
                    // Accepted or refused: both are fine, and neither leaves anything behind.
                    match kubelet.try_run(config, "").await {
                        Ok(pod) => kubelet.end(&pod).await,
                        Err(error) => assert_eq!(error.code(), Code::InvalidArgument, "{error}"),
                    }
                }
            }
        })
        .await;
    stage.end().await;
}
