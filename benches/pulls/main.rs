//! Pulls by the built-in runtime, compared with containerd, with CRI-O where it is installed, and with `curl | tar` and skopeo, in
//! one run.
//!
//! ```text
//! cargo bench --bench pulls               about ten minutes
//! cargo bench --bench pulls -- --quick    less than three
//! cargo bench --bench pulls -- --help     the rest
//! ```
//!
//! `docs/PERFORMANCE.md` describes the measurements. In reading order: [`args`] (sizes), [`shapes`] (the images), [`disk`] and [`registry`] (where
//! they are), [`daemons`] and [`floors`] (the sides), [`rounds`] (the measurement), [`budget`] and [`report`] (the results). It
//! needs root.

mod args;
mod budget;
mod daemons;
mod disk;
mod floors;
mod registry;
mod report;
mod rounds;
mod shapes;

use std::process::ExitCode;

use clap::Parser;
use criscope_testkit::bench::{block_on, machine, progress, stats};
use criscope_testkit::{error, process};

use crate::args::Args;
use crate::daemons::{CRISCOPE, Daemon, OTHER};
use crate::disk::Disk;
use crate::error::{Error, IoContext, Result};
use crate::floors::Floor;
use crate::process::find;
use crate::registry::Registries;
use crate::report::report;
use crate::rounds::Results;

fn main() -> ExitCode {
    let args = Args::parse();
    args.options.main("pulls", || {
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::Setup("layers are unpacked by root".to_owned()));
        }
        block_on(run(&args))
    })
}

/// Runs all measurements. Returns whether the budgets were met.
async fn run(args: &Args) -> Result<bool> {
    let plan = args.plan();
    let disk = Disk::new()?;
    let state = tempfile::Builder::new().prefix("crpull").tempdir_in("/run");
    let state = state.during(|| "making a folder in /run".to_owned())?;
    progress("making the images");
    let only = args.only.as_deref().unwrap_or_default();
    let images = shapes::make(&disk.path.join("images"), plan.size, only)?;
    let registries = Registries::start(&disk.path.join("registry"), &images, plan.rate).await?;
    let at = |name: &str| [disk.path.join(name), state.path().join(name)];
    let mut daemons = Vec::new();
    let binary = args.options.criscope(env!("CARGO_BIN_EXE_criscope"));
    daemons.push(Daemon::criscope(CRISCOPE, &binary, at("criscope"), &registries).await?);
    if let Some(binary) = &args.against {
        daemons.push(Daemon::criscope(OTHER, binary, at("other"), &registries).await?);
    }
    if !args.without_peers {
        daemons.push(Daemon::containerd(at("containerd"), &registries).await?);
        if find("crio", "cri-o").is_ok() {
            daemons.push(Daemon::crio(at("crio"), &registries).await?);
        }
    }
    let floors = Floor::all(&disk.path.join("floor"))?;
    let mut facts = machine();
    facts.extend([
        ("rounds", plan.rounds.to_string()),
        ("images", shapes::facts(&images)),
    ]);
    facts.extend(daemons.iter().map(|it| (it.name, it.version.clone())));
    let results = Results {
        facts,
        ..rounds::run(&plan, &images, &registries, &mut daemons, &floors).await?
    };
    report(&results).publish(&args.options)
}
