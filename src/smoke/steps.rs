//! The steps that check more than the success of a call.

use std::path::Path;

use serde_json::Value;
use tonic::Code;

use super::cri::CanaryClient;
use super::logs::{self, JoinedLogLine, LogStreamName};
use super::pod;
use super::timeline::StepError;
use super::{LOG_PATIENCE, RuntimeInfo, SmokeOptions};
use crate::cri::v1::{
    CgroupDriver, ContainerState, ContainerStatusRequest, ExecSyncRequest, ImageSpec,
    ImageStatusRequest, PodSandboxState, PodSandboxStatusRequest, RuntimeCondition,
    RuntimeConfigRequest, StatusRequest, VersionRequest,
};
use crate::units;

/// The result of a step, and its summary.
type StepResult<T> = std::result::Result<(T, String), StepError>;

/// Timeout of the ExecSync command, in seconds.
const EXEC_TIMEOUT: i64 = 10;

/// Always exists under systemd, so that no slice of our own is created and left behind.
const SYSTEMD_PARENT: &str = "system.slice";

pub(super) async fn version(cri: &CanaryClient) -> StepResult<RuntimeInfo> {
    let request = cri.request(VersionRequest {
        // The kubelet's value: the version of its own API.
        version: "0.1.0".to_owned(),
    });
    let answer = cri.runtime().version(request).await?.into_inner();
    let info = RuntimeInfo {
        name: answer.runtime_name,
        version: answer.runtime_version,
        api_version: answer.runtime_api_version,
    };
    let word = format!("{} {}, CRI {}", info.name, info.version, info.api_version);
    Ok((info, word))
}

pub(super) async fn status(cri: &CanaryClient, host_network: bool) -> StepResult<()> {
    let request = cri.request(StatusRequest { verbose: false });
    let answer = cri.runtime().status(request).await?.into_inner();
    let conditions = answer.status.unwrap_or_default().conditions;
    condition(&conditions, "RuntimeReady")
        .map_err(|reason| StepError::check(format!("the runtime is not ready: {reason}")))?;
    match condition(&conditions, "NetworkReady") {
        Ok(()) => Ok(((), "runtime and network are ready".to_owned())),
        Err(reason) if host_network => {
            let word = format!("runtime is ready; network is not, but is not needed: {reason}");
            Ok(((), word))
        }
        Err(reason) => Err(StepError::hinted(
            format!("the network is not ready: {reason}"),
            "pods get their network from CNI: it needs a configuration in the runtime's conf_dir (/etc/cni/net.d) and the plugins; --host-network needs neither",
        )),
    }
}

/// Returns whether a condition holds, or why not.
fn condition(conditions: &[RuntimeCondition], name: &str) -> std::result::Result<(), String> {
    let Some(found) = conditions.iter().find(|condition| condition.r#type == name) else {
        return Err(format!("its status has no {name}"));
    };
    match (found.status, found.reason.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => Err(format!("{name} is false")),
        (false, false) => Err(format!("{}: {}", found.reason, found.message)),
    }
}

/// The parent cgroup: the option, or one that fits the runtime's cgroup driver; and whether the driver is systemd.
///
/// containerd with the systemd driver refuses a pod without a slice; the kubelet would name one.
pub(super) async fn cgroup_parent(
    cri: &CanaryClient,
    options: &SmokeOptions,
) -> StepResult<(String, bool)> {
    let request = cri.request(RuntimeConfigRequest {});
    let (systemd, word) = match cri.runtime().runtime_config(request).await {
        Ok(answer) => {
            let linux = answer.into_inner().linux;
            let systemd = linux.is_some_and(|linux| linux.cgroup_driver() == CgroupDriver::Systemd);
            (systemd, "")
        }
        // Kubernetes before 1.28 lacks this method.
        Err(status) if status.code() == Code::Unimplemented => {
            let request = cri.request(StatusRequest { verbose: true });
            let answer = cri.runtime().status(request).await?.into_inner();
            let config = answer.info.get("config").map(String::as_str);
            let handler = options.handler.as_deref();
            let systemd = config.is_some_and(|config| containerd_uses_systemd(config, handler));
            (
                systemd,
                " (the runtime has no RuntimeConfig: from its verbose Status)",
            )
        }
        Err(status) => return Err(status.into()),
    };
    let driver = if systemd { "systemd" } else { "cgroupfs" };
    let parent = match &options.cgroup_parent {
        Some(parent) => parent.clone(),
        None if systemd => SYSTEMD_PARENT.to_owned(),
        None => String::new(),
    };
    Ok(((parent, systemd), format!("cgroup driver {driver}{word}")))
}

/// Parses `SystemdCgroup` of a runtime handler in the configuration that containerd includes in a verbose Status.
fn containerd_uses_systemd(config: &str, handler: Option<&str>) -> bool {
    let Ok(config) = serde_json::from_str::<Value>(config) else {
        return false;
    };
    let containerd = &config["containerd"];
    let default = containerd["defaultRuntimeName"].as_str();
    let Some(handler) = handler.or(default) else {
        return false;
    };
    containerd["runtimes"][handler]["options"]["SystemdCgroup"] == Value::Bool(true)
}

