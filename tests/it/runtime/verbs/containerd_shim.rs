//! Pods of a handler with `runtime_type`: containerd's shim for runc, without a containerd.

mod others;
mod reports;
mod runwasi;
mod usage;

use crate::harness::packages::file;
use crate::prelude::*;
use crate::streaming::client::Client;

const HANDLER: &str = "shim";

const WAY: (&str, &str) = ("websocket", "v5.channel.k8s.io");

async fn daemon() -> (Daemon, Kubelet) {
    daemon_with(|_| "io.containerd.runc.v2".to_owned()).await
}

async fn daemon_with(runtime_type: impl FnOnce(&Daemon) -> String) -> (Daemon, Kubelet) {
    file("/usr/bin/containerd-shim-runc-v2", "containerd");
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let runtime_type = runtime_type(&daemon);
    daemon.configure(&format!(
        "[runtime.handlers.{HANDLER}]\nruntime_type = {runtime_type:?}\npath = {:?}\n",
        oci_runtime()
    ));
    let kubelet = daemon.serve().await;
    (daemon, kubelet)
}

/// A node with a pod of the handler.
async fn shimmed(name: &str) -> (Daemon, Kubelet, Shimmed) {
    let (daemon, kubelet) = daemon().await;
    let own = Shimmed::run(&daemon, &kubelet, kubelet.pod_config(name)).await;
    (daemon, kubelet, own)
}

/// A pod of the handler. Dropping it kills the shim of containerd that a failed test leaves.
struct Shimmed {
    pod: Pod,
    /// Where the shim of containerd listens.
    socket: PathBuf,
}

impl Drop for Shimmed {
    fn drop(&mut self) {
        for shim in containerd_shims(&self.pod.id) {
            let _ended = kill(Pid::from_raw(shim), Signal::SIGKILL);
        }
    }
}

impl Shimmed {
    async fn run(daemon: &Daemon, kubelet: &Kubelet, config: v1::PodSandboxConfig) -> Self {
        let pod = kubelet.run_with(config, HANDLER).await;
        assert_eq!(containerd_shims(&pod.id).len(), 1);
        let address = daemon.root().join("root/sandboxes").join(&pod.id);
        let address = fs::read_to_string(address.join("address")).expect("an address");
        let socket = PathBuf::from(address.trim_start_matches("unix://"));
        assert!(socket.exists(), "{address}");
        Self { pod, socket }
    }

    /// Removes the pod, which leaves nothing.
    async fn end(self, kubelet: &Kubelet, daemon: &Daemon) {
        kubelet.end(&self.pod).await;
        self.has_no_shim().await;
        let state = daemon
            .state()
            .join("state/oci")
            .join(HANDLER)
            .join("k8s.io");
        let left: Vec<_> = fs::read_dir(state).expect("its state").flatten().collect();
        assert!(left.is_empty(), "{left:?}");
        daemon.assert_clean();
    }

    async fn has_no_shim(&self) {
        until_true("the end of the shim of containerd", async || {
            containerd_shims(&self.pod.id).is_empty()
        })
        .await;
        until_true("the removal of its socket", async || !self.socket.exists()).await;
    }

    /// Kills the sandbox container.
    async fn loses_its_sandbox_container(&self, kubelet: &Kubelet) {
        let info = kubelet.pod_info(&self.pod.id).await;
        let pid = info["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.filter(|pid| *pid > 1).expect("a process");
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("kill");
        self.is_not_ready(kubelet).await;
    }

    /// Waits until the page of the pod says this.
    async fn story_has(&self, daemon: &Daemon, words: &str) {
        let name = &self.pod.config.metadata.as_ref().expect("a name").name;
        let path = format!("/debug/pods/test/{name}?format=json");
        until_true("the end in the story", async || {
            let (_, text) = daemon.program().get(&path).await;
            text.contains(words)
        })
        .await;
    }

    async fn is_not_ready(&self, kubelet: &Kubelet) {
        until_true("a pod that is not ready", async || {
            let status = kubelet.pod_status(&self.pod).await;
            status.state() == v1::PodSandboxState::SandboxNotready
        })
        .await;
    }
}

/// The processes of the shim of containerd of a pod.
fn containerd_shims(id: &str) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = processes.filter_map(|one| one.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("containerd-shim-") && line.contains(id)
    })
    .collect()
}

/// The memory limit of a container in the kernel.
fn memory_limit(daemon: &Daemon, id: &str) -> String {
    let cgroup = Path::new("/sys/fs/cgroup");
    let below = Path::new(daemon.cgroup().trim_start_matches('/')).join(id);
    let files = [
        cgroup
            .join("memory")
            .join(&below)
            .join("memory.limit_in_bytes"),
        cgroup.join(&below).join("memory.max"),
    ];
    let found = files.iter().find_map(|file| fs::read_to_string(file).ok());
    found.expect("a cgroup").trim().to_owned()
}

