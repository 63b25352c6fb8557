//! A minimal kubelet: manages pods and containers of a [`Daemon`] over its socket, with the generated CRI types.

mod configs;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use criscope::client;
use criscope::cri::v1;
use criscope::cri::v1::image_service_client::ImageServiceClient;
use criscope::cri::v1::runtime_service_client::RuntimeServiceClient;
use serde_json::Value;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

pub use self::configs::*;
use crate::containerd::Containerd;
use crate::daemon::{Daemon, IMAGE};
pub use crate::requests::words;
use crate::{PATIENCE, requests, until, until_true};

/// A connection that reconnects automatically, and the common settings of its pods.
#[derive(Clone)]
pub struct Kubelet {
    pub runtime: RuntimeServiceClient<Channel>,
    pub images: ImageServiceClient<Channel>,
    cgroup: String,
    logs: PathBuf,
}

/// A pod and its configuration.
#[derive(Clone)]
pub struct Pod {
    pub id: String,
    pub config: v1::PodSandboxConfig,
}

/// Timeout of a command that is expected to exit, in seconds.
pub const LIMIT: i64 = PATIENCE.as_secs().cast_signed();

/// Output and exit code of a command.
pub struct Said {
    pub out: String,
    pub err: String,
    pub code: i32,
}

/// Gives this process the name of a kubelet, by which criscope knows one: only a kubelet's commands are probes and hooks.
pub fn play_kubelet() {
    static NAMED: Once = Once::new();
    NAMED.call_once(|| fs::write("/proc/self/comm", "kubelet").expect("a process names itself"));
}

impl Kubelet {
    /// Connects.
    pub async fn of(daemon: &Daemon) -> Self {
        Self::at(&daemon.socket(), daemon.cgroup(), &daemon.root()).await
    }

    /// Connects to a containerd.
    pub async fn of_containerd(containerd: &Containerd) -> Self {
        Self::before(&containerd.socket(), containerd).await
    }

    /// Connects to a socket in front of a containerd.
    pub async fn before(socket: &Path, containerd: &Containerd) -> Self {
        Self::at(socket, containerd.cgroup(), &containerd.root()).await
    }

    async fn at(socket: &Path, cgroup: String, root: &Path) -> Self {
        play_kubelet();
        let channel = client::connect(socket, Duration::from_secs(30)).await;
        let channel = channel.expect("connect");
        Self {
            runtime: client::runtime(channel.clone()),
            images: client::images(channel),
            cgroup,
            logs: root.join("logs"),
        }
    }

