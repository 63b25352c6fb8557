//! The lifecycle of a pod through criscope, and its log lines.

use super::{Node, before, end};
use crate::prelude::*;

/// Must not appear in any log line.
const SECRET: &str = "kwyjibozq";

pub(crate) fn sandbox_config(containerd: &Containerd) -> v1::PodSandboxConfig {
    let logs = containerd.root().join("logs");
    fs::create_dir_all(&logs).expect("logs");
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "web".into(),
            uid: "0b5e".into(),
            namespace: "shop".into(),
            attempt: 1,
        }),
        hostname: "web".into(),
        log_directory: logs.display().to_string(),
        annotations: [("note".to_owned(), SECRET.to_owned())].into(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: containerd.cgroup(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn container_config() -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: "app".into(),
            attempt: 4,
        }),
        image: Some(requests::image_spec(IMAGE)),
        command: vec!["/bin/sh".into(), "-c".into()],
        args: vec!["echo hello from $NAME; exec sleep 1000".into()],
        envs: vec![
            v1::KeyValue {
                key: "NAME".into(),
                value: b"inside".as_slice().into(),
            },
            v1::KeyValue {
                key: "PASSWORD".into(),
                value: SECRET.as_bytes().into(),
            },
        ],
        log_path: "app.log".into(),
        ..Default::default()
    }
}

/// Creates the pod and its container.
pub(crate) async fn make(kubelet: &Kubelet, config: &v1::PodSandboxConfig) -> (Pod, String) {
    kubelet.imported().await;
    let pod = kubelet.run(config.clone()).await;
    let container = kubelet.launch(&pod, container_config()).await;
    (pod, container)
}

/// Calls on a running container that carry only its id.
pub(crate) async fn use_container(kubelet: &Kubelet, container: &str, log: &Path) {
    let said = kubelet.exec(container, "echo $PASSWORD; exit 3").await;
    assert_eq!((&*said.out, said.code), (SECRET, 3));
    until_true("the log of the container", async || {
        let text = fs::read_to_string(log).unwrap_or_default();
        text.contains("stdout F hello from inside")
    })
    .await;
    kubelet.info(container).await;
    let state = kubelet.status(container).await.state();
    assert!(state == v1::ContainerState::ContainerRunning);
    let reopen = requests::reopen_log(container);
    let reopened = kubelet.runtime.clone().reopen_container_log(reopen).await;
    reopened.expect("ReopenContainerLog");
}

pub(crate) async fn unmake(kubelet: &Kubelet, pod: &Pod, container: &str) {
    kubelet.stop(container, 0).await;
    kubelet.remove(container).await;
    kubelet.end(pod).await;
}

