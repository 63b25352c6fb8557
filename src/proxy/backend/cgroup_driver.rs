//! The cgroup driver of a runtime that cannot be asked for it (`RuntimeConfig`): from the cgroups of the kubelet's pods, else from the
//! configuration that containerd includes in a verbose Status.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use prost::Message;
use serde_json::Value;
use tokio::time::timeout;

use crate::cri::v1;
use crate::grpc::status::Status;
use crate::grpc::{CriService, unary};

/// Timeout of each of criscope's own calls; the kubelet waits two minutes for its answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of pods that are looked at: some may be made by other programs, outside the kubelet's cgroups.
const MAX_PODS_ASKED: usize = 5;

/// Name of the kubelet's cgroup below its root, which its cgroup driver spells.
const KUBEPODS_SLICE: &str = "/kubepods.slice";
const KUBEPODS_DIRECTORY: &str = "/kubepods";

/// The cgroup driver. The message's own type cannot be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DriverName {
    Systemd,
    Cgroupfs,
}

impl From<DriverName> for v1::CgroupDriver {
    fn from(name: DriverName) -> Self {
        match name {
            DriverName::Systemd => Self::Systemd,
            DriverName::Cgroupfs => Self::Cgroupfs,
        }
    }
}

/// A driver and how it was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundDriver {
    /// The driver.
    pub(super) driver: DriverName,
    source: DriverSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DriverSource {
    /// Another driver would make other cgroups than those of running pods.
    RunningPod,
    Configuration,
}

impl fmt::Display for FoundDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driver = match self.driver {
            DriverName::Systemd => "systemd",
            DriverName::Cgroupfs => "cgroupfs",
        };
        let source = match self.source {
            DriverSource::RunningPod => "the cgroups of its pods",
            DriverSource::Configuration => "its configuration",
        };
        write!(f, "{driver} (from {source})")
    }
}

impl FoundDriver {
    /// Asks the runtime. `None` if nothing tells the driver: a guess would move pods to other cgroups.
    pub(super) async fn find(mut runtime: CriService, proc: &Path) -> Option<Self> {
        if let Some(driver) = of_pods(&mut runtime, proc).await {
            return Some(Self {
                driver,
                source: DriverSource::RunningPod,
            });
        }
        let request = v1::StatusRequest { verbose: true };
        let answer: v1::StatusResponse = ask(&mut runtime, "Status", &request).await.ok()?;
        let driver = of_containerd(answer.info.get("config")?)?;
        Some(Self {
            driver,
            source: DriverSource::Configuration,
        })
    }
}

async fn ask<Q, A>(runtime: &mut CriService, method: &str, request: &Q) -> Result<A, Status>
where
    Q: Message,
    A: Message + Default,
{
    let path = format!("/runtime.v1.RuntimeService/{method}");
    let answer = timeout(ASK_TIMEOUT, unary::call(runtime, &path, request)).await;
    answer.unwrap_or_else(|_| Err(Status::unavailable(format!("{method} was not answered"))))
}

/// The driver that the cgroups of the kubelet's running pods show.
async fn of_pods(runtime: &mut CriService, proc: &Path) -> Option<DriverName> {
    let ready = v1::PodSandboxStateValue {
        state: v1::PodSandboxState::SandboxReady.into(),
    };
    let filter = v1::PodSandboxFilter {
        state: Some(ready),
        ..v1::PodSandboxFilter::default()
    };
    let request = v1::ListPodSandboxRequest {
        filter: Some(filter),
    };
    let pods: v1::ListPodSandboxResponse = ask(runtime, "ListPodSandbox", &request).await.ok()?;
    for pod in pods.items.into_iter().take(MAX_PODS_ASKED) {
        let request = v1::PodSandboxStatusRequest {
            pod_sandbox_id: pod.id,
            verbose: true,
        };
        let answer = ask(runtime, "PodSandboxStatus", &request).await;
        let answer: Option<v1::PodSandboxStatusResponse> = answer.ok();
        let pid = answer.and_then(|answer| process(answer.info.get("info")?));
        let cgroups =
            pid.and_then(|pid| fs::read_to_string(proc.join(pid.to_string()).join("cgroup")).ok());
        if let Some(driver) = cgroups.and_then(|text| of_cgroups(&text)) {
            return Some(driver);
        }
    }
    None
}