    /// The configuration of a pod of this name, with a unique uid.
    pub fn pod_config(&self, name: &str) -> v1::PodSandboxConfig {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let uid = format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let logs = self.logs.join(&uid);
        fs::create_dir_all(&logs).expect("logs");
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.to_owned(),
                uid,
                namespace: "test".to_owned(),
                attempt: 0,
            }),
            hostname: name.to_owned(),
            log_directory: logs.display().to_string(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: self.cgroup.clone(),
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(v1::NamespaceOption {
                        pid: v1::NamespaceMode::Container.into(),
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    /// Runs a pod with a runtime handler.
    pub async fn try_run(
        &self,
        config: v1::PodSandboxConfig,
        handler: &str,
    ) -> Result<Pod, Status> {
        let request = requests::run_pod(config.clone(), handler);
        let made = self.runtime.clone().run_pod_sandbox(request).await?;
        Ok(Pod {
            id: made.into_inner().pod_sandbox_id,
            config,
        })
    }

    /// Runs a pod with a runtime handler, which must work.
    pub async fn run_with(&self, config: v1::PodSandboxConfig, handler: &str) -> Pod {
        let pod = self.try_run(config, handler).await;
        pod.expect("RunPodSandbox")
    }

    /// Runs a pod.
    pub async fn run(&self, config: v1::PodSandboxConfig) -> Pod {
        self.run_with(config, "").await
    }

    /// The configuration of a pod in the host network.
    pub fn host_network_config(&self, name: &str) -> v1::PodSandboxConfig {
        let mut config = self.pod_config(name);
        config.hostname = String::new();
        pod_namespaces(&mut config).network = v1::NamespaceMode::Node.into();
        config
    }

    /// The configuration of a pod whose containers share a PID namespace.
    pub fn shared_pid_config(&self, name: &str) -> v1::PodSandboxConfig {
        let mut config = self.pod_config(name);
        pod_namespaces(&mut config).pid = v1::NamespaceMode::Pod.into();
        config
    }

    /// Runs a pod with the default configuration.
    pub async fn plain_pod(&self, name: &str) -> Pod {
        self.run(self.pod_config(name)).await
    }

    /// Creates a container.
    pub async fn try_create(
        &self,
        pod: &Pod,
        config: v1::ContainerConfig,
    ) -> Result<String, Status> {
        let request = requests::create(&pod.id, config, pod.config.clone());
        let made = self.runtime.clone().create_container(request).await?;
        Ok(made.into_inner().container_id)
    }

    /// Creates and starts a container.
    pub async fn launch(&self, pod: &Pod, config: v1::ContainerConfig) -> String {
        let id = self.try_create(pod, config).await.expect("CreateContainer");
        self.start(&id).await.expect("StartContainer");
        id
    }

    /// Starts a container.
    pub async fn start(&self, id: &str) -> Result<(), Status> {
        let request = requests::start(id);
        self.runtime.clone().start_container(request).await?;
        Ok(())
    }

    /// Updates the resources of a container.
    pub async fn update(&self, id: &str, resources: v1::LinuxContainerResources) {
        let request = v1::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(resources),
            ..Default::default()
        };
        let mut runtime = self.runtime.clone();
        let updated = runtime.update_container_resources(request).await;
        updated.expect("UpdateContainerResources");
    }

    /// Stops a container, unless that fails.
    pub async fn try_stop(&self, id: &str, grace: i64) -> Result<(), Status> {
        let request = requests::stop(id, grace);
        self.runtime.clone().stop_container(request).await.map(drop)
    }

    /// Stops a container.
    pub async fn stop(&self, id: &str, grace: i64) {
        self.try_stop(id, grace).await.expect("StopContainer");
    }

    /// Removes a container, even a running one.
    pub async fn remove(&self, id: &str) {
        let request = requests::remove(id);
        let removed = self.runtime.clone().remove_container(request).await;
        removed.expect("RemoveContainer");
    }

    /// Stops a pod, unless that fails.
    pub async fn try_stop_pod(&self, id: &str) -> Result<(), Status> {
        let mut runtime = self.runtime.clone();
        runtime
            .stop_pod_sandbox(requests::stop_pod(id))
            .await
            .map(drop)
    }

    /// Stops a pod with its containers.
    pub async fn stop_pod(&self, id: &str) {
        self.try_stop_pod(id).await.expect("StopPodSandbox");
    }

    /// Removes a pod with its containers, even a running one.
    pub async fn remove_pod(&self, id: &str) {
        let request = requests::remove_pod(id);
        let removed = self.runtime.clone().remove_pod_sandbox(request).await;
        removed.expect("RemovePodSandbox");
    }

    /// Stops and removes a pod with its containers.
    pub async fn end(&self, pod: &Pod) {
        self.stop_pod(&pod.id).await;
        self.remove_pod(&pod.id).await;
    }

    /// All containers.
    pub async fn containers(&self) -> Vec<v1::Container> {
        let all = v1::ListContainersRequest::default();
        let list = self.runtime.clone().list_containers(all).await;
        list.expect("ListContainers").into_inner().containers
    }

    /// All pods.
    pub async fn pods(&self) -> Vec<v1::PodSandbox> {
        let all = v1::ListPodSandboxRequest::default();
        let list = self.runtime.clone().list_pod_sandbox(all).await;
        list.expect("ListPodSandbox").into_inner().items
    }

    /// All images.
    pub async fn list_images(&self) -> Vec<v1::Image> {
        let all = v1::ListImagesRequest::default();
        let list = self.images.clone().list_images(all).await;
        list.expect("ListImages").into_inner().images
    }

    /// An image by its name or id.
    pub async fn image(&self, name: &str) -> v1::Image {
        let request = requests::image_status(name);
        let status = self.images.clone().image_status(request).await;
        let image = status.expect("ImageStatus").into_inner().image;
        image.unwrap_or_else(|| panic!("{name} is absent"))
    }

    /// Waits for the imported image, of which containerd learns by an event.
    pub async fn imported(&self) {
        until_true("the imported image", async || {
            let request = requests::image_status(IMAGE);
            let status = self.images.clone().image_status(request).await;
            status.expect("ImageStatus").into_inner().image.is_some()
        })
        .await;
    }

    pub async fn remove_image(&self, name: &str) {
        let request = requests::remove_image(name);
        let removed = self.images.clone().remove_image(request).await;
        removed.expect("RemoveImage");
    }

    /// The state of the runtime, with its settings.
    pub async fn runtime_status(&self) -> v1::StatusResponse {
        let request = v1::StatusRequest { verbose: true };
        let status = self.runtime.clone().status(request).await;
        status.expect("Status").into_inner()
    }

    /// Subscribes to the events of containers.
    pub async fn events(&self) -> Streaming<v1::ContainerEventResponse> {
        let mut runtime = self.runtime.clone();
        let events = runtime.get_container_events(v1::GetEventsRequest {}).await;
        events.expect("GetContainerEvents").into_inner()
    }

    /// The statistics of a container.
    pub async fn stats(&self, id: &str) -> Option<v1::ContainerStats> {
        let mut runtime = self.runtime.clone();
        let stats = runtime.container_stats(requests::stats(id)).await;
        stats.expect("ContainerStats").into_inner().stats
    }

    /// The statistics of a pod.
    pub async fn pod_stats(&self, id: &str) -> Option<v1::LinuxPodSandboxStats> {
        let request = requests::pod_stats(id);
        let stats = self.runtime.clone().pod_sandbox_stats(request).await;
        stats.expect("PodSandboxStats").into_inner().stats?.linux
    }

    /// What a verbose status says of a container beyond the CRI.
    pub async fn info(&self, id: &str) -> Value {
        let request = requests::status(id, true);
        let status = self.runtime.clone().container_status(request).await;
        parsed(&status.expect("ContainerStatus").into_inner().info)
    }

    /// What a verbose status says of a pod beyond the CRI.
    pub async fn pod_info(&self, id: &str) -> Value {
        let request = requests::pod_status(id, true);
        let status = self.runtime.clone().pod_sandbox_status(request).await;
        parsed(&status.expect("PodSandboxStatus").into_inner().info)
    }

    /// The URL of a command with streams as in [`requests::exec`].
    pub async fn exec_url(&self, id: &str, command: Vec<String>, streams: &str) -> String {
        let request = requests::exec(id, command, streams);
        let answer = self.runtime.clone().exec(request).await;
        answer.expect("Exec").into_inner().url
    }

    /// The URL for attaching to a container, with streams as in [`requests::exec`].
    pub async fn attach_url(&self, id: &str, streams: &str) -> String {
        let request = requests::attach(id, streams);
        let answer = self.runtime.clone().attach(request).await;
        answer.expect("Attach").into_inner().url
    }

    /// The URL for forwarding ports of a pod.
    pub async fn forward_url(&self, id: &str) -> String {
        let request = requests::forward(id);
        let answer = self.runtime.clone().port_forward(request).await;
        answer.expect("PortForward").into_inner().url
    }

    /// The status of a container.
    pub async fn status(&self, id: &str) -> v1::ContainerStatus {
        let request = requests::status(id, false);
        let status = self.runtime.clone().container_status(request).await;
        let status = status.expect("ContainerStatus").into_inner().status;
        status.expect("a status")
    }

    /// The status of a pod.
    pub async fn pod_status(&self, pod: &Pod) -> v1::PodSandboxStatus {
        let request = requests::pod_status(&pod.id, false);
        let status = self.runtime.clone().pod_sandbox_status(request).await;
        let status = status.expect("PodSandboxStatus").into_inner().status;
        status.expect("a status")
    }

    /// The first address of a pod.
    pub async fn address(&self, pod: &Pod) -> String {
        self.pod_status(pod).await.network.unwrap_or_default().ip
    }

    /// Waits until a container has exited; returns its status.
    pub async fn ended(&self, id: &str) -> v1::ContainerStatus {
        until("the end of a container", || async {
            let status = self.status(id).await;
            (status.state() == v1::ContainerState::ContainerExited).then_some(status)
        })
        .await
    }

    /// Runs a command in a container with a time limit in seconds; 0 means none.
    pub async fn try_exec(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: i64,
    ) -> Result<v1::ExecSyncResponse, Status> {
        let request = requests::exec_sync(id, command, timeout);
        let done = self.runtime.clone().exec_sync(request).await?;
        Ok(done.into_inner())
    }

    /// Runs a script in a container.
    pub async fn exec(&self, id: &str, script: &str) -> Said {
        let command = requests::shell_command(script);
        let done = self.try_exec(id, command, LIMIT).await.expect("ExecSync");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Said {
            out: text(&done.stdout),
            err: text(&done.stderr),
            code: done.exit_code,
        }
    }

    /// Runs a script in a container; asserts that it succeeds and returns its output.
    pub async fn says(&self, id: &str, script: &str) -> String {
        let said = self.exec(id, script).await;
        assert_eq!(said.code, 0, "{script}: {} {}", said.out, said.err);
        said.out
    }

    /// The lines of a container's log, as stream and text. The last may be without its end.
    pub async fn log(&self, id: &str) -> Vec<(String, String)> {
        let path = self.status(id).await.log_path;
        let text = fs::read_to_string(&path).unwrap_or_default();
        let parse = |line: &str| {
            let mut parts = line.splitn(4, ' ');
            let time = parts.next().expect("a time");
            assert!(time.contains('T') && time.contains('.'), "{line}");
            let stream = parts.next().expect("a stream").to_owned();
            assert!(matches!(parts.next(), Some("F" | "P")), "{line}");
            (stream, parts.next().unwrap_or_default().to_owned())
        };
        text.lines().map(parse).collect()
    }

    /// Waits for a stdout line with this text in a container's log.
    pub async fn logged(&self, id: &str, text: &str) {
        until_true(&format!("a line {text:?}"), async || {
            let log = self.log(id).await;
            let line = ("stdout".to_owned(), text.to_owned());
            log.contains(&line)
        })
        .await;
    }
}

fn parsed(info: &HashMap<String, String>) -> Value {
    serde_json::from_str(&info["info"]).expect("JSON")
}
