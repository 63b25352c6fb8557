//! `kubectl criscope capture`: a pod on the node makes the capture, the plugin reads it from the pod's log and removes the pod.
//!
//! The capture is made over root's socket, which the agent must not reach. A pod that the user creates has the user's rights:
//! users who may create privileged pods are root on the nodes anyway.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, LogParams, PostParams};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::cluster::{Cluster, NodeAgent, said};
use crate::capture_log::read;

/// Time limit of the pod, in seconds.
const POD_TIME_LIMIT_SECS: u64 = 120;

/// Time between two reads of the pod.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The reason why there is no capture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The node of the pod is not known.
    #[error("the API server does not have that pod; name its node with --node")]
    Deleted,
    /// The agent's pod does not name its image.
    #[error("pod {0} has no container, whose image a capture needs")]
    NoImage(String),
    /// The pod cannot be created or read.
    #[error("cannot {0} a pod for the capture in namespace {1}: {2}")]
    Pod(&'static str, String, String),
    /// The pod did not end.
    #[error("pod {0} did not end within {POD_TIME_LIMIT_SECS} s: {1}")]
    Timeout(String, String),
    /// The pod failed.
    #[error("the capture on node {0} failed: {1}")]
    Failed(String, String),
    /// The pod has ended, but its log is incomplete.
    #[error(
        "the log of pod {0} does not have all of the capture: the kubelet may have rotated it (containerLogMaxSize)"
    )]
    Cut(String),
    /// The user pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The file cannot be written.
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
}

impl CaptureError {
    /// A recommendation for the user.
    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Pod("create", ..) => Some(
                "captures need the Role criscope-capturer in that namespace, which is as good as root on the nodes: see deploy/kubernetes",
            ),
            Self::Cut(_) => Some("--since 30m or --pod NAMESPACE/POD makes it smaller"),
            _ => None,
        }
    }
}

/// A capture on the node of an agent.
#[derive(Debug)]
pub(super) struct CaptureRequest<'a> {
    pub(super) agent: &'a NodeAgent,
    /// The namespace of the pod that makes the capture.
    pub(super) namespace: String,
    /// Arguments of `criscope capture`.
    pub(super) arguments: Vec<String>,
}