/// The log line of a call names pod and container, whatever the request contained.
async fn assert_names(proxy: &Proxy, method: &str, of_container: bool) {
    let line = proxy
        .wait_line(method, |l| l["event"] == "rpc.end" && is_call(l, method))
        .await;
    for (key, wanted) in [
        ("k8s.namespace.name", "shop"),
        ("k8s.pod.name", "web"),
        ("k8s.pod.uid", "0b5e"),
        ("rpc.response.status_code", "OK"),
    ] {
        assert_eq!(line[key], wanted, "{key} of {line}");
    }
    let (name, restarts) = match of_container {
        true => (Value::from("app"), Value::from(4)),
        false => (Value::Null, Value::Null),
    };
    assert_eq!(line["k8s.container.name"], name, "{line}");
    assert_eq!(line["k8s.container.restart_count"], restarts, "{line}");
    assert_eq!(line["cri.sandbox.attempt"], 1, "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_named_in_every_line_of_its_life() {
    let Node {
        containerd,
        proxy,
        kubelet,
    } = Node::new().await;
    let config = sandbox_config(&containerd);
    let log = containerd.root().join("logs/app.log");
    let (pod, container) = make(&kubelet, &config).await;
    use_container(&kubelet, &container, &log).await;
    // The leak check does find something.
    let there = leaks::find(containerd.name());
    for kind in ["mount", "process", "cgroup", "link", "file", "directory"] {
        assert!(
            there.iter().any(|t| t.starts_with(kind)),
            "{kind}: {there:#?}"
        );
    }
    let results = |network: &str| {
        there
            .iter()
            .any(|t| t.contains(&format!("results/{network}-")))
    };
    assert!(
        results(containerd.name()) && results("cni-loopback"),
        "{there:#?}"
    );
    for method in [
        "CreateContainer",
        "StartContainer",
        "ExecSync",
        "ContainerStatus",
        "ReopenContainerLog",
    ] {
        assert_names(&proxy, method, true).await;
    }
    assert_names(&proxy, "RunPodSandbox", false).await;
    let first = proxy.stop().await;

    // The next criscope learns the pod from containerd's lists.
    let proxy = before(&containerd).await;
    proxy.wait_event("identity.resync").await;
    let kubelet = Kubelet::before(&proxy.socket(), &containerd).await;
    unmake(&kubelet, &pod, &container).await;
    until_true("the removal of the pod from the index", async || {
        let left = leaks::find(containerd.name());
        let of_pod = |l: &&String| {
            ["mount", "process", "file"]
                .iter()
                .any(|k| l.starts_with(k))
        };
        left.iter().find(of_pod).is_none()
    })
    .await;
    for method in ["StopContainer", "RemoveContainer"] {
        assert_names(&proxy, method, true).await;
    }
    for method in ["StopPodSandbox", "RemovePodSandbox"] {
        assert_names(&proxy, method, false).await;
    }
    let second = proxy.stop().await;
    for line in first.iter().chain(&second) {
        assert!(!line.contains(SECRET), "{line}");
    }
    end(containerd);
}

/// An error that quotes the command of an earlier call is logged without that command.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_runc_names_the_cause_and_hides_the_command() {
    let Node {
        containerd,
        proxy,
        kubelet,
    } = Node::new().await;
    let (pod, container) = make(&kubelet, &sandbox_config(&containerd)).await;
    let mut broken = container_config();
    broken.metadata = Some(v1::ContainerMetadata {
        name: "broken".into(),
        attempt: 0,
    });
    broken.command = vec![format!("deploy --password {SECRET}")];
    let id = kubelet.try_create(&pod, broken).await.expect("create");
    let status = kubelet.start(&id).await.expect_err("no such command");
    assert!(
        status.message().contains(SECRET),
        "the caller sees it: {status}"
    );
    let line = proxy
        .wait_line("the failed start", |l| {
            is_call(l, "StartContainer") && l["rpc.response.status_code"] != "OK"
        })
        .await;
    let told = line["error.message"].as_str().expect("a text");
    assert!(told.contains("runc create failed"), "{told}");
    assert!(
        told.contains("executable file not found in $PATH"),
        "{told}"
    );
    assert_eq!(line["k8s.container.name"], "broken");

    kubelet.remove(&id).await;
    unmake(&kubelet, &pod, &container).await;
    for line in proxy.stop().await {
        assert!(!line.contains(SECRET), "{line}");
    }
    end(containerd);
}

/// The built-in canary as a user runs it, with and without a parent cgroup. Everything created for it is removed.
#[tokio::test(flavor = "multi_thread")]
async fn smoke_succeeds() {
    let containerd = Containerd::new().await;
    let proxy = before(&containerd).await;
    let named = ["--cgroup-parent".to_owned(), containerd.cgroup()];
    // The parent cgroup that containerd uses by default.
    let usual = leaks::cgroups("k8s.io");
    for args in [&named[..], &[]] {
        let mut smoke = Command::new(crate::CRISCOPE);
        smoke
            .arg("smoke")
            .arg("--endpoint")
            .arg(format!("unix://{}", proxy.socket().display()))
            .args(args);
        let ended = tokio::task::spawn_blocking(move || smoke.output()).await;
        let output = ended.expect("joined").expect("start");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{said}");
        assert!(!said.contains("left behind"), "{said}");
        assert_eq!(leaks::cgroups(containerd.name()), Vec::<PathBuf>::new());
        let events = proxy.events();
        let ids: Vec<_> = ["cri.sandbox.id", "container.id"]
            .iter()
            .flat_map(|key| events.iter().filter_map(|line| line[*key].as_str()))
            .collect();
        assert!(ids.len() > 1, "{ids:?}");
        let mut left = leaks::cgroups("k8s.io");
        left.retain(|dir| ids.iter().any(|id| dir.ends_with(id)));
        assert_eq!(left, Vec::<PathBuf>::new());
        // Other tests may have cgroups there for a while.
        until_true("cgroups as before", async || {
            let now = leaks::cgroups("k8s.io");
            now.iter().all(|dir| usual.contains(dir))
        })
        .await;
    }
    proxy.stop().await;
    end(containerd);
}
