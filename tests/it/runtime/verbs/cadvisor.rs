//! `runtime.containerd_socket`: what cAdvisor learns of the pods of the built-in runtime.

use std::convert::Infallible;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use criscope::client;

use crate::harness::cadvisor::{Cadvisor, RUNNING, STOPPED};
use crate::prelude::*;

const SECRET: &str = "kwyjibozq";
const LABEL: (&str, &str) = ("io.kubernetes.pod.name", "web");

/// The setting, and its socket.
fn setting(daemon: &Daemon) -> (String, PathBuf) {
    // Its directory does not exist, like containerd's on a node without it.
    let socket = daemon.state().join("containerd/containerd.sock");
    (format!("containerd_socket = {socket:?}\n"), socket)
}

async fn started() -> (Daemon, Kubelet, Cadvisor) {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let (setting, socket) = setting(&daemon);
    daemon.set_runtime(&setting);
    let kubelet = daemon.serve().await;
    (daemon, kubelet, Cadvisor::of(&socket).await)
}

fn labels() -> HashMap<String, String> {
    [(LABEL.0.to_owned(), LABEL.1.to_owned())].into()
}

/// A pod and a container with the kubelet's labels, and with a secret.
async fn web(kubelet: &Kubelet) -> (Pod, String) {
    let mut config = kubelet.pod_config("web");
    config.labels = labels();
    let pod = kubelet.run(config).await;
    let mut config = idle("main");
    config.labels = labels();
    config.args = vec![SECRET.to_owned()];
    config.envs = vec![v1::KeyValue {
        key: "PASSWORD".to_owned(),
        value: SECRET.as_bytes().into(),
    }];
    let container = kubelet.launch(&pod, config).await;
    (pod, container)
}

/// The pid of the process that a sandbox has for cAdvisor.
async fn process_of(cadvisor: &Cadvisor, pod: &Pod) -> u32 {
    let running = || async { cadvisor.task(&pod.id).await.ok() };
    let task = until("the process of a sandbox", running).await;
    assert_eq!(task.status, RUNNING);
    task.pid
}

fn namespace(pid: u32, kind: &str) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/ns/{kind}")).expect("it runs")
}

