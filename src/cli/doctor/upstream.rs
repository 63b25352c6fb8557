//! Checks the runtimes of `kind = "upstream"`.

use std::path::Path;

use tonic::Code;

use super::super::client::{CriCallError, CriSocketClient};
use super::super::output::{FindingLevel, ReportFinding};
use super::CHECK_TIMEOUT;
use super::process::NodeFiles;
use super::socket::{SocketState, probe};
use crate::cri::Method;
use crate::cri::method::ApiVersion;
use crate::cri::v1::{
    RuntimeCondition, RuntimeConfigRequest, RuntimeConfigResponse, StatusRequest, StatusResponse,
    VersionRequest, VersionResponse,
};

pub(super) async fn check(
    name: &str,
    endpoint: &Path,
    answers_runtime_config: bool,
    node: &NodeFiles,
) -> Vec<ReportFinding> {
    let mut findings = Vec::new();
    match reach(name, endpoint, node).await {
        Ok(finding) => findings.push(finding),
        Err(finding) => return vec![finding],
    }
    match ask(name, endpoint, answers_runtime_config, &mut findings).await {
        Ok(()) => {}
        Err(finding) => findings.push(finding),
    }
    findings
}

/// Returns whether the socket has a listener.
async fn reach(
    name: &str,
    endpoint: &Path,
    node: &NodeFiles,
) -> Result<ReportFinding, ReportFinding> {
    let shown = endpoint.display();
    let start = "start the runtime; criscope may start first, it waits for it";
    Err(match probe(endpoint).await {
        SocketState::Live(pid) => {
            let who = pid.map(|pid| format!(": {}", node.describe(pid)));
            let text = format!("{shown} accepts connections{}", who.unwrap_or_default());
            if pid.is_some_and(|pid| node.comm(pid).as_deref() == Some("criscope")) {
                return Ok(
                    ReportFinding::warn(name, format!("{text}, another criscope")).hint(
                        "every call would be measured twice; point the endpoint at the runtime",
                    ),
                );
            }
            return Ok(ReportFinding::ok(name, text));
        }
        SocketState::Absent => {
            ReportFinding::fail(name, format!("{shown} does not exist")).hint(start)
        }
        SocketState::Stale => {
            ReportFinding::fail(name, format!("{shown} is stale: no process listens on it"))
                .hint(start)
        }
        SocketState::OtherFile => ReportFinding::fail(name, format!("{shown} is not a socket"))
            .hint("set the endpoint to the socket of a runtime"),
        SocketState::Denied => {
            ReportFinding::fail(name, format!("no permission to connect to {shown}"))
                .hint("run as root, or as the owner of that socket")
        }
        SocketState::Broken(error) => ReportFinding::fail(name, format!("{shown}: {error}")),
    })
}

/// Checks whether the listener is a CRI runtime, and its conditions.
async fn ask(
    name: &str,
    endpoint: &Path,
    answers_runtime_config: bool,
    findings: &mut Vec<ReportFinding>,
) -> Result<(), ReportFinding> {
    let client = CriSocketClient::connect(endpoint, CHECK_TIMEOUT)
        .await
        .map_err(|error| refusal(name, &error))?;
    let version = match says_version(&client, ApiVersion::V1).await {
        Ok(answer) => {
            findings.push(ReportFinding::ok(name, describe(&answer, ApiVersion::V1)));
            ApiVersion::V1
        }
        Err(CriCallError::Status(status)) if status.code() == Code::Unimplemented => {
            let answer = says_version(&client, ApiVersion::V1Alpha2).await;
            let answer = answer.map_err(|error| refusal(name, &error))?;
            let text = describe(&answer, ApiVersion::V1Alpha2);
            findings.push(ReportFinding::warn(name, text).hint(
                "an old runtime: criscope translates, but kubelets from 1.26 on need v1 features of it",
            ));
            ApiVersion::V1Alpha2
        }
        Err(error) => return Err(refusal(name, &error)),
    };
    let status: StatusResponse = client
        .call(version, Method::Status, StatusRequest { verbose: false })
        .await
        .map_err(|error| refusal(name, &error))?;
    let conditions = status.status.map(|status| status.conditions);
    let conditions = conditions.unwrap_or_default();
    for kind in ["RuntimeReady", "NetworkReady"] {
        let found = conditions.iter().find(|condition| condition.r#type == kind);
        findings.push(judge(name, kind, found));
    }
    let answer = client.call(version, Method::RuntimeConfig, RuntimeConfigRequest {});
    let answer: Result<RuntimeConfigResponse, _> = answer.await;
    if matches!(answer, Err(CriCallError::Status(status)) if status.code() == Code::Unimplemented) {
        findings.push(lacks_runtime_config(name, answers_runtime_config));
    }
    Ok(())
}

/// A runtime whose cgroup driver a kubelet cannot ask for.
pub(super) fn lacks_runtime_config(name: &str, answers_runtime_config: bool) -> ReportFinding {
    if answers_runtime_config {
        let text = "does not implement RuntimeConfig: criscope answers with the cgroup driver of its pods, or of its configuration";
        return ReportFinding::new(FindingLevel::Note, name, text);
    }
    let text = "does not implement RuntimeConfig: a kubelet from 1.38 on will not start with it";
    ReportFinding::warn(name, text).hint(format!(
        "set backends.{name}.answer_runtime_config = true, or upgrade the runtime"
    ))
}

async fn says_version(
    client: &CriSocketClient,
    version: ApiVersion,
) -> Result<VersionResponse, CriCallError> {
    let request = VersionRequest {
        version: String::new(),
    };
    client.call(version, Method::Version, request).await
}

fn describe(answer: &VersionResponse, version: ApiVersion) -> String {
    format!(
        "{} {} speaks {}",
        answer.runtime_name,
        answer.runtime_version,
        version.package()
    )
}

fn refusal(name: &str, error: &CriCallError) -> ReportFinding {
    let finding = ReportFinding::fail(name, error.to_string());
    match error {
        CriCallError::Status(status) if status.code() == Code::Unimplemented => {
            ReportFinding::fail(name, "speaks gRPC, but has no CRI").hint(
                "containerd: remove \"cri\" from disabled_plugins in /etc/containerd/config.toml and restart it",
            )
        }
        CriCallError::Status(_) => finding.hint("see the runtime's log"),
        CriCallError::Protocol(_) => finding.hint("this is not the socket of a CRI runtime"),
        CriCallError::Timeout(_) => {
            finding.hint("it hangs, or does not speak gRPC; see its log, or restart it")
        }
        CriCallError::Connect(_) => finding,
    }
}

fn judge(name: &str, kind: &str, condition: Option<&RuntimeCondition>) -> ReportFinding {
    let Some(condition) = condition else {
        return ReportFinding::warn(name, format!("says nothing about {kind}"));
    };
    if condition.status {
        return ReportFinding::ok(name, kind);
    }
    let text = format!("not {kind}: {} {}", condition.reason, condition.message);
    let text = text.trim_end();
    if kind == "NetworkReady" {
        // A new node gets its CNI configuration from a pod on the host's network.
        return ReportFinding::warn(name, text).hint(
            "pods with their own network wait until there is a CNI configuration in /etc/cni/net.d",
        );
    }
    ReportFinding::fail(name, text).hint("see the runtime's log")
}
