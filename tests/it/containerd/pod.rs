//! The lifecycle of a pod through criscope, and its log lines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use criscope::client;
use criscope::cri::v1;
use criscope::cri::v1::image_service_client::ImageServiceClient;
use criscope::cri::v1::runtime_service_client::RuntimeServiceClient;
use serde_json::Value;
use tonic::transport::Channel;

use super::{before, end};
use crate::harness::containerd::{Containerd, IMAGE};
use crate::harness::leaks;
use crate::harness::proxy::{Proxy, is_call};
use crate::harness::until;

/// Must not appear in any log line.
const SECRET: &str = "kwyjibozq";

pub(crate) struct Clients {
    pub(crate) runtime: RuntimeServiceClient<Channel>,
    pub(crate) images: ImageServiceClient<Channel>,
}

impl Clients {
    pub(crate) async fn of(socket: &Path) -> Self {
        let channel = client::connect(socket, Duration::from_secs(30)).await;
        let channel = channel.expect("connect");
        Self {
            runtime: client::runtime(channel.clone()),
            images: client::images(channel),
        }
    }
}

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
        image: Some(v1::ImageSpec {
            image: IMAGE.into(),
            ..Default::default()
        }),
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

/// Creates the pod and its container; returns their ids.
pub(crate) async fn make(clients: &mut Clients, config: &v1::PodSandboxConfig) -> (String, String) {
    let spec = v1::ImageSpec {
        image: IMAGE.into(),
        ..Default::default()
    };
    // containerd learns of an import by an event.
    until("the image", || async {
        let request = v1::ImageStatusRequest {
            image: Some(spec.clone()),
            verbose: false,
        };
        let status = clients.images.clone().image_status(request).await;
        status.expect("image status").into_inner().image
    })
    .await;
    let request = v1::RunPodSandboxRequest {
        config: Some(config.clone()),
        runtime_handler: String::new(),
    };
    let made = clients.runtime.run_pod_sandbox(request).await;
    let sandbox = made.expect("run sandbox").into_inner().pod_sandbox_id;
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: sandbox.clone(),
        config: Some(container_config()),
        sandbox_config: Some(config.clone()),
    };
    let made = clients.runtime.create_container(request).await;
    let container = made.expect("create").into_inner().container_id;
    let request = v1::StartContainerRequest {
        container_id: container.clone(),
    };
    clients
        .runtime
        .start_container(request)
        .await
        .expect("start");
    (sandbox, container)
}

/// Calls on a running container that carry only its id.
pub(crate) async fn use_container(clients: &mut Clients, container: &str, log: &Path) {
    let request = v1::ExecSyncRequest {
        container_id: container.into(),
        cmd: ["/bin/sh", "-c", "echo $PASSWORD; exit 3"]
            .map(Into::into)
            .to_vec(),
        timeout: 20,
    };
    let answer = clients
        .runtime
        .exec_sync(request)
        .await
        .expect("exec")
        .into_inner();
    assert_eq!(answer.exit_code, 3);
    assert_eq!(
        String::from_utf8_lossy(&answer.stdout),
        format!("{SECRET}\n")
    );
    until("the log of the container", || async {
        let text = fs::read_to_string(log).unwrap_or_default();
        text.contains("stdout F hello from inside").then_some(())
    })
    .await;
    let request = v1::ContainerStatusRequest {
        container_id: container.into(),
        verbose: true,
    };
    let status = clients.runtime.container_status(request).await;
    let status = status.expect("status").into_inner();
    assert_eq!(status.status.expect("a status").state, 1, "running");
    let request = v1::ReopenContainerLogRequest {
        container_id: container.into(),
    };
    clients
        .runtime
        .reopen_container_log(request)
        .await
        .expect("reopen");
}

