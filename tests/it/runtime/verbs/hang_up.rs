//! Operations outlive their caller.

use crate::prelude::*;

/// A bridge plugin that records each ADD, waits until the gate opens, and can be made to fail.
struct Gate {
    dir: PathBuf,
}

impl Gate {
    fn of(daemon: &Daemon) -> Self {
        let dir = daemon.root().join("gate");
        fs::create_dir(&dir).expect("gate");
        let script = format!(
            r#"#!/bin/sh
cd '{dir}' || exit 1
if [ "$CNI_COMMAND" = ADD ]; then
    echo x >> added
    until [ -e open ]; do sleep 0.02; done
    if [ -e fail ]; then echo '{{"cniVersion": "1.0.0", "code": 100, "msg": "told to fail"}}'; exit 1; fi
fi
exec /usr/lib/cni/bridge
"#,
            dir = dir.display()
        );
        daemon.add_program("gated-bridge", &script);
        let network = daemon.bridge("");
        daemon.set_network(&network.replacen(r#""bridge""#, r#""gated-bridge""#, 1));
        Self { dir }
    }

    fn added(&self) -> usize {
        let file = fs::read_to_string(self.dir.join("added"));
        file.unwrap_or_default().lines().count()
    }

    async fn entered(&self, times: usize) {
        until_true("an ADD", async || self.added() == times).await;
    }

    fn set(&self, what: &str, on: bool) {
        let path = self.dir.join(what);
        let done = if on {
            fs::write(path, "")
        } else {
            fs::remove_file(path)
        };
        done.expect("gate");
    }
}

async fn pods(kubelet: &Kubelet) -> Vec<v1::PodSandbox> {
    let all = v1::ListPodSandboxRequest::default();
    let list = kubelet.runtime.clone().list_pod_sandbox(all).await;
    list.expect("ListPodSandbox").into_inner().items
}

/// Starts RunPodSandbox, and cancels the call during the network setup.
async fn hang_up(kubelet: &Kubelet, gate: &Gate, config: &v1::PodSandboxConfig) {
    let before = gate.added();
    let (caller, config) = (kubelet.clone(), config.clone());
    let call = tokio::spawn(async move { caller.run(config).await });
    gate.entered(before + 1).await;
    call.abort();
    assert!(call.await.is_err_and(|error| error.is_cancelled()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_hangs_up_never_leaves_a_half_made_pod() {
    let daemon = Daemon::new(crate::CRISCOPE).await;
    let gate = Gate::of(&daemon);
    let kubelet = Kubelet::of(&daemon).await;

    // A retry during the first attempt joins it.
    let joined = kubelet.pod_config("joined");
    hang_up(&kubelet, &gate, &joined).await;
    assert_eq!(pods(&kubelet).await.len(), 0, "no partial pod is listed");
    let retry = {
        let (caller, config) = (kubelet.clone(), joined.clone());
        tokio::spawn(async move { caller.run(config).await })
    };
    gate.set("open", true);
    let joined = retry.await.expect("a pod");
    assert_eq!(gate.added(), 1, "the retry created no second pod");

    // A retry after the first attempt gets its result.
    gate.set("open", false);
    let late = kubelet.pod_config("late");
    hang_up(&kubelet, &gate, &late).await;
    gate.set("open", true);
    let made = until("the pod without a waiting caller", || async {
        let mut all = pods(&kubelet).await.into_iter();
        all.find(|pod| pod.id != joined.id).map(|pod| pod.id)
    })
    .await;
    let late = kubelet.run(late).await;
    assert_eq!((late.id.as_str(), gate.added()), (made.as_str(), 2));
    let container = kubelet.launch(&late, idle("in-it")).await;
    assert_eq!(kubelet.says(&container, "hostname").await, "late");

    // A first attempt that fails after its caller has gone leaves nothing, and its name is free.
    gate.set("open", false);
    gate.set("fail", true);
    let failed = kubelet.pod_config("failed");
    hang_up(&kubelet, &gate, &failed).await;
    gate.set("open", true);
    kubelet.end(&joined).await;
    kubelet.end(&late).await;
    until_true("the cleanup of the failed attempt", async || {
        let dir = daemon.root().join("root/sandboxes");
        fs::read_dir(dir).expect("sandboxes").count() == 0
    })
    .await;
    daemon.assert_clean();
    gate.set("fail", false);
    let again: Pod = kubelet.run(failed).await;
    daemon.end(&kubelet, [&again]).await;
}

/// As when the kubelet restarts: a container that got its SIGTERM gets its SIGKILL, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_carried_out_when_its_caller_hangs_up() {
    let (daemon, kubelet, pod) = node_with_pod("stopped").await;
    let script = "trap 'echo asked' TERM; echo up; while :; do sleep 0.05; done";
    let id = kubelet.launch(&pod, shell("deaf", script)).await;
    kubelet.logged(&id, "up").await;
    let (caller, stopped) = (kubelet.clone(), id.clone());
    let call = tokio::spawn(async move { caller.stop(&stopped, 4).await });
    kubelet.logged(&id, "asked").await;
    call.abort();
    // A slow machine may have come to its end.
    let _cancelled = call.await;
    let status = kubelet.ended(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "Error"));
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overflowing_deadline_means_none() {
    let (_daemon, kubelet) = node().await;
    for timeout in [
        "18446744073709551615H",
        "18446744073709551615S",
        "99999999H",
    ] {
        let mut request = tonic::Request::new(v1::VersionRequest::default());
        let value = timeout.parse().expect("a value");
        request.metadata_mut().insert("grpc-timeout", value);
        let answer = kubelet.runtime.clone().version(request).await;
        assert!(answer.is_ok(), "{timeout}: {:?}", answer.err());
    }
}
