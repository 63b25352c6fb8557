//! `criscope replay`: the calls of a capture against another runtime.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::ask::{block_on, open};
use super::{CommandFailure, output};
use crate::client;
use crate::pages::terminal::format::{self, OutputFormat};
use crate::replay::{self, ReplayOptions};

/// Play the calls of a capture against another runtime, and compare codes and times
///
/// A canary for upgrades: record on a node with criscope capture --requests --for 10m, replay against the new runtime. Calls
/// keep their order and gaps; a call that needs a sandbox or container waits until the target has made it. Exec, Attach and
/// PortForward are called, but their sessions are not opened. Exits with 1 if a code differs.
///
/// THE RECORDED CONTAINERS RUN, with the recorded environment and credentials: use a machine outside the cluster. Logs and
/// volumes are new, empty directories. Everything that the replay made is removed at the end, except images.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The capture
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The CRI socket of the runtime to try
    #[arg(long, value_name = "URI", value_parser = socket)]
    to: PathBuf,
    /// Speed relative to the recording, 0.01 to 100
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    /// Leave the pods on the target
    #[arg(long)]
    keep: bool,
    /// Mount volumes from their recorded paths, instead of empty directories. Containers may write to them
    #[arg(long)]
    mounts: bool,
    /// Parent cgroup of the pods [default: criscope-replay]
    #[arg(long, value_name = "CGROUP")]
    cgroup_parent: Option<String>,
    /// Output format, instead of the table
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<OutputFormat>,
}

fn socket(text: &str) -> Result<PathBuf, String> {
    client::socket_path(text).map_err(|error| error.to_string())
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok();
    let speed = speed.filter(|speed| (0.01..=100.0).contains(speed));
    speed.ok_or_else(|| "expected a number between 0.01 and 100".to_owned())
}

/// The capture has no calls to play.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} has no requests, so its calls cannot be replayed: make it with criscope capture --requests --for 10m",
    .0.display()
)]
pub struct NoRequests(PathBuf);

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let bundle = open(&args.file)?;
    let calls = bundle
        .recorded()
        .map_err(|source| CommandFailure::Capture {
            file: args.file.clone(),
            source,
        })?;
    if calls.is_empty() {
        return Err(NoRequests(Path::new(&args.file).to_owned()).into());
    }
    if let Some(head) = &bundle.manifest.requests
        && head.dropped + head.unread > 0
    {
        let n = head.dropped + head.unread;
        output::hint(format_args!(
            "the recording is incomplete: {n} calls are missing in it"
        ));
    }
    let options = ReplayOptions {
        speed: args.speed,
        keep: args.keep,
        keeps_mounts: args.mounts,
        cgroup_parent: args.cgroup_parent.clone(),
    };
    let report = block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let stop = CancellationToken::new();
        let on_signal = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            on_signal.cancel();
        });
        Ok(replay::run(calls, &args.to, &options, &stop).await?)
    })?;
    match args.output {
        Some(format) => format::print(format, &report)?,
        None => {
            let mut out = io::stdout().lock();
            out.write_all(report.text().as_bytes())?;
            out.flush()?;
        }
    }
    if report.is_equal() {
        Ok(())
    } else {
        Err(CommandFailure::Found)
    }
}
