//! What a pod's manifest says, and the CRI messages that a kubelet makes of it: labels, annotations, attempts.

use std::time::SystemTime;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::harness::busybox::NAME as IMAGE;
use crate::prelude::*;

/// The namespace of all pods.
pub(super) const NAMESPACE: &str = "shop";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Restart {
    Always,
    OnFailure,
    Never,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pull {
    Always,
    IfNotPresent,
    Never,
}

/// How a probe asks.
#[derive(Clone)]
pub(super) enum Asks {
    /// By ExecSync of this script.
    Exec(&'static str),
    /// Not by the runtime: nothing is seen of it but what follows when it fails, which it does after this time.
    HttpFailsAfter(Duration),
}

#[derive(Clone)]
pub(super) struct Probe {
    pub(super) asks: Asks,
    pub(super) period: Duration,
    /// Failures in a row that count.
    pub(super) threshold: u32,
    /// In seconds.
    pub(super) timeout: i64,
}

impl Probe {
    /// A script that is run every half second and may fail once.
    pub(super) fn exec(script: &'static str) -> Self {
        Self {
            asks: Asks::Exec(script),
            period: Duration::from_millis(500),
            threshold: 2,
            timeout: 1,
        }
    }
}

#[derive(Clone)]
pub(super) struct Container {
    pub(super) name: &'static str,
    pub(super) image: String,
    pub(super) pull: Pull,
    /// The last settings of its configuration.
    pub(super) edit: fn(&mut v1::ContainerConfig),
    pub(super) command: Vec<String>,
    pub(super) liveness: Option<Probe>,
    pub(super) readiness: Option<Probe>,
    /// The script of an exec startup probe, without a limit of failures.
    pub(super) startup: Option<&'static str>,
    /// Whether an init container goes on running beside those that follow: `restartPolicy: Always`.
    pub(super) is_sidecar: bool,
    pub(super) post_start: Option<&'static str>,
    pub(super) pre_stop: Option<&'static str>,
    /// A preStop hook that is no command.
    pub(super) pre_stop_sleep: Duration,
}

impl Container {
    /// One that runs this script.
    pub(super) fn shell(name: &'static str, script: &str) -> Self {
        Self {
            name,
            image: IMAGE.to_owned(),
            pull: Pull::IfNotPresent,
            edit: |_| (),
            command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            liveness: None,
            readiness: None,
            startup: None,
            is_sidecar: false,
            post_start: None,
            pre_stop: None,
            pre_stop_sleep: Duration::ZERO,
        }
    }

    /// One that runs until SIGTERM and then ends with 0.
    pub(super) fn idle(name: &'static str) -> Self {
        Self::shell(name, "trap 'exit 0' TERM; sleep 100000 & wait")
    }

    /// The same of another image.
    pub(super) fn of(name: &'static str, image: &str) -> Self {
        Self {
            image: image.to_owned(),
            ..Self::idle(name)
        }
    }

    /// With this at the end of its configuration.
    pub(super) fn with(mut self, edit: fn(&mut v1::ContainerConfig)) -> Self {
        self.edit = edit;
        self
    }

    pub(super) fn image_spec(&self) -> v1::ImageSpec {
        requests::image_spec(&self.image)
    }
}

/// A pod as its manifest says, and what the test lets happen around it.
#[derive(Clone)]
pub(super) struct PodSpec {
    pub(super) name: String,
    pub(super) handler: &'static str,
    pub(super) init: Vec<Container>,
    pub(super) containers: Vec<Container>,
    /// One that `kubectl debug` adds.
    pub(super) ephemeral: Option<Container>,
    pub(super) restart: Restart,
    /// `terminationGracePeriodSeconds`.
    pub(super) grace: i64,
    /// That of its deletion or eviction, if it is another one.
    pub(super) last_grace: Option<i64>,
    pub(super) host_network: bool,
    /// Whether the kubelet writes down the names of its containers, as it does by default from 1.33 on.
    pub(super) is_written_down: bool,
    /// How long ago the kubelet heard of it.
    pub(super) seen_ago: Duration,
    /// Of the first sandbox and of its containers, other than 0 after a restart of the node.
    pub(super) attempts: (u32, u32),
    /// In place of the kubelet's four minutes.
    pub(super) sandbox_deadline: Duration,
    /// The kubelet waits this long after the sandbox was made.
    pub(super) pause: Duration,
    /// The kubelet waits this long before its garbage collection.
    pub(super) clears_up_after: Duration,
    /// `serializeImagePulls`.
    pub(super) serial_pulls: bool,
    /// A directory of the node, and where the containers have it.
    pub(super) volume: Option<(PathBuf, &'static str)>,
}

impl PodSpec {
    pub(super) fn new(name: &str, containers: Vec<Container>) -> Self {
        Self {
            name: name.to_owned(),
            handler: "",
            init: Vec::new(),
            containers,
            ephemeral: None,
            restart: Restart::Always,
            grace: 30,
            last_grace: None,
            host_network: false,
            is_written_down: false,
            seen_ago: Duration::from_millis(60),
            attempts: (0, 0),
            sandbox_deadline: Duration::from_secs(240),
            pause: Duration::ZERO,
            clears_up_after: Duration::ZERO,
            // Cases would wait for each other's pulls.
            serial_pulls: false,
            volume: None,
        }
    }

    pub(super) fn uid(&self) -> String {
        format!("0b5e2f6c-uid-of-{}", self.name)
    }

    fn labels(&self) -> [(&'static str, String); 3] {
        [
            ("io.kubernetes.pod.name", self.name.clone()),
            ("io.kubernetes.pod.namespace", NAMESPACE.to_owned()),
            ("io.kubernetes.pod.uid", self.uid()),
        ]
    }

    pub(super) fn sandbox(
        &self,
        attempt: u32,
        cgroup: &str,
        seen: SystemTime,
        logs: &Path,
    ) -> v1::PodSandboxConfig {
        let seen = OffsetDateTime::from(seen).format(&Rfc3339).expect("a time");
        let annotations = [
            ("kubernetes.io/config.seen".to_owned(), seen),
            ("kubernetes.io/config.source".to_owned(), "api".to_owned()),
        ];
        let network = match self.host_network {
            true => v1::NamespaceMode::Node,
            false => v1::NamespaceMode::Pod,
        };
        let labels = self.labels().map(|(key, value)| (key.to_owned(), value));
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: self.name.clone(),
                uid: self.uid(),
                namespace: NAMESPACE.to_owned(),
                attempt,
            }),
            hostname: match self.host_network {
                true => String::new(),
                false => self.name.chars().take(60).collect(),
            },
            log_directory: logs.display().to_string(),
            labels: labels.into(),
            annotations: annotations.into(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: cgroup.to_owned(),
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(v1::NamespaceOption {
                        network: network.into(),
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

    pub(super) fn container(&self, container: &Container, attempt: u32) -> v1::ContainerConfig {
        let own = [("io.kubernetes.container.name", container.name.to_owned())];
        let labels = self.labels().into_iter().chain(own);
        let mut annotations = vec![
            ("io.kubernetes.container.hash", "5f1c9a37".to_owned()),
            ("io.kubernetes.container.restartCount", attempt.to_string()),
            (
                "io.kubernetes.container.terminationMessagePath",
                "/dev/termination-log".to_owned(),
            ),
            (
                "io.kubernetes.pod.terminationGracePeriod",
                self.grace.to_string(),
            ),
        ];
        if container.pre_stop.is_some() {
            let handler = r#"{"exec":{"command":["/bin/sh"]}}"#.to_owned();
            annotations.push(("io.kubernetes.container.preStopHandler", handler));
        }
        let network = match self.host_network {
            true => v1::NamespaceMode::Node,
            false => v1::NamespaceMode::Pod,
        };
        let mut config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: container.name.to_owned(),
                attempt,
            }),
            image: Some(container.image_spec()),
            command: container.command.clone(),
            log_path: format!("{}/{attempt}.log", container.name),
            labels: labels.map(|(key, value)| (key.to_owned(), value)).collect(),
            annotations: annotations
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
            linux: Some(v1::LinuxContainerConfig {
                resources: Some(v1::LinuxContainerResources::default()),
                security_context: Some(v1::LinuxContainerSecurityContext {
                    namespace_options: Some(v1::NamespaceOption {
                        network: network.into(),
                        pid: v1::NamespaceMode::Container.into(),
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
            }),
            ..Default::default()
        };
        if let Some((host, inside)) = &self.volume {
            config.mounts.push(v1::Mount {
                host_path: host.display().to_string(),
                container_path: (*inside).to_owned(),
                ..Default::default()
            });
        }
        (container.edit)(&mut config);
        config
    }
}

/// The part of a configuration that faults are put into.
pub(super) fn linux(config: &mut v1::ContainerConfig) -> &mut v1::LinuxContainerConfig {
    config.linux.get_or_insert_default()
}

pub(super) fn security(config: &mut v1::ContainerConfig) -> &mut v1::LinuxContainerSecurityContext {
    linux(config).security_context.get_or_insert_default()
}
