//! `criscope status`: whether the running criscope, the runtimes behind it and its pods are well.

use serde::Deserialize;

use super::CommandFailure;
use super::ask::{AdminEndpoint, AdminEndpointArgs, block_on};
use super::format::{self, OutputFormat};
use super::http::AdminRequestError;
use super::output::{FindingLevel, ReportFinding};
use crate::cri::subject::REQUIRED_CONDITIONS;
use crate::lifecycle::tables::RpcTable;
use crate::lifecycle::view::{PodList, PodState, PodSummary};
use crate::units;

/// The front page.
const FRONT_PAGE: &str = "/?format=json";
/// Every pod in memory.
const PODS_PAGE: &str = "/debug/pods?format=json&by=pod";

/// Show whether criscope, its runtimes and the pods are healthy
///
/// Reads from the running criscope; criscope doctor checks a node without one. Exits with 1 if criscope or a runtime does
/// not answer, or RuntimeReady or NetworkReady is false. Pods in trouble are warnings; other conditions of a runtime are notes.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    admin: AdminEndpointArgs,
    /// Output format, instead of text
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<OutputFormat>,
}

/// The front page. Its pods are left out, because it has only the first of them.
#[derive(Debug, Default, Deserialize)]
struct DaemonState {
    version: String,
    host: String,
    uptime_ms: f64,
    backends: Vec<BackendStatus>,
    #[serde(default)]
    methods: RpcTable,
    #[serde(default)]
    sessions: Vec<serde::de::IgnoredAny>,
    #[serde(default)]
    faults: Vec<String>,
    #[serde(default)]
    relist: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct BackendStatus {
    name: String,
    endpoint: String,
    up: bool,
    #[serde(default)]
    since_ms: Option<f64>,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    runtime: Option<(String, String)>,
    #[serde(default)]
    conditions: Vec<BackendCondition>,
}

#[derive(Debug, Default, Deserialize)]
struct BackendCondition {
    kind: String,
    status: bool,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let endpoint = args.admin.endpoint()?;
    let findings = block_on(async { Ok(ask(&endpoint).await?) })?;
    match args.output {
        Some(format) => format::print(format, &findings)?,
        None => {
            let mut out = anstream::stdout().lock();
            for finding in &findings {
                finding.write(&mut out)?;
            }
        }
    }
    if findings
        .iter()
        .any(|finding| finding.level == FindingLevel::Fail)
    {
        Err(CommandFailure::Found)
    } else {
        Ok(())
    }
}

async fn ask(endpoint: &AdminEndpoint) -> Result<Vec<ReportFinding>, AdminRequestError> {
    let live = endpoint.json(FRONT_PAGE).await?;
    let pods = match endpoint.json::<PodList>(PODS_PAGE).await {
        Ok(pods) => Some(pods.pods),
        // The pages below /debug are turned off.
        Err(AdminRequestError::NoPage { .. }) => None,
        Err(error) => return Err(error),
    };
    Ok(findings(&live, pods.as_deref()))
}

fn findings(live: &DaemonState, pods: Option<&[PodSummary]>) -> Vec<ReportFinding> {
    let up = units::duration(live.uptime_ms);
    let mut findings = vec![ReportFinding::ok(
        "criscope",
        format!("{} on {}, up for {up}", live.version, live.host),
    )];
    for backend in &live.backends {
        findings.push(backend_of(backend));
        let failing = backend
            .conditions
            .iter()
            .filter(|condition| !condition.status);
        findings.extend(failing.map(|condition| condition_of(backend, condition)));
    }
    if live.backends.is_empty() {
        findings.push(ReportFinding::fail("backend", "there is none"));
    }
    findings.push(calls(live));
    if let Some(relist) = &live.relist {
        findings.push(ReportFinding::warn("kubelet", relist.clone()));
    }
    findings.extend(pods.map(pods_of));
    let faults = live.faults.iter();
    findings.extend(faults.map(|fault| {
        ReportFinding::warn("fault", format!("injected: {fault}")).hint("criscope fault clear")
    }));
    findings
}

fn backend_of(backend: &BackendStatus) -> ReportFinding {
    let BackendStatus { name, endpoint, .. } = backend;
    let since = backend.since_ms.map(units::duration);
    let since = since.map_or_else(String::new, |since| format!(" for {since}"));
    match (backend.up, &backend.runtime) {
        (true, Some((runtime, version))) => ReportFinding::ok(
            "backend",
            format!("{name} is {runtime} {version} at {endpoint}, up{since}"),
        ),
        (true, None) => ReportFinding::ok("backend", format!("{name} at {endpoint} is up{since}")),
        (false, _) if backend.reason.is_empty() => ReportFinding::fail(
            "backend",
            format!("{name} at {endpoint} has not answered yet"),
        ),
        (false, _) => ReportFinding::fail(
            "backend",
            format!("{name} is down{since}: {}", backend.reason),
        )
        .hint("criscope doctor"),
    }
}

fn condition_of(backend: &BackendStatus, condition: &BackendCondition) -> ReportFinding {
    let words = [&*condition.reason, &*condition.message];
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let why = if words.is_empty() {
        String::new()
    } else {
        format!(": {}", words.join(": "))
    };
    let text = format!("{} of {} is false{why}", condition.kind, backend.name);
    let level = if REQUIRED_CONDITIONS.contains(&&*condition.kind) {
        FindingLevel::Fail
    } else {
        FindingLevel::Note
    };
    ReportFinding::new(level, "backend", text)
}

fn calls(live: &DaemonState) -> ReportFinding {
    let methods = &live.methods.methods;
    let in_flight: u64 = methods.iter().map(|row| row.in_flight).sum();
    let stuck: u64 = methods.iter().map(|row| row.stuck).sum();
    let calls: u64 = methods.iter().map(|row| row.minute.calls).sum();
    let errors: u64 = methods.iter().map(|row| row.minute.errors).sum();
    let mut text =
        format!("{calls} in the last minute, {errors} with an error; {in_flight} in flight");
    if stuck > 0 {
        text += &format!(", {stuck} of them past half of their deadline");
    }
    match live.sessions.len() {
        0 => {}
        1 => text += "; 1 open session",
        count => text += &format!("; {count} open sessions"),
    }
    match (stuck > 0, calls) {
        (true, _) => ReportFinding::warn("calls", text).hint("criscope calls"),
        (false, 0) => ReportFinding::warn("calls", text)
            .hint("does the kubelet use this socket? Check with criscope doctor"),
        (false, _) => ReportFinding::ok("calls", text),
    }
}

fn pods_of(pods: &[PodSummary]) -> ReportFinding {
    let groups: [(&[PodState], &str); 6] = [
        (&[PodState::Failing, PodState::Failed], "failing"),
        (&[PodState::CrashLoop], "in a crash loop"),
        (&[PodState::Starting], "starting"),
        (&[PodState::Stopping], "stopping"),
        (&[PodState::Ok], "ok"),
        (&[PodState::Gone], "gone"),
    ];
    let counts = groups.map(|(states, word)| {
        let in_states = pods.iter().filter(|pod| states.contains(&pod.state));
        (in_states.count(), word)
    });
    let [(failing, _), (loops, _), ..] = counts;
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<_> = counts.map(|(n, state)| format!("{n} {state}")).collect();
    let text = if counts.is_empty() {
        "no pod was started, restarted or stopped yet".to_owned()
    } else {
        counts.join(", ")
    };
    match failing + loops {
        0 => ReportFinding::ok("pods", text),
        _ => ReportFinding::warn("pods", text).hint("criscope pods --state failing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(backends: &str) -> DaemonState {
        let text = format!(
            r#"{{"version":"0.2.0","host":"node-1","uptime_ms":65000.0,"backends":[{backends}]}}"#
        );
        serde_json::from_str(&text).expect("parsed")
    }

    fn lines(live: &DaemonState, pods: &[PodSummary]) -> Vec<(FindingLevel, String)> {
        let findings = findings(live, Some(pods)).into_iter();
        findings
            .map(|finding| (finding.level, finding.text))
            .collect()
    }

    #[test]
    fn other_conditions_of_a_runtime_are_notes() {
        let live = live(
            r#"{"name":"containerd","endpoint":"/run/c.sock","up":true,"conditions":[
                {"kind":"RuntimeReady","status":true},{"kind":"NetworkReady","status":true},
                {"kind":"ContainerdHasNoDeprecationWarnings","status":false,
                 "reason":"ContainerdHasDeprecationWarnings","message":"cri-api v1alpha2"}]}"#,
        );
        let lines = lines(&live, &[]);
        let text = "ContainerdHasNoDeprecationWarnings of containerd is false: ContainerdHasDeprecationWarnings: cri-api v1alpha2";
        assert_eq!(lines[2], (FindingLevel::Note, text.to_owned()));
        let worst = lines.iter().map(|(level, _)| *level).max();
        assert_eq!(worst, Some(FindingLevel::Warn), "no call yet is a warning");
    }

