//! A runtime under measurement, and the calls of a kubelet for a pod.

mod polls;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use criscope::client;
use criscope::cri::v1::image_service_client::ImageServiceClient;
use criscope::cri::v1::runtime_service_client::RuntimeServiceClient;
use criscope::cri::v1::{self, NamespaceMode};
use criscope_testkit::requests;
use tonic::Status;
use tonic::transport::Channel;

pub(crate) use self::polls::Poll;
use crate::error::{Error, Result};

/// Timeout for a runtime to accept a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// The command of exec calls: as short as a probe can be.
pub(crate) const TRUE: [&str; 2] = ["/bin/busybox", "true"];

/// The pause between start and exec call, as before a probe: directly after the start, the exec call would not wait for an
/// RCU grace period when its process is migrated to its cgroup.
pub(crate) const BEFORE_EXEC: Duration = Duration::from_millis(100);

/// The common settings of the pods.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The parent cgroup.
    pub(crate) cgroup: String,
    /// The log directory.
    pub(crate) logs: PathBuf,
}

/// A client of one runtime. Clones share its connection.
#[derive(Clone)]
pub(crate) struct Cri {
    client: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    place: Place,
    image: String,
}

/// A running pod.
pub(crate) struct Pod {
    id: String,
    config: v1::PodSandboxConfig,
}

/// Durations of groups of calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    /// RunPodSandbox.
    pub(crate) run: Duration,
    /// CreateContainer and StartContainer.
    pub(crate) start: Duration,
    /// ExecSync.
    pub(crate) exec: Duration,
    /// StopContainer without grace period, RemoveContainer.
    pub(crate) remove: Duration,
    /// StopPodSandbox with a running container, RemovePodSandbox.
    pub(crate) end: Duration,
}

impl Cri {
    /// Connects.
    ///
    /// # Errors
    /// [`Error::Connect`].
    pub(crate) async fn connect(socket: &Path, place: Place, image: &str) -> Result<Self> {
        let failed = |error: client::ClientError| Error::Connect {
            socket: socket.to_owned(),
            cause: error.to_string(),
        };
        let channel = client::connect(socket, PATIENCE).await.map_err(failed)?;
        Ok(Self {
            client: client::runtime(channel.clone()),
            images: client::images(channel),
            place,
            image: image.to_owned(),
        })
    }

