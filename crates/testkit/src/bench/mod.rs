//! Shared by the benchmarks: options, a runtime that stops on signals, budgets, statistics and reports.

pub mod admin;
pub mod budget;
pub mod report;
pub mod server_thread;
pub mod stats;

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;
use std::{fs, thread};

use tokio::signal::unix::{SignalKind, signal};

use crate::error::{Error, IoContext, Result};

/// Options of every benchmark.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Take minutes less: fewer rounds and smaller sizes
    #[arg(long)]
    pub quick: bool,
    /// The binary to measure [default: the one that cargo built for this run, in target/release]
    #[arg(long, value_name = "PATH")]
    criscope: Option<PathBuf>,
    /// Write everything that was measured to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Put the table into docs/PERFORMANCE.md
    #[arg(long)]
    pub write_docs: bool,
    /// End with exit code 1 if a budget is missed
    #[arg(long)]
    pub check: bool,
    /// Passed by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// The criscope to measure, which is `built` unless another one is named.
    pub fn criscope(&self, built: &str) -> PathBuf {
        self.criscope.clone().unwrap_or_else(|| built.into())
    }

    /// Runs a benchmark, which returns whether every budget was met, and turns the result into an exit code. Without
    /// `--bench`, as in `cargo test --benches`, nothing is measured.
    pub fn main(&self, name: &str, run: impl FnOnce() -> Result<bool>) -> ExitCode {
        if !self.bench {
            eprintln!(
                "nothing measured: this is a benchmark, run it with `cargo bench --bench {name}`"
            );
            return ExitCode::SUCCESS;
        }
        match run() {
            Ok(within_budget) if self.check && !within_budget => ExitCode::FAILURE,
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::from(2)
            }
        }
    }
}

/// Runs a future on a single-threaded runtime until it completes, or SIGINT or SIGTERM arrives. Destructors run in
/// either case.
///
/// # Errors The error of the future, or [`Error::Interrupted`].
pub fn block_on<T>(run: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .during(|| "making the runtime".to_owned())?
        .block_on(async {
            tokio::select! {
                done = run => done,
                stopped = interrupted() => Err(stopped),
            }
        })
}

async fn interrupted() -> Error {
    let doing = || "waiting for signals".to_owned();
    let interrupt = signal(SignalKind::interrupt()).during(doing);
    let terminate = signal(SignalKind::terminate()).during(doing);
    match (interrupt, terminate) {
        (Ok(mut interrupt), Ok(mut terminate)) => {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            Error::Interrupted
        }
        (Err(error), _) | (_, Err(error)) => error,
    }
}

/// Prints progress to stderr.
pub fn progress(what: &str) {
    eprintln!("measuring: {what}");
}

/// Facts about the machine, as name and value.
pub fn machine() -> Vec<(&'static str, String)> {
    vec![
        ("kernel", first_line("/proc/sys/kernel/osrelease")),
        ("cores", cores().to_string()),
        ("load before the run", first_line("/proc/loadavg")),
    ]
}

/// The number of processors that this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(0, usize::from)
}

/// The first line of a file, such as one of `/proc`.
pub fn first_line(file: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}
