//! Why a pod was slow or did not start: a test kubelet, a real containerd, and the first line of `criscope explain`.

use std::fs;
use std::process::Command;
use std::time::Duration;

use criscope::client;
use criscope::cri::v1;
use criscope::cri::v1::image_service_client::ImageServiceClient;
use criscope::cri::v1::runtime_service_client::RuntimeServiceClient;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::{before, end};
use crate::commands::printed;
use crate::harness::containerd::{Containerd, IMAGE};
use crate::harness::docker_registry::DockerRegistry;
use crate::harness::proxy::Proxy;
use crate::harness::until;

/// Longer than any call here takes, and shorter than a hung test.
const PATIENCE: Duration = Duration::from_secs(60);

/// A kubelet with one pod.
pub(super) struct Kubelet {
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    config: v1::PodSandboxConfig,
}

impl Kubelet {
    pub(super) async fn on(proxy: &Proxy, containerd: &Containerd, pod: &str) -> Self {
        let channel = client::connect(&proxy.socket(), PATIENCE)
            .await
            .expect("connect");
        let logs = containerd.root().join("logs");
        fs::create_dir_all(&logs).expect("logs");
        let config = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: pod.into(),
                uid: format!("uid-of-{pod}"),
                namespace: "shop".into(),
                attempt: 0,
            }),
            hostname: pod.into(),
            log_directory: logs.display().to_string(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: containerd.cgroup(),
                ..Default::default()
            }),
            ..Default::default()
        };
        Self {
            runtime: client::runtime(channel.clone()),
            images: client::images(channel),
            config,
        }
    }

    pub(super) async fn sandbox(&mut self, deadline: Duration) -> Result<String, Status> {
        let mut request = Request::new(v1::RunPodSandboxRequest {
            config: Some(self.config.clone()),
            runtime_handler: String::new(),
        });
        request.set_timeout(deadline);
        let made = self.runtime.run_pod_sandbox(request).await?;
        Ok(made.into_inner().pod_sandbox_id)
    }

    pub(super) async fn pull(&mut self, image: &str) -> Result<(), Status> {
        let request = v1::PullImageRequest {
            image: Some(spec(image)),
            auth: None,
            sandbox_config: Some(self.config.clone()),
        };
        self.images.pull_image(request).await.map(drop)
    }

    /// Creates a container of the image and starts it.
    async fn start(&mut self, sandbox: &str, image: &str, attempt: u32, script: &str) -> String {
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: "app".into(),
                attempt,
            }),
            image: Some(spec(image)),
            command: ["/bin/sh", "-c", script].map(Into::into).to_vec(),
            log_path: "app.log".into(),
            ..Default::default()
        };
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.into(),
            config: Some(config),
            sandbox_config: Some(self.config.clone()),
        };
        let made = self.runtime.create_container(request).await;
        let container_id = made.expect("create").into_inner().container_id;
        let request = v1::StartContainerRequest {
            container_id: container_id.clone(),
        };
        self.runtime.start_container(request).await.expect("start");
        container_id
    }

    /// Queries the status, as the kubelet does after a container event.
    async fn exit_code(&self, container: &str) -> i32 {
        until("the end of the container", || async {
            let request = v1::ContainerStatusRequest {
                container_id: container.into(),
                verbose: false,
            };
            let answer = self.runtime.clone().container_status(request).await;
            let status = answer.expect("status").into_inner().status?;
            (status.state == v1::ContainerState::ContainerExited as i32).then_some(status.exit_code)
        })
        .await
    }

    /// Stops a container, as the kubelet does after a failed probe.
    async fn stop(&mut self, container: &str) {
        let request = v1::StopContainerRequest {
            container_id: container.into(),
            timeout: 0,
        };
        self.runtime.stop_container(request).await.expect("stop");
    }

    /// Waits for the imported image; containerd learns of it by an event.
    async fn imported(&self) {
        until("the image", || async {
            let request = v1::ImageStatusRequest {
                image: Some(spec(IMAGE)),
                verbose: false,
            };
            let status = self.images.clone().image_status(request).await;
            status.expect("image status").into_inner().image
        })
        .await;
    }

    /// Stops and removes the pod.
    pub(super) async fn remove(&mut self, sandbox: &str) {
        let pod_sandbox_id = sandbox.to_owned();
        let request = v1::StopPodSandboxRequest { pod_sandbox_id };
        self.runtime
            .stop_pod_sandbox(request)
            .await
            .expect("stop pod");
        let pod_sandbox_id = sandbox.to_owned();
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id };
        self.runtime
            .remove_pod_sandbox(request)
            .await
            .expect("remove pod");
    }
}