    /// A client with the same settings and a connection of its own.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub(crate) async fn again(&self, socket: &Path) -> Result<Self> {
        Self::connect(socket, self.place.clone(), &self.image).await
    }

    /// Its name and version.
    ///
    /// # Errors
    /// If it does not answer.
    pub(crate) async fn version(&mut self) -> Result<String> {
        let request = v1::VersionRequest::default();
        let answer = self.client.version(request).await;
        let answer = answer.map_err(failed("Version"))?.into_inner();
        Ok(format!(
            "{} {}",
            answer.runtime_name, answer.runtime_version
        ))
    }

    /// Pulls the image of all containers.
    ///
    /// # Errors
    /// If the pull fails.
    pub(crate) async fn pull(&mut self) -> Result<()> {
        let image = self.image.clone();
        self.pull_image(&image).await
    }

    /// Pulls another image.
    ///
    /// # Errors
    /// As [`Self::pull`].
    pub(crate) async fn pull_image(&mut self, name: &str) -> Result<()> {
        let request = v1::PullImageRequest {
            image: Some(spec(name)),
            ..Default::default()
        };
        let answer = self.images.pull_image(request).await;
        answer.map_err(failed("PullImage"))?;
        Ok(())
    }

    /// RemoveImage.
    ///
    /// # Errors
    /// If the call fails.
    pub(crate) async fn remove_image(&mut self, name: &str) -> Result<()> {
        let request = v1::RemoveImageRequest {
            image: Some(spec(name)),
        };
        let answer = self.images.remove_image(request).await;
        answer.map(drop).map_err(failed("RemoveImage"))
    }

    /// RunPodSandbox.
    ///
    /// # Errors
    /// If the call fails; the same for all following methods.
    pub(crate) async fn run(&mut self, name: &str) -> Result<Pod> {
        let config = self.config(name);
        let request = requests::run_pod(config.clone(), "");
        let answer = self.client.run_pod_sandbox(request).await;
        let id = answer
            .map_err(failed("RunPodSandbox"))?
            .into_inner()
            .pod_sandbox_id;
        Ok(Pod { id, config })
    }

    /// CreateContainer and StartContainer. Returns the container's id.
    #[allow(clippy::missing_errors_doc)]
    pub(crate) async fn start(&mut self, pod: &Pod, name: &str) -> Result<String> {
        let profile = v1::SecurityProfile {
            profile_type: v1::security_profile::ProfileType::RuntimeDefault as i32,
            ..Default::default()
        };
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: name.to_owned(),
                attempt: 0,
            }),
            image: Some(spec(&self.image)),
            log_path: format!("{name}.log"),
            linux: Some(v1::LinuxContainerConfig {
                resources: Some(v1::LinuxContainerResources {
                    cpu_shares: 2,
                    ..Default::default()
                }),
                security_context: Some(v1::LinuxContainerSecurityContext {
                    seccomp: Some(profile),
                    namespace_options: Some(namespaces()),
                    ..Default::default()
                }),
            }),
            ..Default::default()
        };
        let request = requests::create(&pod.id, config, pod.config.clone());
        let answer = self.client.create_container(request).await;
        let container_id = answer
            .map_err(failed("CreateContainer"))?
            .into_inner()
            .container_id;
        let request = requests::start(&container_id);
        let answer = self.client.start_container(request).await;
        answer.map_err(failed("StartContainer"))?;
        Ok(container_id)
    }

    /// StopContainer without grace period, and RemoveContainer.
    #[allow(clippy::missing_errors_doc)]
    pub(crate) async fn remove(&mut self, container_id: String) -> Result<()> {
        let request = requests::stop(&container_id, 0);
        let answer = self.client.stop_container(request).await;
        answer.map_err(failed("StopContainer"))?;
        let request = requests::remove(&container_id);
        let answer = self.client.remove_container(request).await;
        answer.map_err(failed("RemoveContainer"))?;
        Ok(())
    }

    /// StopPodSandbox and RemovePodSandbox.
    #[allow(clippy::missing_errors_doc)]
    pub(crate) async fn end(&mut self, pod: Pod) -> Result<()> {
        let request = requests::stop_pod(&pod.id);
        let answer = self.client.stop_pod_sandbox(request).await;
        answer.map_err(failed("StopPodSandbox"))?;
        let request = requests::remove_pod(&pod.id);
        let answer = self.client.remove_pod_sandbox(request).await;
        answer.map_err(failed("RemovePodSandbox"))?;
        Ok(())
    }

    /// A pod with a container, which is replaced by a second one.
    #[allow(clippy::missing_errors_doc)]
    pub(crate) async fn live(&mut self, name: &str) -> Result<Life> {
        let begin = Instant::now();
        let pod = self.run(name).await?;
        let run = begin.elapsed();
        let begin = Instant::now();
        let first = self.start(&pod, "first").await?;
        let start = begin.elapsed();
        tokio::time::sleep(BEFORE_EXEC).await;
        let begin = Instant::now();
        self.exec_sync(&first, &TRUE).await?;
        let exec = begin.elapsed();
        let begin = Instant::now();
        self.remove(first).await?;
        let remove = begin.elapsed();
        self.start(&pod, "second").await?;
        let begin = Instant::now();
        self.end(pod).await?;
        Ok(Life {
            run,
            start,
            exec,
            remove,
            end: begin.elapsed(),
        })
    }

    /// ExecSync of a command that must succeed.
    #[allow(clippy::missing_errors_doc)]
    async fn exec_sync(&mut self, container_id: &str, command: &[&str]) -> Result<()> {
        let request = requests::exec_sync(container_id, words(command), 10);
        let answer = self.client.exec_sync(request).await;
        match answer.map_err(failed("ExecSync"))?.into_inner().exit_code {
            0 => Ok(()),
            code => Err(Error::Setup(format!("{command:?} ended with {code}"))),
        }
    }

    /// Exec of a command with input and output. Returns the URL of its session.
    #[allow(clippy::missing_errors_doc)]
    pub(crate) async fn exec(&mut self, container_id: &str, command: &[&str]) -> Result<String> {
        let request = requests::exec(container_id, words(command), "io");
        let answer = self.client.exec(request).await;
        Ok(answer.map_err(failed("Exec"))?.into_inner().url)
    }

    /// PortForward. Returns the URL of its session.
    #[allow(clippy::missing_errors_doc)]
    pub(crate) async fn port_forward(&mut self, pod: &Pod) -> Result<String> {
        let request = requests::forward(&pod.id);
        let answer = self.client.port_forward(request).await;
        Ok(answer.map_err(failed("PortForward"))?.into_inner().url)
    }

    /// The process of a container, which both runtimes report in a verbose ContainerStatus.
    #[allow(clippy::missing_errors_doc)]
    pub(crate) async fn pid(&mut self, container_id: &str) -> Result<u64> {
        let request = requests::status(container_id, true);
        let answer = self.client.container_status(request).await;
        let answer = answer.map_err(failed("ContainerStatus"))?.into_inner();
        let info = answer.info.get("info").map_or("", String::as_str);
        let info: serde_json::Value = serde_json::from_str(info).unwrap_or_default();
        let none = || Error::Setup(format!("no pid of container {container_id}"));
        info["pid"].as_u64().ok_or_else(none)
    }

    fn config(&self, name: &str) -> v1::PodSandboxConfig {
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.to_owned(),
                uid: format!("uid-of-{name}"),
                namespace: "benchmark".to_owned(),
                attempt: 0,
            }),
            hostname: name.to_owned(),
            log_directory: self.place.logs.join(name).display().to_string(),
            dns_config: Some(v1::DnsConfig {
                servers: vec!["10.96.0.10".to_owned()],
                searches: vec!["cluster.local".to_owned()],
                options: vec!["ndots:5".to_owned()],
            }),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/pod-{name}", self.place.cgroup),
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(namespaces()),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }
}

fn words(command: &[&str]) -> Vec<String> {
    command.iter().map(|&word| word.to_owned()).collect()
}

fn spec(image: &str) -> v1::ImageSpec {
    requests::image_spec(image)
}

fn namespaces() -> v1::NamespaceOption {
    v1::NamespaceOption {
        network: NamespaceMode::Pod as i32,
        pid: NamespaceMode::Container as i32,
        ipc: NamespaceMode::Pod as i32,
        ..Default::default()
    }
}

fn failed(method: &'static str) -> impl Fn(Status) -> Error {
    move |status| Error::Call {
        method: method.to_owned(),
        cause: format!("{:?}: {}", status.code(), status.message()),
    }
}