fn stays(status: &v1::ContainerStatus) -> bool {
    status.state() == v1::ContainerState::ContainerRunning
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_lives_like_one_of_an_oci_runtime() {
    let (mut daemon, kubelet, own) = shimmed("own").await;
    let pod = &own.pod;
    let script = "trap 'exit 9' TERM; echo up; echo err >&2; sleep 1000000 & wait";
    let main = kubelet.launch(pod, shell("main", script)).await;
    let script = "until [ -e /dev/shm/end ]; do sleep 0.02; done; exit 23";
    let ends = kubelet.launch(pod, shell("ends", script)).await;
    kubelet.logged(&main, "up").await;
    assert_eq!(containerd_shims(&pod.id).len(), 1, "one for the pod");

    // The pod's network, host name and memory are those of its containers.
    let address = kubelet.address(pod).await;
    let own_addresses = kubelet.says(&main, "cat /proc/net/fib_trie").await;
    assert!(own_addresses.contains(&address), "{own_addresses}");
    assert_eq!(kubelet.says(&main, "hostname").await, pod.config.hostname);
    let failed = kubelet.exec(&main, "echo out; echo err >&2; exit 3").await;
    assert_eq!((failed.code, &*failed.out, &*failed.err), (3, "out", "err"));

    let mut config = shell("reads", "exec cat");
    config.stdin = true;
    let reads = kubelet.launch(pod, config).await;
    let url = kubelet.attach_url(&reads, "ioe").await;
    let mut client = Client::connect(&url, WAY, "ioe").await;
    client.send(0, b"hello\n").await;
    assert_eq!(client.output(6).await, b"hello\n");
    drop(client);
    kubelet.logged(&reads, "hello").await;

    let limit = 64 << 20;
    let change = v1::LinuxContainerResources {
        memory_limit_in_bytes: limit,
        ..Default::default()
    };
    kubelet.update(&main, change).await;
    assert_eq!(memory_limit(&daemon, &main), limit.to_string());
    let stats = kubelet.stats(&main).await;
    let cpu = stats.and_then(|stats| stats.cpu).expect("processor time");
    assert!(
        cpu.usage_core_nano_seconds
            .is_some_and(|usage| usage.value > 0)
    );

    // A restart of the daemon touches nothing, and learns of what has ended meanwhile.
    daemon.kill();
    let shm = daemon
        .state()
        .join("state/pods")
        .join(&pod.id)
        .join("shm/end");
    fs::write(shm, "").expect("the memory of the pod");
    let kubelet = daemon.serve().await;
    assert_eq!(kubelet.ended(&ends).await.exit_code, 23);
    let ready = v1::PodSandboxState::SandboxReady;
    assert!(kubelet.pod_status(pod).await.state() == ready);
    assert!(stays(&kubelet.status(&main).await));
    assert_eq!(kubelet.says(&main, "echo on").await, "on");
    let late = kubelet.launch(pod, idle("late")).await;

    kubelet.stop(&main, 30).await;
    assert_eq!(kubelet.status(&main).await.exit_code, 9);
    kubelet.remove(&main).await;
    assert!(stays(&kubelet.status(&late).await));
    own.end(&kubelet, &daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_pod_has_no_process() {
    let (daemon, kubelet, own) = shimmed("stopped").await;
    let main = kubelet.launch(&own.pod, idle("main")).await;
    for _ in 0..2 {
        kubelet.stop_pod(&own.pod.id).await;
    }
    own.has_no_shim().await;
    assert_eq!(kubelet.status(&main).await.exit_code, 137);
    own.is_not_ready(&kubelet).await;
    own.end(&kubelet, &daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_share_the_process_namespace_of_the_sandbox_container() {
    let (daemon, kubelet) = daemon().await;
    let own = Shimmed::run(&daemon, &kubelet, kubelet.shared_pid_config("shared")).await;
    let container = |name: &str, script: &str| share_pid(shell(name, script));
    let script = "trap 'exit 0' TERM; sleep 1000000 & wait";
    let one = kubelet.launch(&own.pod, container("one", script)).await;
    let script = "trap 'exit 0' TERM; sleep 7654321 & wait";
    kubelet.launch(&own.pod, container("other", script)).await;
    assert_eq!(kubelet.says(&one, "cat /proc/1/comm").await, "pause");
    let commands = kubelet.says(&one, "cat /proc/[0-9]*/cmdline").await;
    assert!(commands.contains("7654321"), "{commands}");
    // A process whose parent has exited is left to the sandbox container, which keeps no zombie.
    kubelet.says(&one, "(sleep 0.01 &) ; sleep 0.1").await;
    until_true("no zombie", async || {
        let states = kubelet.says(&one, "cat /proc/[0-9]*/stat").await;
        !states.contains(" Z ")
    })
    .await;
    own.end(&kubelet, &daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_containerd_shim_dies_is_not_ready() {
    let (daemon, kubelet, own) = shimmed("died").await;
    let main = kubelet.launch(&own.pod, idle("main")).await;
    for shim in containerd_shims(&own.pod.id) {
        kill(Pid::from_raw(shim), Signal::SIGKILL).expect("kill");
    }
    let ended = kubelet.ended(&main).await;
    assert_eq!(ended.reason, "Unknown");
    assert!(
        ended.message.contains("the containerd shim ended"),
        "{}",
        ended.message
    );
    own.is_not_ready(&kubelet).await;
    let refused = kubelet.try_create(&own.pod, idle("late")).await;
    let refused = refused.expect_err("it is not ready");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(
        refused
            .message()
            .contains("its sandbox container has exited"),
        "{refused}"
    );
    own.end(&kubelet, &daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_story_of_a_pod_that_lost_its_sandbox_container_names_it() {
    let (daemon, kubelet, own) = shimmed("headless").await;
    kubelet.launch(&own.pod, idle("main")).await;
    own.loses_its_sandbox_container(&kubelet).await;
    own.story_has(
        &daemon,
        "its sandbox container ended; no call asked for that",
    )
    .await;
    own.end(&kubelet, &daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_own_shim_dies_leaves_no_containerd_shim() {
    let (mut daemon, mut kubelet) = daemon().await;
    for with_daemon in [true, false] {
        let own = Shimmed::run(&daemon, &kubelet, kubelet.pod_config("lost")).await;
        let main = kubelet.launch(&own.pod, idle("main")).await;
        if !with_daemon {
            daemon.kill();
        }
        kill(daemon.shim(&own.pod.id), Signal::SIGKILL).expect("kill");
        if !with_daemon {
            kubelet = daemon.serve().await;
        }
        let ended = kubelet.ended(&main).await;
        assert_eq!(ended.reason, "Unknown");
        own.is_not_ready(&kubelet).await;
        own.has_no_shim().await;
        own.end(&kubelet, &daemon).await;
    }
}

/// As gVisor's, which is not told the id of the container either.
#[tokio::test(flavor = "multi_thread")]
async fn shims_of_single_containers_end_with_the_own_shim() {
    let script = "#!/bin/sh
case \" $* \" in *' start '*) sed -i 's/io.kubernetes.cri.sandbox-id/other/' config.json;; esac
exec /usr/bin/containerd-shim-runc-v2 \"$@\"
";
    let program = |daemon: &Daemon| daemon.add_program("containerd-shim-runc-alone-v2", script);
    let (daemon, kubelet) = daemon_with(|daemon| program(daemon).display().to_string()).await;
    let own = Shimmed::run(&daemon, &kubelet, kubelet.pod_config("alone")).await;
    let main = kubelet.launch(&own.pod, idle("main")).await;
    assert_eq!(
        kubelet.says(&main, "hostname").await,
        own.pod.config.hostname
    );
    assert_eq!(containerd_shims(&main).len(), 1);
    kill(daemon.shim(&own.pod.id), Signal::SIGKILL).expect("kill");
    assert_eq!(kubelet.ended(&main).await.reason, "Unknown");
    until_true("the end of its shim and of the cleanup", async || {
        containerd_shims(&main).is_empty()
    })
    .await;
    own.end(&kubelet, &daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shim_that_fails_is_told_and_leaves_nothing() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let script = "#!/bin/sh\necho 'no virtualisation here' >&2\nexit 1\n";
    let program = daemon.add_program("containerd-shim-broken-v1", script);
    daemon.configure(&format!(
        "[runtime.handlers.broken]\nruntime_type = {program:?}\nconfig_path = \"/etc/x.toml\"\n"
    ));
    let kubelet = daemon.serve().await;
    let refused = kubelet.try_run(kubelet.pod_config("none"), "broken").await;
    let refused = refused.err().expect("its shim fails");
    assert!(
        refused.message().contains("no virtualisation here"),
        "{refused}"
    );
    // Other handlers are not affected.
    let pod = kubelet.plain_pod("other").await;
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_shim_cannot_do_is_refused() {
    let (daemon, kubelet, own) = shimmed("refused").await;
    let main = kubelet.launch(&own.pod, idle("main")).await;
    let mut config = idle("debugger");
    let options = &mut security(&mut config).namespace_options;
    let options = options.get_or_insert_default();
    options.pid = v1::NamespaceMode::Target.into();
    options.target_id.clone_from(&main);
    let refused = kubelet.try_create(&own.pod, config).await;
    let refused = refused.expect_err("a PID namespace of a shim's container");
    assert!(refused.message().contains("PID namespace"), "{refused}");

    let mut config = kubelet.pod_config("users");
    let mapping = v1::IdMapping {
        host_id: 200_000,
        container_id: 0,
        length: 65_536,
    };
    let options = pod_namespaces(&mut config);
    options.userns_options = Some(v1::UserNamespace {
        mode: v1::NamespaceMode::Pod.into(),
        uids: vec![mapping],
        gids: vec![mapping],
    });
    let refused = kubelet.try_run(config, HANDLER).await;
    let refused = refused.err().expect("no user namespaces");
    assert!(refused.message().contains("user namespaces"), "{refused}");
    own.end(&kubelet, &daemon).await;
}