/// The first process of a sandbox, in the verbose status of containerd and CRI-O.
fn process(info: &str) -> Option<u64> {
    let info: Value = serde_json::from_str(info).ok()?;
    info["pid"].as_u64().filter(|pid| *pid > 0)
}

/// The driver by the content of `/proc/PID/cgroup`; `None` outside the kubelet's cgroups.
fn of_cgroups(text: &str) -> Option<DriverName> {
    if text.contains(KUBEPODS_SLICE) {
        return Some(DriverName::Systemd);
    }
    text.contains(KUBEPODS_DIRECTORY)
        .then_some(DriverName::Cgroupfs)
}

/// `SystemdCgroup` of the default handler in containerd's configuration; `None` for a handler other than runc's, and for other runtimes.
fn of_containerd(config: &str) -> Option<DriverName> {
    let config: Value = serde_json::from_str(config).ok()?;
    let containerd = &config["containerd"];
    let name = containerd["defaultRuntimeName"].as_str()?;
    let handler = containerd["runtimes"].get(name)?;
    let kind = handler["runtimeType"].as_str()?;
    if !kind.starts_with("io.containerd.runc.") {
        return None;
    }
    let set = &handler["options"]["SystemdCgroup"];
    // The name that containerd 1.2 had for all handlers.
    let is_systemd = set.as_bool().or(config["systemdCgroup"].as_bool());
    Some(match is_systemd {
        Some(true) => DriverName::Systemd,
        _ => DriverName::Cgroupfs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containerds_default_handler_decides() {
        let config = |options: &str, more: &str| {
            let text = format!(
                r#"{{"containerd":{{"defaultRuntimeName":"runc","runtimes":{{
                    "runc":{{"runtimeType":"io.containerd.runc.v2","options":{options}}},
                    "kata":{{"runtimeType":"io.containerd.kata.v2","options":{{"SystemdCgroup":true}}}}}}}}{more}}}"#
            );
            of_containerd(&text)
        };
        assert_eq!(
            config(r#"{"SystemdCgroup":true}"#, ""),
            Some(DriverName::Systemd)
        );
        assert_eq!(
            config(r#"{"SystemdCgroup":false}"#, r#","systemdCgroup":true"#),
            Some(DriverName::Cgroupfs)
        );
        assert_eq!(
            config("{}", r#","systemdCgroup":true"#),
            Some(DriverName::Systemd)
        );
        assert_eq!(config("null", ""), Some(DriverName::Cgroupfs));
        let kata = r#"{"containerd":{"defaultRuntimeName":"kata","runtimes":{"kata":{"runtimeType":"io.containerd.kata.v2"}}}}"#;
        for unknown in [kata, "{}", "no json", r#"{"sandboxImage":"pause"}"#] {
            assert_eq!(of_containerd(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn only_the_kubelets_cgroups_decide() {
        let slice = "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-2.scope\n";
        assert_eq!(of_cgroups(slice), Some(DriverName::Systemd));
        let directory =
            "4:memory:/kubepods/burstable/pod1/2\n1:name=systemd:/kubepods/burstable/pod1/2\n";
        assert_eq!(of_cgroups(directory), Some(DriverName::Cgroupfs));
        assert_eq!(of_cgroups("0::/system.slice/containerd.service\n"), None);
        assert_eq!(process(r#"{"pid":42,"processStatus":"running"}"#), Some(42));
        assert_eq!(process(r#"{"pid":0}"#), None);
    }
}
