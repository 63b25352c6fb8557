//! `criscope smoke`: runs one pod through a CRI socket and shows the duration of each step.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::CommandFailure;
use super::ask::{AdminEndpoint, AdminEndpointArgs};
use crate::client;
use crate::pages::commands::{self, explain};
use crate::pages::terminal::format::{self, OutputFormat};
use crate::pages::terminal::{WaterfallStyle, colour, look};
use crate::smoke::pod::{POD_NAME, POD_NAMESPACE};
use crate::smoke::timeline::{FinishedStep, StepProgress};
use crate::smoke::waterfall;
use crate::smoke::{self, SmokeOptions, SmokeReport};
use crate::units;

/// Width of the output without a terminal.
const DEFAULT_COLUMNS: usize = 100;

/// Run one pod through a CRI socket and show the duration of each step
///
/// Works with any CRI v1 runtime and needs no network: the image is assembled from this machine's static busybox and served
/// to the runtime from a small registry inside this command. Everything it creates is removed again, also after a failure
/// or Ctrl-C. Exits with 1 if a step fails.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// The CRI socket
    #[arg(
        long,
        short = 'r',
        value_name = "URI",
        env = "CONTAINER_RUNTIME_ENDPOINT",
        visible_alias = "runtime-endpoint",
        default_value = "unix:///run/criscope/criscope.sock",
        value_parser = socket
    )]
    endpoint: PathBuf,
    /// Use this image (it must contain sh, echo and sleep) instead of the built-in one
    #[arg(long, value_name = "REF")]
    image: Option<String>,
    /// The static busybox for the built-in image [default: the machine's]
    #[arg(long, value_name = "PATH", conflicts_with = "image")]
    busybox: Option<PathBuf>,
    /// Name of the pod
    #[arg(long, value_name = "NAME", default_value = POD_NAME)]
    name: String,
    /// Start this program in the container instead of the shell, and remove the pod then: one that the image does not have shows what
    /// criscope says of a pod that fails
    #[arg(long, value_name = "PATH")]
    command: Option<String>,
    /// Let the registry for the built-in image answer so late (500ms, 3s): shows what criscope says of a slow pull
    #[arg(long, value_name = "TIME", conflicts_with = "image", value_parser = commands::duration)]
    slow_pull: Option<Duration>,
    /// Print what criscope explain says of the pod just before the pod is removed
    #[arg(long, conflicts_with_all = ["output", "json"])]
    explain: bool,
    #[command(flatten)]
    admin: AdminEndpointArgs,
    /// Runtime handler [default: the runtime's]
    #[arg(long, value_name = "NAME")]
    handler: Option<String>,
    /// Run the pod in the host's network, which needs no CNI
    #[arg(long)]
    host_network: bool,
    /// Output format, instead of the waterfall
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<OutputFormat>,
    /// Short for -o json
    #[arg(long, hide = true, conflicts_with = "output")]
    json: bool,
    /// Leave the pod running, also after a failure, and print how to remove it
    #[arg(long)]
    keep: bool,
    /// Address of the registry for the built-in image; port 0 chooses a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    registry_listen: SocketAddr,
    /// Parent of the pod's log directory, which the runtime must see too [default: the temporary directory]
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    /// The pod's parent cgroup [default: one that fits the runtime's cgroup driver]
    #[arg(long, value_name = "CGROUP")]
    cgroup_parent: Option<String>,
    /// Time for all steps together (500ms, 60s, 2m)
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = commands::duration)]
    timeout: Duration,
}