fn spec(image: &str) -> v1::ImageSpec {
    v1::ImageSpec {
        image: image.into(),
        ..Default::default()
    }
}

/// Returns the output of `criscope explain` for a pod.
async fn explain(proxy: &Proxy, pod: &str) -> String {
    let mut command = Command::new(crate::CRISCOPE);
    command
        .arg("explain")
        .arg(format!("shop/{pod}"))
        .args(["--admin", &format!("127.0.0.1:{}", proxy.admin_port())]);
    let ended = tokio::task::spawn_blocking(move || command.output()).await;
    let output = ended.expect("joined").expect("start");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complained}");
    said
}

/// Asserts that the first line of an explanation contains all of these words.
fn assert_first(said: &str, words: &[&str]) {
    let first = said.lines().next().unwrap_or_default();
    for word in words {
        assert!(
            first.contains(word),
            "{word:?} is not in the first line of\n{said}"
        );
    }
}

/// Delays the CNI plugin or the OCI runtime of this containerd by this number of seconds from now on.
fn delay(containerd: &Containerd, part: &str, seconds: u32) {
    let file = containerd.root().join(format!("{part}.delay"));
    fs::write(file, seconds.to_string()).expect("delay");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_cni_plugin_is_named() {
    let containerd = Containerd::with_slow_parts().await;
    delay(&containerd, "slow-bridge", 3);
    let proxy = before(&containerd).await;
    let mut kubelet = Kubelet::on(&proxy, &containerd, "web").await;
    kubelet.imported().await;
    let sandbox = kubelet.sandbox(PATIENCE).await.expect("sandbox");
    kubelet.start(&sandbox, IMAGE, 0, "exec sleep 1000").await;
    let said = explain(&proxy, "web").await;
    assert_first(&said, &["slow-bridge", "CNI plugin"]);
    assert!(said.contains("RunPodSandbox"), "{said}");
    kubelet.remove(&sandbox).await;
    proxy.stop().await;
    end(containerd);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_oci_runtime_is_named() {
    let containerd = Containerd::with_slow_parts().await;
    let proxy = before(&containerd).await;
    let mut kubelet = Kubelet::on(&proxy, &containerd, "web").await;
    kubelet.imported().await;
    let sandbox = kubelet.sandbox(PATIENCE).await.expect("sandbox");
    delay(&containerd, "runc", 2);
    kubelet.start(&sandbox, IMAGE, 0, "exec sleep 1000").await;
    let said = explain(&proxy, "web").await;
    assert_first(&said, &["OCI runtime runc", "StartContainer"]);
    kubelet.remove(&sandbox).await;
    proxy.stop().await;
    end(containerd);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_registry_is_named() {
    let containerd = Containerd::new().await;
    let registry = DockerRegistry::start(&containerd.root()).await;
    registry.push("shop/app:1");
    let slow = registry.slowly(Duration::from_millis(1500));
    let image = slow.image("shop/app:1");
    let proxy = before(&containerd).await;
    let mut kubelet = Kubelet::on(&proxy, &containerd, "web").await;
    kubelet.imported().await;
    let sandbox = kubelet.sandbox(PATIENCE).await.expect("sandbox");
    kubelet.pull(&image).await.expect("pull");
    kubelet.start(&sandbox, &image, 0, "exec sleep 1000").await;
    let said = explain(&proxy, "web").await;
    assert_first(&said, &["pull", &image]);
    kubelet.remove(&sandbox).await;
    proxy.stop().await;
    end(containerd);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_image_is_named() {
    let containerd = Containerd::new().await;
    let registry = DockerRegistry::start(&containerd.root()).await;
    let near = registry.slowly(Duration::ZERO);
    let image = near.image("shop/app:2");
    let proxy = before(&containerd).await;
    let mut kubelet = Kubelet::on(&proxy, &containerd, "web").await;
    kubelet.imported().await;
    let sandbox = kubelet.sandbox(PATIENCE).await.expect("sandbox");
    for _ in 0..3 {
        let status = kubelet.pull(&image).await.expect_err("no such image");
        assert_eq!(status.code(), Code::NotFound, "{status}");
    }
    let said = explain(&proxy, "web").await;
    assert_first(&said, &[&image, "cannot be pulled", "NOT_FOUND", "3 tries"]);
    kubelet.remove(&sandbox).await;
    proxy.stop().await;
    end(containerd);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_keeps_ending_is_named() {
    let containerd = Containerd::new().await;
    let proxy = before(&containerd).await;
    let mut kubelet = Kubelet::on(&proxy, &containerd, "web").await;
    kubelet.imported().await;
    let sandbox = kubelet.sandbox(PATIENCE).await.expect("sandbox");
    for attempt in 0..4 {
        let container = kubelet.start(&sandbox, IMAGE, attempt, "exit 3").await;
        assert_eq!(kubelet.exit_code(&container).await, 3);
    }
    let said = explain(&proxy, "web").await;
    assert_first(&said, &["app", "keeps ending", "exit code 3", "4 starts"]);
    // The list says the same.
    let table = printed(&proxy, &["pods"]).await;
    let row = table.lines().nth(1).unwrap_or_default();
    let sentence = said.lines().next().unwrap_or_default();
    assert!(
        row.starts_with("shop/web  crash loop") && row.contains(sentence),
        "{table}"
    );
    let story = printed(&proxy, &["pods", "--json"]).await;
    assert_eq!(story.matches("\"crash_loop\"").count(), 4, "{story}");
    kubelet.remove(&sandbox).await;
    proxy.stop().await;
    end(containerd);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeatedly_stopped_container_is_not_reported_as_crashing() {
    let containerd = Containerd::new().await;
    let proxy = before(&containerd).await;
    let mut kubelet = Kubelet::on(&proxy, &containerd, "web").await;
    kubelet.imported().await;
    let sandbox = kubelet.sandbox(PATIENCE).await.expect("sandbox");
    for attempt in 0..3 {
        let container = kubelet
            .start(&sandbox, IMAGE, attempt, "exec sleep 1000")
            .await;
        kubelet.stop(&container).await;
        assert_eq!(kubelet.exit_code(&container).await, 137);
    }
    let said = explain(&proxy, "web").await;
    assert!(!said.contains("keeps ending"), "{said}");
    let story = printed(&proxy, &["explain", "shop/web", "--json"]).await;
    assert_eq!(story.matches("\"exits\"").count(), 3, "{story}");
    // The loop is reported as one of repeated kills instead.
    assert!(!story.contains("keeps ending"), "{story}");
    assert!(story.contains("keeps killing app"), "{story}");
    kubelet.remove(&sandbox).await;
    proxy.stop().await;
    end(containerd);
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_of_a_kubelet_are_one_story() {
    let containerd = Containerd::with_slow_parts().await;
    // Twice the deadline, long enough for the plugin to be observed.
    delay(&containerd, "slow-bridge", 10);
    let proxy = before(&containerd).await;
    let mut kubelet = Kubelet::on(&proxy, &containerd, "web").await;
    kubelet.imported().await;
    let status = kubelet.sandbox(Duration::from_secs(5)).await;
    let code = status.expect_err("too late").code();
    assert!(
        [Code::Cancelled, Code::DeadlineExceeded].contains(&code),
        "{code}"
    );
    // The plugin is called a few more times, also for cleanup.
    delay(&containerd, "slow-bridge", 2);
    // containerd rejects a retry until it has cleaned up the first attempt.
    let again = tokio::sync::Mutex::new(&mut kubelet);
    let sandbox = until("a sandbox", || async {
        let made = again.lock().await.sandbox(PATIENCE).await.ok();
        if made.is_none() {
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        made
    })
    .await;
    kubelet.start(&sandbox, IMAGE, 0, "exec sleep 1000").await;
    let said = explain(&proxy, "web").await;
    assert_first(&said, &["deadline of 5", "slow-bridge"]);
    kubelet.remove(&sandbox).await;
    proxy.stop().await;
    end(containerd);
}