    #[test]
    fn a_condition_that_is_false_fails_and_names_its_reason() {
        let live = live(
            r#"{"name":"containerd","endpoint":"/run/c.sock","up":true,"since_ms":1000.0,
                "runtime":["containerd","1.6.20"],"conditions":[
                {"kind":"RuntimeReady","status":true},
                {"kind":"NetworkReady","status":false,"reason":"NetworkPluginNotReady","message":"cni"}]}"#,
        );
        let lines = lines(&live, &[]);
        assert_eq!(
            lines[1],
            (
                FindingLevel::Ok,
                "containerd is containerd 1.6.20 at /run/c.sock, up for 1.00 s".to_owned()
            )
        );
        assert_eq!(
            lines[2],
            (
                FindingLevel::Fail,
                "NetworkReady of containerd is false: NetworkPluginNotReady: cni".to_owned()
            )
        );
        assert_eq!(lines[3].0, FindingLevel::Warn, "no call in a minute");
    }

    #[test]
    fn a_backend_that_is_down_fails() {
        let down = r#"{"name":"a","endpoint":"/a","up":false,"reason":"connection refused"}"#;
        let expected = "a is down: connection refused".to_owned();
        assert_eq!(lines(&live(down), &[])[1], (FindingLevel::Fail, expected));
        assert_eq!(lines(&live(""), &[])[1].0, FindingLevel::Fail);
    }

    #[test]
    fn pods_in_trouble_are_warnings() {
        let pod = |state| PodSummary {
            state,
            ..PodSummary::default()
        };
        let well = [pod(PodState::Ok), pod(PodState::Gone)];
        let last = |pods: &[PodSummary]| lines(&live(""), pods).pop().expect("a line");
        assert_eq!(last(&well), (FindingLevel::Ok, "1 ok, 1 gone".to_owned()));
        let ill = [
            pod(PodState::CrashLoop),
            pod(PodState::Failed),
            pod(PodState::Ok),
        ];
        let expected = "1 failing, 1 in a crash loop, 1 ok".to_owned();
        assert_eq!(last(&ill), (FindingLevel::Warn, expected));
    }
}
