//! `criscope doctor`: checks this node step by step and recommends fixes. It changes nothing; its only trace is a Version
//! and a Status call in the runtime's log.

mod admin;
mod builtin;
mod bypass;
mod cgroups;
mod classes;
mod clients;
mod criu;
mod handover;
mod hook_environment;
mod hooks;
mod images;
mod kubelet;
mod limits;
mod listen;
mod oci_faults;
mod oci_runtimes;
mod process;
mod socket;
mod trial;
mod upstream;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::output::{FindingLevel, ReportFinding};
use super::{CommandFailure, ConfigSourceArgs, DEFAULT_CONFIG_FILE};
use crate::config::{Config, ConfigErrors};
use crate::pages::terminal::format::{self, OutputFormat};
use process::NodeFiles;

/// Sockets of common runtimes.
const USUAL_SOCKETS: [&str; 4] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/cri-dockerd.sock",
];

/// Timeout of every check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// Check this node step by step and recommend fixes
///
/// Without --config and --upstream, /etc/criscope/criscope.toml is used if it exists. Exits with 1 if any check fails.
/// Changes nothing. Run it as root to see everything.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigSourceArgs,
    /// Output format, instead of text
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<OutputFormat>,
    /// The same as -o json
    #[arg(long, hide = true, conflicts_with = "output")]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut report = DoctorReport::new(args.output.or(args.json.then_some(OutputFormat::Json)));
    runtime.block_on(examine(&mut report, &args.config, &NodeFiles::default()))?;
    report.finish()
}

/// The findings, printed as they are made.
struct DoctorReport {
    findings: Vec<ReportFinding>,
    /// `None`: printed as text.
    format: Option<OutputFormat>,
}

impl DoctorReport {
    fn new(format: Option<OutputFormat>) -> Self {
        Self {
            findings: Vec::new(),
            format,
        }
    }

    fn add(&mut self, findings: impl IntoIterator<Item = ReportFinding>) -> io::Result<()> {
        for finding in findings {
            if self.format.is_none() {
                finding.write(&mut anstream::stdout())?;
            }
            self.findings.push(finding);
        }
        Ok(())
    }

    fn count(&self, level: FindingLevel) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.level == level)
            .count()
    }

    fn finish(self) -> Result<(), CommandFailure> {
        let failed = self.count(FindingLevel::Fail);
        if let Some(format) = self.format {
            let whole = JsonReport {
                ok: failed == 0,
                findings: &self.findings,
            };
            format::print(format, &whole)?;
        } else {
            let warned = self.count(FindingLevel::Warn);
            writeln!(anstream::stdout(), "\n{failed} failed, {warned} warnings")?;
        }
        if failed > 0 {
            return Err(CommandFailure::Found);
        }
        Ok(())
    }
}

/// The report as JSON.
#[derive(Serialize)]
struct JsonReport<'a> {
    ok: bool,
    findings: &'a [ReportFinding],
}

async fn examine(
    report: &mut DoctorReport,
    args: &ConfigSourceArgs,
    node: &NodeFiles,
) -> io::Result<()> {
    let config = match configuration(args, Path::new(DEFAULT_CONFIG_FILE)) {
        Ok((config, finding)) => {
            report.add([finding])?;
            Some(config)
        }
        Err(findings) => {
            report.add(findings)?;
            None
        }
    };
    let mut running = None;
    if let Some(config) = &config {
        let (findings, holder) = listen::check("server.listen", &config.server.listen, node).await;
        running = holder;
        report.add(findings)?;
        if let Some(path) = config.containerd_socket() {
            let (findings, _) = listen::check("runtime.containerd_socket", path, node).await;
            report.add(findings)?;
        }
        for backend in &config.backends {
            let Some(endpoint) = &backend.endpoint else {
                continue;
            };
            let answers = backend.answer_runtime_config;
            report.add(upstream::check(&backend.name, endpoint, answers, node).await)?;
        }
        if let Some(runtime) = &config.runtime {
            report.add(builtin::check(runtime))?;
        }
        report.add(admin::check(config.admin.listen).await)?;
    }
    report.add([limits::check(running, node)])?;
    report.add(bypass::check(config.as_ref(), node))?;
    if let Some(config) = &config {
        report.add(handover::check(config, node))?;
    }
    report.add(kubelet::check(config.as_ref(), node))?;
    if let Some(config) = &config {
        report.add(clients::check(config, node))?;
    }
    Ok(())
}

fn upstreams(config: &Config) -> impl Iterator<Item = (&str, &Path)> {
    let backends = config.backends.iter();
    backends.filter_map(|backend| Some((backend.name.as_str(), backend.endpoint.as_deref()?)))
}

/// The configuration that `serve` would use, or its errors.
fn configuration(
    args: &ConfigSourceArgs,
    usual: &Path,
) -> Result<(Config, ReportFinding), Vec<ReportFinding>> {
    match args.or_usual(usual).load() {
        Ok(loaded) => {
            let finding = match loaded.path {
                Some(path) => ReportFinding::ok("config", path.display().to_string()),
                None if loaded.config.runtime.is_some() => by_default(),
                None => ReportFinding::ok("config", "from flags and defaults"),
            };
            Ok((loaded.config, finding))
        }
        Err(errors) => Err(explain(&errors)),
    }
}

/// No runtime is configured, so the built-in one is used. Another runtime on the node may have been meant.
fn by_default() -> ReportFinding {
    let found = ReportFinding::ok("config", "from flags and defaults: the built-in runtime");
    match USUAL_SOCKETS.iter().find(|path| Path::new(path).exists()) {
        Some(socket) => found.hint(format!(
            "there is a runtime on this node: --upstream unix://{socket}"
        )),
        None => found,
    }
}

fn explain(errors: &ConfigErrors) -> Vec<ReportFinding> {
    errors
        .iter()
        .map(|error| ReportFinding::fail("config", error.to_string()))
        .collect()
}
