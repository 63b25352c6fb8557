//! `criscope doctor`: looks at this node step by step and says what to do. It only looks; the one thing it leaves
//! behind is a Version and a Status call in the runtime's log.

mod admin;
mod clients;
mod kubelet;
mod limits;
mod listen;
mod process;
mod sockdiag;
mod socket;
mod upstream;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::output::{Finding, Level};
use super::{ConfigArgs, Failure};
use crate::config::{BackendKind, Config, ConfigErrors};
use process::Node;

/// Where the unit in `deploy/systemd` reads its configuration.
const USUAL_FILE: &str = "/etc/criscope/criscope.toml";

/// Sockets of the usual runtimes.
const USUAL_SOCKETS: [&str; 4] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/cri-dockerd.sock",
];

/// How long anything may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Check this node step by step and say what to do
///
/// Without --config and --upstream, /etc/criscope/criscope.toml is used if it is there. Exits with 1 if anything
/// fails. Changes nothing. Run it as root to see everything.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print the findings as one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut report = Report::new(!args.json);
    runtime.block_on(examine(&mut report, &args.config, &Node::default()))?;
    report.finish()
}

/// What was found, printed as it is found.
struct Report {
    findings: Vec<Finding>,
    print: bool,
}

impl Report {
    fn new(print: bool) -> Self {
        Self {
            findings: Vec::new(),
            print,
        }
    }

    fn add(&mut self, findings: impl IntoIterator<Item = Finding>) -> io::Result<()> {
        for finding in findings {
            if self.print {
                finding.write(&mut anstream::stdout())?;
            }
            self.findings.push(finding);
        }
        Ok(())
    }

    fn count(&self, level: Level) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.level == level)
            .count()
    }

    fn finish(self) -> Result<(), Failure> {
        let failed = self.count(Level::Fail);
        let mut out = anstream::stdout().lock();
        if self.print {
            let warned = self.count(Level::Warn);
            writeln!(out, "\n{failed} failed, {warned} to look at")?;
        } else {
            let whole = Whole {
                ok: failed == 0,
                findings: &self.findings,
            };
            let json = serde_json::to_string_pretty(&whole).map_err(io::Error::from)?;
            writeln!(out, "{json}")?;
        }
        if failed > 0 {
            return Err(Failure::Found);
        }
        Ok(())
    }
}

/// The report as JSON.
#[derive(Serialize)]
struct Whole<'a> {
    ok: bool,
    findings: &'a [Finding],
}

async fn examine(report: &mut Report, args: &ConfigArgs, node: &Node) -> io::Result<()> {
    let config = match configuration(args, Path::new(USUAL_FILE)) {
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
        let (findings, holder) = listen::check(&config.server.listen, node).await;
        running = holder;
        report.add(findings)?;
        for (name, endpoint) in upstreams(config) {
            report.add(upstream::check(name, endpoint, node).await)?;
        }
        report.add(admin::check(config.admin.listen).await)?;
    }
    report.add([limits::check(running, node)])?;
    report.add(kubelet::check(config.as_ref(), node))?;
    if let Some(config) = &config {
        report.add(clients::check(config, node))?;
    }
    Ok(())
}

fn upstreams(config: &Config) -> impl Iterator<Item = (&str, &Path)> {
    config.backends.iter().map(|backend| {
        let BackendKind::Upstream { endpoint } = &backend.kind;
        (backend.name.as_str(), endpoint.as_path())
    })
}

/// The configuration that `serve` would have, or what is wrong with it.
fn configuration(args: &ConfigArgs, usual: &Path) -> Result<(Config, Finding), Vec<Finding>> {
    let mut args = args.clone();
    if args.config.is_none() && args.upstream.is_none() && usual.exists() {
        args.config = Some(usual.to_owned());
    }
    match args.load() {
        Ok(loaded) => {
            let from = match loaded.path {
                Some(path) => path.display().to_string(),
                None => "from flags and defaults".to_owned(),
            };
            Ok((loaded.config, Finding::ok("config", from)))
        }
        Err(errors) => Err(explain(&errors)),
    }
}

fn explain(errors: &ConfigErrors) -> Vec<Finding> {
    let found: Vec<PathBuf> = USUAL_SOCKETS
        .iter()
        .map(PathBuf::from)
        .filter(|path| path.exists())
        .collect();
    let mut findings: Vec<_> = errors
        .iter()
        .map(|error| Finding::fail("config", error.to_string()))
        .collect();
    if let ([finding], [socket, ..]) = (findings.as_mut_slice(), found.as_slice()) {
        finding.hint = Some(format!(
            "there is a runtime on this node: --upstream unix://{}",
            socket.display()
        ));
    }
    findings
}