/// Why the command ends with exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command could not start.
    #[error("cannot start: {0}")]
    Start(#[source] io::Error),
    /// The result could not be written.
    #[error("cannot write the result: {0}")]
    Output(#[source] io::Error),
    /// A step failed. It has been printed already.
    #[error("smoke failed at {0}")]
    Failed(&'static str),
}

/// Runs the command.
pub(super) fn run(args: Args) -> Result<(), CommandFailure> {
    let format = args.output.or(args.json.then_some(OutputFormat::Json));
    let endpoint = args.explain.then(|| args.admin.endpoint()).transpose()?;
    let options = options(args)?;
    let (report, said) = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::Start)?
        .block_on(run_all(&options, endpoint))?;
    let written = match format {
        Some(format) => format::print(format, &report),
        None => {
            let mut out = io::stdout().lock();
            let text = text(&report, look(DEFAULT_COLUMNS)) + &said;
            let written = out.write_all(text.as_bytes());
            written.and_then(|()| out.flush())
        }
    };
    written.map_err(Error::Output)?;
    match report.failed() {
        Some(step) => Err(Error::Failed(step.name).into()),
        None => Ok(()),
    }
}

fn options(args: Args) -> Result<SmokeOptions, Error> {
    Ok(SmokeOptions {
        socket: args.endpoint,
        run: smoke::new_run_id().map_err(Error::Start)?,
        name: args.name,
        command: args.command,
        registry_delay: args.slow_pull.unwrap_or_default(),
        image: args.image,
        busybox: args.busybox,
        handler: args.handler,
        host_network: args.host_network,
        keep: args.keep,
        registry_listen: args.registry_listen,
        log_dir: args.log_dir.unwrap_or_else(std::env::temp_dir),
        cgroup_parent: args.cgroup_parent,
        timeout: args.timeout,
    })
}

/// Runs the pod. Returns the report, and what criscope said of the pod if it was asked.
async fn run_all(
    options: &SmokeOptions,
    endpoint: Option<AdminEndpoint>,
) -> Result<(SmokeReport, String), Error> {
    let mut interrupts = interrupts().map_err(Error::Start)?;
    let stderr = io::stderr();
    let mut progress = StepLinePrinter {
        terminal: stderr.is_terminal(),
        colour: colour(&stderr),
        pod: options.clone(),
        endpoint,
        said: String::new(),
    };
    let report = smoke::run(options, &mut progress, &mut interrupts).await;
    Ok((report, progress.said))
}

/// SIGINT and SIGTERM, each as a message.
fn interrupts() -> io::Result<mpsc::Receiver<&'static str>> {
    let (sender, receiver) = mpsc::channel(4);
    for (kind, word) in [
        (SignalKind::interrupt(), "interrupted"),
        (SignalKind::terminate(), "terminated"),
    ] {
        let mut signals = signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() && sender.send(word).await.is_ok() {
                print(&format!(
                    "\n  {word}: the call in flight finishes, then everything is removed; repeat to abort\n"
                ));
            }
        });
    }
    Ok(receiver)
}

/// The path of `--endpoint`.
fn socket(text: &str) -> Result<PathBuf, String> {
    client::socket_path(text).map_err(|error| error.to_string())
}

/// A line per step on stderr, so that stdout has only the result. Before the pod is removed, criscope is asked about it.
struct StepLinePrinter {
    terminal: bool,
    colour: bool,
    pod: SmokeOptions,
    /// Where to ask about the pod.
    endpoint: Option<AdminEndpoint>,
    /// What criscope said of it.
    said: String,
}

/// How long criscope may take to count the last call of the pod.
const STORY_FOLLOWS_WITHIN: Duration = Duration::from_millis(300);

impl StepProgress for StepLinePrinter {
    fn begins(&mut self, name: &'static str) {
        if self.terminal {
            print(&format!("  ..    {name}"));
        }
    }

    fn ended(&mut self, step: &FinishedStep) {
        let clear = if self.terminal { "\r\x1b[2K" } else { "" };
        let line = waterfall::progress(step, self.colour);
        print(&format!("{clear}{line}\n"));
    }

    fn before_removal(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Some(endpoint) = &self.endpoint else {
                return;
            };
            tokio::time::sleep(STORY_FOLLOWS_WITHIN).await;
            let SmokeOptions { name, run, .. } = &self.pod;
            let look = look(DEFAULT_COLUMNS);
            let said = explain::text(endpoint, POD_NAMESPACE, name, run, look).await;
            let said = said.unwrap_or_else(|error| format!("not explained: {error}\n"));
            self.said = format!("\ncriscope explain {POD_NAMESPACE}/{name}\n\n{said}");
        })
    }
}

/// Writes to standard error. A closed standard error (`2>&1 | head`) must not stop the steps halfway.
fn print(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The waterfall with its header and summary.
fn text(report: &SmokeReport, look: WaterfallStyle) -> String {
    let runtime = report.runtime.as_ref().map_or_else(
        || "no runtime".to_owned(),
        |info| format!("{} {} (CRI {})", info.name, info.version, info.api_version),
    );
    let bars = waterfall::render(&report.steps, look);
    let end = match report.failed() {
        None => format!(
            "ok: {} steps in {}\n",
            report.steps.len(),
            units::duration(report.total_ms)
        ),
        Some(step) => format!("failed: {}\n", step.name),
    };
    format!(
        "\n{runtime} at {}\n{bars}{end}{}",
        report.endpoint,
        remains(report)
    )
}

fn remains(report: &SmokeReport) -> String {
    if report.left.is_empty() {
        return String::new();
    }
    let word = if report.kept { "kept" } else { "left behind" };
    let mut text = format!("{word}:\n");
    for left in &report.left {
        text.push_str(&format!("  {}\n    remove: {}\n", left.what, left.remove));
    }
    text
}