pub(crate) async fn unmake(clients: &mut Clients, sandbox: &str, container: &str) {
    let request = v1::StopContainerRequest {
        container_id: container.into(),
        timeout: 0,
    };
    clients.runtime.stop_container(request).await.expect("stop");
    let request = v1::RemoveContainerRequest {
        container_id: container.into(),
    };
    clients
        .runtime
        .remove_container(request)
        .await
        .expect("remove");
    let request = v1::StopPodSandboxRequest {
        pod_sandbox_id: sandbox.into(),
    };
    clients
        .runtime
        .stop_pod_sandbox(request)
        .await
        .expect("stop pod");
    let request = v1::RemovePodSandboxRequest {
        pod_sandbox_id: sandbox.into(),
    };
    clients
        .runtime
        .remove_pod_sandbox(request)
        .await
        .expect("remove pod");
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
        ("rpc.status_code", "OK"),
    ] {
        assert_eq!(line[key], wanted, "{key} of {line}");
    }
    let (name, restarts) = match of_container {
        true => (Value::from("app"), Value::from(4)),
        false => (Value::Null, Value::Null),
    };
    assert_eq!(line["k8s.container.name"], name, "{line}");
    assert_eq!(line["k8s.container.restart_count"], restarts, "{line}");
    assert_eq!(line["criscope.sandbox.attempt"], 1, "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_named_in_every_line_of_its_life() {
    let containerd = Containerd::new().await;
    let config = sandbox_config(&containerd);
    let log = containerd.root().join("logs/app.log");
    let proxy = before(&containerd).await;
    let mut clients = Clients::of(&proxy.socket()).await;
    let (sandbox, container) = make(&mut clients, &config).await;
    use_container(&mut clients, &container, &log).await;
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
    for method in ["CreateContainer", "StartContainer", "ExecSync"] {
        assert_names(&proxy, method, true).await;
    }
    for method in ["ContainerStatus", "ReopenContainerLog"] {
        assert_names(&proxy, method, true).await;
    }
    assert_names(&proxy, "RunPodSandbox", false).await;
    let first = proxy.stop().await;

    // The next criscope learns the pod from containerd's lists.
    let proxy = before(&containerd).await;
    proxy.wait_event("identity.resync").await;
    let mut clients = Clients::of(&proxy.socket()).await;
    unmake(&mut clients, &sandbox, &container).await;
    until("the removal of the pod from the index", || async {
        let left = leaks::find(containerd.name());
        let of_pod = |l: &&String| {
            ["mount", "process", "file"]
                .iter()
                .any(|k| l.starts_with(k))
        };
        left.iter().find(of_pod).is_none().then_some(())
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
    let containerd = Containerd::new().await;
    let config = sandbox_config(&containerd);
    let proxy = before(&containerd).await;
    let mut clients = Clients::of(&proxy.socket()).await;
    let (sandbox, container) = make(&mut clients, &config).await;
    let mut broken = container_config();
    broken.metadata = Some(v1::ContainerMetadata {
        name: "broken".into(),
        attempt: 0,
    });
    broken.command = vec![format!("deploy --password {SECRET}")];
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: sandbox.clone(),
        config: Some(broken),
        sandbox_config: Some(config),
    };
    let made = clients.runtime.create_container(request).await;
    let id = made.expect("create").into_inner().container_id;
    let request = v1::StartContainerRequest {
        container_id: id.clone(),
    };
    let status = clients
        .runtime
        .start_container(request)
        .await
        .err()
        .expect("no such command");
    assert!(
        status.message().contains(SECRET),
        "the caller sees it: {status}"
    );
    let line = proxy
        .wait_line("the failed start", |l| {
            is_call(l, "StartContainer") && l["rpc.status_code"] != "OK"
        })
        .await;
    let told = line["error.message"].as_str().expect("a text");
    assert!(told.contains("runc create failed"), "{told}");
    assert!(
        told.contains("executable file not found in $PATH"),
        "{told}"
    );
    assert_eq!(line["k8s.container.name"], "broken");

    let request = v1::RemoveContainerRequest { container_id: id };
    clients
        .runtime
        .remove_container(request)
        .await
        .expect("remove");
    unmake(&mut clients, &sandbox, &container).await;
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
        let ids: Vec<_> = ["criscope.sandbox.id", "container.id"]
            .iter()
            .flat_map(|key| events.iter().filter_map(|line| line[*key].as_str()))
            .collect();
        assert!(ids.len() > 1, "{ids:?}");
        let mut left = leaks::cgroups("k8s.io");
        left.retain(|dir| ids.iter().any(|id| dir.ends_with(id)));
        assert_eq!(left, Vec::<PathBuf>::new());
        // Other tests may have cgroups there for a while.
        until("cgroups as before", || async {
            let now = leaks::cgroups("k8s.io");
            now.iter().all(|dir| usual.contains(dir)).then_some(())
        })
        .await;
    }
    proxy.stop().await;
    end(containerd);
}
