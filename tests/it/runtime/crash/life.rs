//! The lifecycle of a pod with one container, verb by verb.

use super::node::{Node, image_spec};
use crate::harness::kubelet::LIMIT;
use crate::prelude::*;

/// A CRI verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Run,
    Create,
    Start,
    Exec,
    StopContainer,
    RemoveContainer,
    StopPod,
    RemovePod,
}

/// Printed by a container's script once it handles SIGTERM: without a handler, the kernel does not deliver the signal to
/// the init of a PID namespace.
const UP: &str = "up";

/// A pod and its progress.
#[derive(Clone)]
pub(super) struct Life {
    pub(super) pod: v1::PodSandboxConfig,
    pub(super) config: v1::ContainerConfig,
    pub(super) sandbox: String,
    pub(super) container: String,
    /// The length of the log before its container was created.
    log: usize,
}

impl Life {
    /// A pod whose container exits with 3 on SIGTERM. With `shared`, its containers share a PID namespace.
    pub(super) fn new(node: &Node, name: &str, shared: bool) -> Self {
        let pid = match shared {
            true => v1::NamespaceMode::Pod,
            false => v1::NamespaceMode::Container,
        };
        let options = v1::NamespaceOption {
            pid: pid as i32,
            ..Default::default()
        };
        let pod = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.to_owned(),
                uid: format!("uid-{name}"),
                namespace: "crash".to_owned(),
                attempt: 0,
            }),
            hostname: name.to_owned(),
            log_directory: node.path("logs").display().to_string(),
            labels: (0..8)
                .map(|n| (format!("label{n}"), n.to_string()))
                .collect(),
            port_mappings: match name {
                "witness" => Vec::new(),
                _ => vec![v1::PortMapping {
                    container_port: 80,
                    host_port: 8080,
                    ..Default::default()
                }],
            },
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/{name}", node.cgroup()),
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(options.clone()),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: "app".to_owned(),
                attempt: 0,
            }),
            image: Some(image_spec()),
            command: vec!["/bin/sh".into(), "-c".into()],
            args: vec![asked_to_end()],
            log_path: format!("{name}.log"),
            linux: Some(v1::LinuxContainerConfig {
                security_context: Some(v1::LinuxContainerSecurityContext {
                    namespace_options: Some(options),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        Self {
            pod,
            config,
            sandbox: String::new(),
            container: String::new(),
            log: 0,
        }
    }

    /// Sets the container's script.
    pub(super) fn doing(mut self, script: &str) -> Self {
        self.config.args = vec![script.to_owned()];
        self
    }

    /// Makes the container write a line periodically.
    pub(super) fn writing(self) -> Self {
        self.doing("while :; do echo here; sleep 0.05; done")
    }

    /// Switches to its next container, which exits with 3 on SIGTERM.
    pub(super) fn next(&mut self) {
        self.config.args = vec![asked_to_end()];
        if let Some(metadata) = &mut self.config.metadata {
            metadata.attempt += 1;
        }
    }

    pub(super) async fn ask(&mut self, node: &Node, verb: Verb) -> Result<(), Status> {
        let mut client = node.client();
        match verb {
            Verb::Run => {
                let request = requests::run_pod(self.pod.clone(), "");
                let answer = client.run_pod_sandbox(request).await?;
                self.sandbox = answer.into_inner().pod_sandbox_id;
            }
            Verb::Create => {
                self.log = self.logged(node).len();
                let request =
                    requests::create(&self.sandbox, self.config.clone(), self.pod.clone());
                let answer = client.create_container(request).await?;
                self.container = answer.into_inner().container_id;
            }
            Verb::Start => {
                let request = requests::start(&self.container);
                client.start_container(request).await?;
            }
            Verb::Exec => {
                let request = requests::exec_sync(
                    &self.container,
                    ["sh", "-c", "echo hi; sleep 0.1"]
                        .map(str::to_owned)
                        .to_vec(),
                    LIMIT,
                );
                let answer = client.exec_sync(request).await?.into_inner();
                assert_eq!((answer.exit_code, &answer.stdout[..]), (0, &b"hi\n"[..]));
            }
            Verb::StopContainer => {
                self.is_up(node).await;
                let request = requests::stop(&self.container, LIMIT);
                client.stop_container(request).await?;
                let status = node.container(&self.container).await;
                let (status, _) = status.ok_or_else(|| Status::unavailable("no status"))?;
                assert_eq!((status.exit_code, &status.reason[..]), (3, "Error"));
                assert!(status.finished_at >= status.started_at && status.started_at > 0);
            }
            Verb::RemoveContainer => {
                let request = requests::remove(&self.container);
                client.remove_container(request).await?;
            }
            Verb::StopPod => {
                let request = requests::stop_pod(&self.sandbox);
                client.stop_pod_sandbox(request).await?;
            }
            Verb::RemovePod => {
                let request = requests::remove_pod(&self.sandbox);
                client.remove_pod_sandbox(request).await?;
            }
        }
        Ok(())
    }

    /// The output of all containers of this name.
    fn logged(&self, node: &Node) -> Vec<u8> {
        let path = node.path("logs").join(&self.config.log_path);
        fs::read(path).unwrap_or_default()
    }

    /// Waits until its started container handles SIGTERM.
    async fn is_up(&self, node: &Node) {
        until("a container that handles SIGTERM", || async {
            let log = self.logged(node);
            let text = String::from_utf8_lossy(log.get(self.log..)?).into_owned();
            let up = format!("stdout F {UP}");
            text.lines().any(|line| line.ends_with(&up)).then_some(())
        })
        .await;
    }

    /// The state of the sandbox; `None` if it does not exist.
    pub(super) async fn sandbox_state(&self, node: &Node) -> Option<i32> {
        let request = requests::pod_status(&self.sandbox, false);
        let answer = node.client().pod_sandbox_status(request).await.ok()?;
        Some(answer.into_inner().status?.state)
    }
}

/// A script that exits with 3 on SIGTERM.
fn asked_to_end() -> String {
    format!("trap 'exit 3' TERM; echo {UP}; sleep 1000 & wait")
}
