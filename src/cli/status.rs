//! `criscope status`: whether the running criscope, the runtimes behind it and its pods are well.

mod report;

use serde::Deserialize;

use self::report::{BypassReport, StatusReport};

use super::CommandFailure;
use super::ask::{AdminEndpoint, StateSourceArgs, block_on};
use super::in_progress::{OpenSession, WorkInProgress};
use super::output::{FindingLevel, ReportFinding};
use crate::cri::subject::REQUIRED_CONDITIONS;
use crate::install::{LocalNode, hands_over};
use crate::lifecycle::node::BypassFiles;
use crate::lifecycle::tables::RpcTable;
use crate::lifecycle::view::{PodList, PodState, PodSummary};
use crate::pages::source::{PageError, PageSource as _};
use crate::pages::terminal::format::{self, OutputFormat};
use crate::units;
use crate::units::times::UnixMicros;

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
    admin: StateSourceArgs,
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
    sessions: Vec<OpenSession>,
    #[serde(default)]
    faults: Vec<String>,
    #[serde(default)]
    relist: Option<String>,
    #[serde(default)]
    relist_ms: Option<f64>,
    #[serde(default)]
    bypass: Option<String>,
}

impl DaemonState {
    fn work(&self) -> WorkInProgress {
        let kept = self.backends.iter().map(|backend| backend.kept_calls);
        WorkInProgress::new(&self.methods, &self.sessions, kept.sum())
    }
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
    answered_cgroup_driver: Option<String>,
    #[serde(default)]
    kept_calls: u64,
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
    let (live, pods) = match block_on(async { Ok(ask(&endpoint).await) })? {
        Ok(state) => state,
        Err(error) => return without_daemon(args.output, error),
    };
    let hands_over = hands_over(&LocalNode::default());
    let findings = findings(&live, pods.as_deref(), hands_over);
    let worst = findings.iter().map(|finding| finding.level).max();
    let worst = worst.unwrap_or(FindingLevel::Ok);
    match args.output {
        Some(format) => {
            format::print(format, &StatusReport::new(&live, pods.as_deref(), worst))?;
        }
        None => write_findings(&findings)?,
    }
    match worst {
        FindingLevel::Fail => Err(CommandFailure::Found),
        FindingLevel::Ok | FindingLevel::Note | FindingLevel::Warn => Ok(()),
    }
}

fn write_findings(findings: &[ReportFinding]) -> Result<(), CommandFailure> {
    let mut out = anstream::stdout().lock();
    for finding in findings {
        finding.write(&mut out)?;
    }
    Ok(())
}

/// Says since when a criscope that does not answer is bypassed, else only the error.
fn without_daemon(output: Option<OutputFormat>, error: PageError) -> Result<(), CommandFailure> {
    let does_not_answer = matches!(error, PageError::Connect { .. } | PageError::Timeout { .. });
    let since = BypassFiles::default().since();
    let Some(since) = since.filter(|_| does_not_answer) else {
        return Err(error.into());
    };
    match output {
        Some(format) => format::print(format, &BypassReport::new(since, &error))?,
        None => write_findings(&bypassed(&error, since))?,
    }
    Err(CommandFailure::Found)
}

/// What can be said of a criscope that does not answer and is bypassed.
fn bypassed(error: &PageError, since: UnixMicros) -> [ReportFinding; 2] {
    let text = format!(
        "calls have reached the runtime without criscope since {}",
        units::rfc3339(since)
    );
    [
        ReportFinding::fail("criscope", error.to_string()).hint("journalctl -u criscope"),
        ReportFinding::warn("bypass", text),
    ]
}

/// The front page and the pods, which are `None` if the pages below `/debug` are turned off.
async fn ask(
    endpoint: &AdminEndpoint,
) -> Result<(DaemonState, Option<Vec<PodSummary>>), PageError> {
    let live = endpoint.json(FRONT_PAGE).await?;
    match endpoint.json::<PodList>(PODS_PAGE).await {
        Ok(pods) => Ok((live, Some(pods.pods))),
        Err(PageError::NoPage { .. }) => Ok((live, None)),
        Err(error) => Err(error),
    }
}

/// What a restart would break off.
fn restart(work: &WorkInProgress, hands_over: bool) -> ReportFinding {
    if hands_over {
        let text = format!(
            "{work}: they go on in a restart of criscope, and one of the runtime breaks them off"
        );
        return ReportFinding::new(FindingLevel::Note, "restart", text);
    }
    let text = format!(
        "{work}: a restart of criscope or of the runtime breaks off what does not end within seconds"
    );
    let hint = "criscope restart --when-quiet waits for their end";
    ReportFinding::new(FindingLevel::Note, "restart", text).hint(hint)
}

fn findings(
    live: &DaemonState,
    pods: Option<&[PodSummary]>,
    hands_over: bool,
) -> Vec<ReportFinding> {
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
        findings.extend(backend.answered_cgroup_driver.as_deref().map(|driver| {
            let text = format!(
                "{} does not implement RuntimeConfig: criscope answers with the cgroup driver {driver}",
                backend.name
            );
            ReportFinding::new(FindingLevel::Note, "backend", text)
        }));
    }
    if live.backends.is_empty() {
        findings.push(ReportFinding::fail("backend", "there is none"));
    }
    findings.push(calls(live));
    let work = live.work();
    if !work.is_empty() {
        findings.push(restart(&work, hands_over));
    }
    if let Some(relist) = &live.relist {
        findings.push(ReportFinding::warn("kubelet", relist.clone()));
    }
    if let Some(bypass) = &live.bypass {
        let hint =
            "it ends when criscope has run for a minute; why it began: journalctl -u criscope";
        findings.push(ReportFinding::warn("bypass", bypass.clone()).hint(hint));
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
    let groups: [(&[PodState], &str); 8] = [
        (&[PodState::Failing, PodState::Failed], "failing"),
        (&[PodState::CrashLoop], "in a crash loop"),
        (&[PodState::Stopped], "stopped"),
        (&[PodState::Starting], "starting"),
        (&[PodState::Stopping], "stopping"),
        (&[PodState::Ok], "ok"),
        (&[PodState::Completed], "completed"),
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
        let findings = findings(live, Some(pods), false).into_iter();
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
    fn what_a_restart_would_break_off_is_said() {
        let mut live = live("");
        let session = r#"[{"kind":"exec"},{"kind":"exec"}]"#;
        live.sessions = serde_json::from_str(session).expect("parsed");
        let lines = lines(&live, &[]);
        let said = "2 exec sessions are in progress: a restart of criscope or of the runtime breaks off what does not end within seconds";
        assert!(
            lines.contains(&(FindingLevel::Note, said.to_owned())),
            "{lines:?}"
        );
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

    #[test]
    fn a_criscope_that_is_bypassed_says_so_also_while_it_does_not_run() {
        let refused = PageError::Connect {
            address: "127.0.0.1:9478".to_owned(),
            source: std::io::ErrorKind::ConnectionRefused.into(),
        };
        let since = UnixMicros::new(1_767_268_800_000_000);
        let [down, bypass] = bypassed(&refused, since);
        assert_eq!(down.level, FindingLevel::Fail);
        assert_eq!(
            bypass.text,
            "calls have reached the runtime without criscope since 2026-01-01T12:00:00.000Z"
        );
        let mut live = live("");
        live.bypass = Some("criscope has been bypassed for 3.00 s".to_owned());
        let warned = findings(&live, None, false);
        assert!(warned.iter().any(|finding| finding.topic == "bypass"));
    }
}
