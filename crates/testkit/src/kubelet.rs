//! A minimal kubelet: manages pods and containers of a [`Daemon`] over its socket, with the generated CRI types.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use criscope::client;
use criscope::cri::v1;
use criscope::cri::v1::image_service_client::ImageServiceClient;
use criscope::cri::v1::runtime_service_client::RuntimeServiceClient;
use tonic::Status;
use tonic::transport::Channel;

use crate::containerd::Containerd;
use crate::daemon::{Daemon, IMAGE};
use crate::{PATIENCE, until};

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

/// Splits a command into its words.
pub fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// A container that runs this script in a shell.
pub fn shell(name: &str, script: &str) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: name.to_owned(),
            attempt: 0,
        }),
        image: Some(v1::ImageSpec {
            image: IMAGE.to_owned(),
            ..Default::default()
        }),
        command: vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()],
        log_path: format!("{name}.log"),
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(v1::LinuxContainerResources::default()),
            security_context: Some(v1::LinuxContainerSecurityContext {
                namespace_options: Some(v1::NamespaceOption {
                    pid: v1::NamespaceMode::Container.into(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
        }),
        ..Default::default()
    }
}

/// A container that runs until SIGTERM.
pub fn idle(name: &str) -> v1::ContainerConfig {
    shell(name, "trap 'exit 0' TERM; sleep 1000000 & wait")
}

/// The security context of a container.
pub fn security(config: &mut v1::ContainerConfig) -> &mut v1::LinuxContainerSecurityContext {
    let linux = config.linux.get_or_insert_default();
    linux.security_context.get_or_insert_default()
}

impl Kubelet {
    /// Connects.
    pub async fn of(daemon: &Daemon) -> Self {
        let channel = client::connect(&daemon.socket(), Duration::from_secs(30)).await;
        let channel = channel.expect("connect");
        Self {
            runtime: client::runtime(channel.clone()),
            images: client::images(channel),
            cgroup: daemon.cgroup(),
            logs: daemon.root().join("logs"),
        }
    }

    /// Connects to a containerd.
    pub async fn of_containerd(containerd: &Containerd) -> Self {
        let channel = client::connect(&containerd.socket(), Duration::from_secs(30)).await;
        let channel = channel.expect("connect");
        Self {
            runtime: client::runtime(channel.clone()),
            images: client::images(channel),
            cgroup: containerd.cgroup(),
            logs: containerd.root().join("logs"),
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
        let request = v1::RunPodSandboxRequest {
            config: Some(config.clone()),
            runtime_handler: handler.to_owned(),
        };
        let made = self.runtime.clone().run_pod_sandbox(request).await?;
        Ok(Pod {
            id: made.into_inner().pod_sandbox_id,
            config,
        })
    }

    /// Runs a pod.
    pub async fn run(&self, config: v1::PodSandboxConfig) -> Pod {
        self.try_run(config, "").await.expect("RunPodSandbox")
    }

    /// The configuration of a pod in the host network.
    pub fn host_network_config(&self, name: &str) -> v1::PodSandboxConfig {
        let mut config = self.pod_config(name);
        config.hostname = String::new();
        let linux = config.linux.get_or_insert_default();
        let context = linux.security_context.get_or_insert_default();
        let options = context.namespace_options.get_or_insert_default();
        options.network = v1::NamespaceMode::Node.into();
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
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: pod.id.clone(),
            config: Some(config),
            sandbox_config: Some(pod.config.clone()),
        };
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
        let request = v1::StartContainerRequest {
            container_id: id.to_owned(),
        };
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

    /// Stops a container.
    pub async fn stop(&self, id: &str, grace: i64) {
        let request = v1::StopContainerRequest {
            container_id: id.to_owned(),
            timeout: grace,
        };
        let stopped = self.runtime.clone().stop_container(request).await;
        stopped.expect("StopContainer");
    }

    /// Removes a container, even a running one.
    pub async fn remove(&self, id: &str) {
        let request = v1::RemoveContainerRequest {
            container_id: id.to_owned(),
        };
        let removed = self.runtime.clone().remove_container(request).await;
        removed.expect("RemoveContainer");
    }

    /// Stops and removes a pod with its containers.
    pub async fn end(&self, pod: &Pod) {
        let id = pod.id.clone();
        let request = v1::StopPodSandboxRequest {
            pod_sandbox_id: id.clone(),
        };
        let stopped = self.runtime.clone().stop_pod_sandbox(request).await;
        stopped.expect("StopPodSandbox");
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id };
        let removed = self.runtime.clone().remove_pod_sandbox(request).await;
        removed.expect("RemovePodSandbox");
    }

    /// The status of a container.
    pub async fn status(&self, id: &str) -> v1::ContainerStatus {
        let request = v1::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        let status = self.runtime.clone().container_status(request).await;
        let status = status.expect("ContainerStatus").into_inner().status;
        status.expect("a status")
    }

    /// The status of a pod.
    pub async fn pod_status(&self, pod: &Pod) -> v1::PodSandboxStatus {
        let request = v1::PodSandboxStatusRequest {
            pod_sandbox_id: pod.id.clone(),
            verbose: false,
        };
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
        let request = v1::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command,
            timeout,
        };
        let done = self.runtime.clone().exec_sync(request).await?;
        Ok(done.into_inner())
    }

    /// Runs a script in a container.
    pub async fn exec(&self, id: &str, script: &str) -> Said {
        let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
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
        until(&format!("a line {text:?}"), || async {
            let log = self.log(id).await;
            let line = ("stdout".to_owned(), text.to_owned());
            log.contains(&line).then_some(())
        })
        .await;
    }
}