/// The id of an image that the runtime has already.
pub(super) async fn image_status(
    cri: &CanaryClient,
    reference: &str,
) -> StepResult<Option<String>> {
    let request = cri.request(ImageStatusRequest {
        image: Some(ImageSpec {
            image: reference.to_owned(),
            ..Default::default()
        }),
        verbose: false,
    });
    let answer = cri.images().image_status(request).await?.into_inner();
    Ok(match answer.image {
        Some(image) => {
            let word = format!("{reference} is present, {}", units::bytes(image.size));
            (Some(image.id), word)
        }
        None => (None, format!("{reference} is not present yet")),
    })
}

pub(super) async fn exec(cri: &CanaryClient, container: &str, run: &str) -> StepResult<()> {
    let request = cri.request(ExecSyncRequest {
        container_id: container.to_owned(),
        cmd: pod::exec_command(run),
        timeout: EXEC_TIMEOUT,
    });
    let answer = cri.runtime().exec_sync(request).await?.into_inner();
    if answer.exit_code != pod::EXEC_EXIT_CODE {
        return Err(StepError::check(format!(
            "exit code {}, but the command exits with {}",
            answer.exit_code,
            pod::EXEC_EXIT_CODE
        )));
    }
    for (stream, got) in [("out", &answer.stdout), ("err", &answer.stderr)] {
        if got[..] != *format!("{stream} {run}\n").as_bytes() {
            return Err(StepError::check(format!(
                "std{stream} of the command came back changed: {} bytes",
                got.len()
            )));
        }
    }
    Ok(((), "stdout, stderr and exit code as expected".to_owned()))
}

pub(super) async fn read_log(logs: &Path, run: &str) -> StepResult<()> {
    let streams = [
        (LogStreamName::Stdout, "out"),
        (LogStreamName::Stderr, "err"),
    ];
    let wanted = streams.map(|(stream, word)| JoinedLogLine {
        stream,
        message: format!("{word} {run}"),
    });
    let lines = logs::wait_for(&logs.join(pod::CONTAINER_LOG), &wanted, LOG_PATIENCE)
        .await
        .map_err(|error| match &error {
            logs::LogReadError::Missing { .. } => StepError::hinted(
                error.to_string(),
                "the runtime may have another view of the file system, such as a private /tmp; see --log-dir",
            ),
            logs::LogReadError::Read { .. } | logs::LogReadError::Format { .. } => {
                StepError::check(error.to_string())
            }
        })?;
    Ok(((), format!("{lines} lines, both streams")))
}

pub(super) async fn container_status(cri: &CanaryClient, container: &str) -> StepResult<()> {
    let request = cri.request(ContainerStatusRequest {
        container_id: container.to_owned(),
        verbose: false,
    });
    let answer = cri.runtime().container_status(request).await?.into_inner();
    let status = answer.status.unwrap_or_default();
    if status.state() != ContainerState::ContainerRunning {
        return Err(StepError::check(format!(
            "the container is {}, exit code {}: {} {}",
            status.state().as_str_name(),
            status.exit_code,
            status.reason,
            status.message
        )));
    }
    Ok(((), "running".to_owned()))
}

pub(super) async fn sandbox_status(
    cri: &CanaryClient,
    sandbox: &str,
    host_network: bool,
) -> StepResult<()> {
    let request = cri.request(PodSandboxStatusRequest {
        pod_sandbox_id: sandbox.to_owned(),
        verbose: false,
    });
    let answer = cri
        .runtime()
        .pod_sandbox_status(request)
        .await?
        .into_inner();
    let status = answer.status.unwrap_or_default();
    if status.state() != PodSandboxState::SandboxReady {
        return Err(StepError::check(format!(
            "the sandbox is {}",
            status.state().as_str_name()
        )));
    }
    let ip = status.network.map(|network| network.ip).unwrap_or_default();
    match (host_network, ip.is_empty()) {
        (true, _) => Ok(((), "ready, host network".to_owned())),
        (false, true) => Err(StepError::check("the sandbox has no address")),
        (false, false) => Ok(((), format!("ready, {ip}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_is_read_from_the_handler_in_use() {
        let config = r#"{"containerd":{"defaultRuntimeName":"runc","runtimes":{
            "runc":{"options":{"SystemdCgroup":true}}, "crun":{"options":{"SystemdCgroup":false}}, "kata":{}}}}"#;
        assert!(containerd_uses_systemd(config, None));
        assert!(containerd_uses_systemd(config, Some("runc")));
        for other in ["crun", "kata", "absent"] {
            assert!(!containerd_uses_systemd(config, Some(other)), "{other}");
        }
        assert!(!containerd_uses_systemd("no json", None));
    }

    #[test]
    fn conditions_that_do_not_hold_have_a_reason() {
        let conditions = [
            RuntimeCondition {
                r#type: "RuntimeReady".into(),
                status: true,
                ..Default::default()
            },
            RuntimeCondition {
                r#type: "NetworkReady".into(),
                status: false,
                reason: "NetworkPluginNotReady".into(),
                message: "cni plugin not initialized".into(),
            },
        ];
        assert_eq!(condition(&conditions, "RuntimeReady"), Ok(()));
        assert_eq!(
            condition(&conditions, "NetworkReady"),
            Err("NetworkPluginNotReady: cni plugin not initialized".into())
        );
        assert!(condition(&[], "RuntimeReady").is_err());
    }
}