impl CaptureRequest<'_> {
    /// Makes the capture and writes it to a file. Returns the file, and messages of `criscope capture`.
    ///
    /// # Errors
    /// If a step fails. The pod is deleted in any case.
    pub(super) async fn run(
        &self,
        cluster: &Cluster,
        file: Option<&Path>,
    ) -> Result<(PathBuf, Vec<String>), CaptureError> {
        let path = file.map_or_else(|| default_name(&self.agent.node), Path::to_owned);
        let mut options = OpenOptions::new();
        // The file is for its owner only, and never replaces another one.
        options.write(true).create_new(true);
        for_owner_only(&mut options);
        let opened = options.open(&path);
        let mut out = opened.map_err(|error| CaptureError::File(path.clone(), error))?;
        let made = self.fetch_from_pod(cluster).await;
        let written = match &made {
            Ok((capture, _)) => out
                .write_all(capture)
                .map_err(|error| CaptureError::File(path.clone(), error)),
            Err(_) => Ok(()),
        };
        if made.is_err() || written.is_err() {
            // The first error is reported.
            let _ = fs::remove_file(&path);
        }
        let (_, messages) = made?;
        written?;
        Ok((path, messages))
    }

    fn pod_error(&self, verb: &'static str, error: &kube::Error) -> CaptureError {
        CaptureError::Pod(verb, self.namespace.clone(), said(error))
    }

    /// Fetches the capture that a pod printed, and its messages.
    async fn fetch_from_pod(
        &self,
        cluster: &Cluster,
    ) -> Result<(Vec<u8>, Vec<String>), CaptureError> {
        let pods = Api::<Pod>::namespaced(cluster.client(), &self.namespace);
        let (pod, defaults) = (self.pod()?, PostParams::default());
        let created = pods.create(&defaults, &pod).await;
        let created = created.map_err(|error| self.pod_error("create", &error))?;
        let name = created.metadata.name.unwrap_or_default();
        let made = async {
            let succeeded = self.wait_for_end(&pods, &name).await?;
            let log = pods.logs(&name, &LogParams::default()).await;
            let log = log.map_err(|error| self.pod_error("read the log of", &error))?;
            Ok((succeeded, log))
        };
        let made = tokio::select! {
            made = made => made,
            _ = tokio::signal::ctrl_c() => Err(CaptureError::Interrupted),
        };
        let now = DeleteParams::default().grace_period(0);
        let deleted = pods.delete(&name, &now).await;
        let deleted = deleted.map_err(|error| self.pod_error("delete", &error));
        let (succeeded, log) = made?;
        let (capture, messages) = read(&log);
        if !succeeded {
            let text = messages.join("; ");
            return Err(CaptureError::Failed(self.agent.node.clone(), text));
        }
        let capture = capture.ok_or(CaptureError::Cut(name))?;
        deleted?;
        let messages = messages.into_iter().map(str::to_owned).collect();
        Ok((capture, messages))
    }

    /// The pod. Like the installer's pod, it enters the mount namespace of the node and runs the criscope there.
    fn pod(&self) -> Result<Pod, CaptureError> {
        let agent = self.agent;
        let image = agent.image.as_deref();
        let image = image.ok_or_else(|| CaptureError::NoImage(agent.pod.clone()))?;
        let secrets = agent.pull_secrets.iter();
        let secrets: Vec<_> = secrets.map(|name| json!({"name": name})).collect();
        let mut command = vec!["/usr/bin/criscope-agent", "capture", "--"];
        command.extend(self.arguments.iter().map(String::as_str));
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": "criscope-capture-",
                "labels": {"app.kubernetes.io/name": "criscope", "app.kubernetes.io/component": "capture"},
            },
            "spec": {
                "nodeName": agent.node,
                "hostPID": true,
                "restartPolicy": "Never",
                "activeDeadlineSeconds": POD_TIME_LIMIT_SECS,
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "tolerations": [{"operator": "Exists"}],
                "imagePullSecrets": secrets,
                "containers": [{
                    "name": "capture",
                    "image": image,
                    "command": command,
                    "securityContext": {"privileged": true, "runAsUser": 0},
                }],
            },
        });
        serde_json::from_value(pod)
            .map_err(|error| CaptureError::Pod("describe", agent.node.clone(), error.to_string()))
    }

    /// Waits until the pod has ended. Returns whether it succeeded.
    async fn wait_for_end(&self, pods: &Api<Pod>, name: &str) -> Result<bool, CaptureError> {
        let end = Instant::now() + Duration::from_secs(POD_TIME_LIMIT_SECS);
        loop {
            let pod = pods.get(name).await;
            let pod = pod.map_err(|error| self.pod_error("get", &error))?;
            let status = pod.status.unwrap_or_default();
            match status.phase.as_deref() {
                Some("Succeeded") => return Ok(true),
                Some("Failed") => return Ok(false),
                phase if Instant::now() >= end => {
                    let containers = status.container_statuses.unwrap_or_default();
                    let waiting = containers
                        .into_iter()
                        .find_map(|container| container.state?.waiting);
                    let reason = waiting.and_then(|waiting| waiting.message.or(waiting.reason));
                    let reason =
                        reason.unwrap_or_else(|| format!("it is {}", phase.unwrap_or("Pending")));
                    return Err(CaptureError::Timeout(name.to_owned(), reason));
                }
                _ => sleep(POLL_INTERVAL).await,
            }
        }
    }
}

/// Files of other systems than Unix have the permissions of their directory.
fn for_owner_only(options: &mut OpenOptions) {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    #[cfg(not(unix))]
    let _ = options;
}

fn default_name(node: &str) -> PathBuf {
    let now = Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    format!("criscope-{node}-{now}.tar.gz").into()
}