/// Asks of each sandbox whose process gets a cgroup, of any daemon, whether it is known.
async fn ask_of_new_cgroups(cadvisor: &Cadvisor, known: &mut HashMap<String, bool>) -> Infallible {
    loop {
        for shims in [
            "/sys/fs/cgroup/memory/criscope-shims",
            "/sys/fs/cgroup/criscope-shims",
        ] {
            for entry in fs::read_dir(shims).into_iter().flatten().flatten() {
                let id = entry.file_name().to_string_lossy().into_owned();
                if id.len() == 64 && !known.contains_key(&id) {
                    let found = cadvisor.container(&id).await.is_ok();
                    known.insert(id, found);
                }
            }
        }
        // Often, without keeping the other tasks from their work.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until the process has been reaped.
async fn gone(pid: u32) {
    let process = PathBuf::from(format!("/proc/{pid}"));
    until_true("the end of the process", async || !process.exists()).await;
}

async fn no_task(cadvisor: &Cadvisor, id: &str) {
    let refused = cadvisor.task(id).await.expect_err("no task");
    assert_eq!(refused.code(), Code::NotFound, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cadvisor_finds_containers_and_the_network_of_their_pod() {
    let (daemon, kubelet, cadvisor) = started().await;
    let (pod, container) = web(&kubelet).await;
    cadvisor.assert_usual(&pod.id, &container, LABEL).await;
    let found = cadvisor.container(&container).await.expect("known");
    assert_eq!(found.image, IMAGE);
    assert_eq!(found.labels[LABEL.0], LABEL.1);
    assert!(!format!("{found:?}").contains(SECRET));
    let spec = String::from_utf8(found.spec.expect("a specification").json);
    assert!(!spec.expect("JSON").contains(SECRET));

    // Its counters are those of the pod, and its containers do not see it.
    let pid = process_of(&cadvisor, &pod).await;
    let task = cadvisor.task(&container).await.expect("it runs").pid;
    for kind in ["net", "ipc", "uts"] {
        assert_eq!(namespace(pid, kind), namespace(task, kind), "{kind}");
    }
    for kind in ["pid", "mnt", "cgroup"] {
        assert_ne!(namespace(pid, kind), namespace(task, kind), "{kind}");
    }
    let counters = fs::read_to_string(format!("/proc/{pid}/net/dev")).expect("it runs");
    assert!(counters.contains("eth0:"), "{counters}");

    kubelet.stop(&container, 30).await;
    let ended = cadvisor.task(&container).await.expect("exited");
    assert_eq!(
        (ended.status, ended.pid, ended.exit_status),
        (STOPPED, 0, 0)
    );
    kubelet.remove(&container).await;
    no_task(&cadvisor, &container).await;
    let scrape = daemon.program().scrape().await;
    let requests = |result| {
        let requests = scrape.metric("criscope_runtime_containerd_requests_total");
        let tasks = requests.with("method", "Tasks.Get");
        tasks.with("result", result).sum()
    };
    assert!(requests("ok") >= 1.0 && requests("not_found") >= 1.0);
    kubelet.stop_pod(&pod.id).await;
    no_task(&cadvisor, &pod.id).await;
    gone(pid).await;
    let mut left = leaks::cgroups(leaks::SHIMS).into_iter();
    assert_eq!(left.find(|dir| dir.ends_with(&pod.id)), None);
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_is_for_root_and_serves_the_cri_too() {
    let (mut daemon, kubelet, cadvisor) = started().await;
    let (_, socket) = setting(&daemon);
    let mode = fs::metadata(&socket).expect("bound").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let pod = kubelet.plain_pod("seen").await;
    let channel = client::connect(&socket, Duration::from_secs(30)).await;
    let mut cri = client::runtime(channel.expect("connect"));
    let listed = cri.list_pod_sandbox(v1::ListPodSandboxRequest::default());
    let listed = listed.await.expect("the CRI").into_inner().items;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].id, pod.id);
    kubelet.end(&pod).await;

    // ctr and nerdctl are told why they do not work.
    let list = "/containerd.services.containers.v1.Containers/List";
    assert_refused(
        cadvisor.call::<()>(list, Some("k8s.io"), ()).await,
        Code::Unimplemented,
        "criscope is not containerd",
    );
    let scrape = daemon.program().scrape().await;
    let requests = scrape.metric("criscope_runtime_containerd_requests_total");
    let others = requests.with("method", "other").with("result", "error");
    assert_eq!(others.sum(), 1.0);

    daemon.kill();
    // As containerd does at its start.
    fs::remove_file(&socket).expect("the killed daemon could not remove it");
    let containerd = UnixListener::bind(&socket).expect("bound");
    let (status, log) = daemon.spawn().ended().await;
    assert!(!status.success());
    let why = format!("{}: another process is listening", socket.display());
    assert!(log.iter().any(|line| line.contains(&why)), "{log:#?}");
    drop(containerd);
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_the_host_network_with_user_ids_of_their_own_and_with_a_shared_pid_namespace() {
    let (daemon, kubelet, cadvisor) = started().await;
    let host = kubelet.run(kubelet.host_network_config("host")).await;
    let mut config = kubelet.pod_config("shared");
    pod_namespaces(&mut config).pid = v1::NamespaceMode::Pod.into();
    // cAdvisor asks as soon as it sees the cgroup, and again only after a minute.
    let mut early = HashMap::new();
    let shared = tokio::select! {
        pod = kubelet.run(config) => pod,
        never = ask_of_new_cgroups(&cadvisor, &mut early) => match never {},
    };
    assert_ne!(early.get(&shared.id), Some(&false), "known from the start");
    let mut config = kubelet.pod_config("users");
    let mapping = v1::IdMapping {
        host_id: 200_000,
        container_id: 0,
        length: 65536,
    };
    let options = pod_namespaces(&mut config);
    options.userns_options = Some(v1::UserNamespace {
        mode: v1::NamespaceMode::Pod.into(),
        uids: vec![mapping],
        gids: vec![mapping],
    });
    let users = kubelet.run(config).await;
    let process = process_of(&cadvisor, &users).await;
    let counters = fs::read_to_string(format!("/proc/{process}/net/dev")).expect("it runs");
    assert!(counters.contains("eth0:"), "{counters}");
    let own = namespace(std::process::id(), "user");
    assert_ne!(namespace(process, "user"), own);
    kubelet.end(&users).await;

    // The counters would be those of the node.
    let refused = cadvisor.container(&host.id).await.expect_err("not shown");
    assert_eq!(refused.code(), Code::NotFound);
    no_task(&cadvisor, &host.id).await;

    let mut config = idle("main");
    let options = namespaces(&mut config);
    options.pid = v1::NamespaceMode::Pod.into();
    let container = kubelet.launch(&shared, config).await;
    let task = cadvisor.task(&container).await.expect("it runs").pid;
    let init = process_of(&cadvisor, &shared).await;
    assert_eq!(namespace(init, "pid"), namespace(task, "pid"), "its init");
    // Its init ends with the removal, but its network has ended.
    kubelet.stop_pod(&shared.id).await;
    no_task(&cadvisor, &shared.id).await;
    daemon.end(&kubelet, [&shared, &host]).await;
}

/// Pods get the process by a restart with the setting, keep it over others, and need it for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_process_of_a_pod_over_restarts() {
    let (mut daemon, kubelet) = node().await;
    let (pod, container) = web(&kubelet).await;
    daemon.kill();
    let (on, socket) = setting(&daemon);
    daemon.set_runtime(&on);
    daemon.start().await;
    let cadvisor = Cadvisor::of(&socket).await;
    cadvisor.assert_usual(&pod.id, &container, LABEL).await;
    let pid = process_of(&cadvisor, &pod).await;

    daemon.restart().await;
    let cadvisor = Cadvisor::of(&socket).await;
    assert_eq!(process_of(&cadvisor, &pod).await, pid, "the same");

    let process = Pid::from_raw(i32::try_from(pid).expect("a pid"));
    kill(process, Signal::SIGKILL).expect("killed");
    let refused = until("its end", || async { cadvisor.task(&pod.id).await.err() }).await;
    assert_eq!(refused.code(), Code::NotFound);
    let kubelet = Kubelet::of(&daemon).await;
    let ready = v1::PodSandboxState::SandboxReady;
    assert!(kubelet.pod_status(&pod).await.state() == ready);
    kubelet.launch(&pod, idle("second")).await;

    daemon.restart().await;
    let cadvisor = Cadvisor::of(&socket).await;
    let pid = process_of(&cadvisor, &pod).await;
    daemon.kill();
    daemon.set_runtime("");
    let kubelet = daemon.serve().await;
    kubelet.end(&pod).await;
    gone(pid).await;
    daemon.assert_clean();
}
