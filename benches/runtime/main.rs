//! The overhead of the built-in runtime, compared with containerd and with the bare OCI runtime and CNI plugins, in one
//! run.
//!
//! ```text
//! cargo bench --bench runtime               about eight minutes
//! cargo bench --bench runtime -- --quick    less than two
//! cargo bench --bench runtime -- --node     a node full of pods, about eight minutes
//! cargo bench --bench runtime -- --soak     an hour of load
//! cargo bench --bench runtime -- --help     the rest
//! ```
//!
//! `docs/PERFORMANCE.md` describes the measurements. In reading order: [`args`] (sizes), [`ground`], [`image`] and
//! [`network`] (the environment of the pods), [`bare`] and [`daemons`] (the sides), [`cri`] (the calls), [`rounds`],
//! [`crowd`], [`held`], [`sessions`], [`node`] and [`soak`] (the measurements), [`budget`] and [`report`] (the results). It needs root.

mod args;
mod bare;
mod budget;
mod cri;
mod crowd;
mod daemons;
mod ground;
mod held;
mod image;
mod network;
mod node;
mod report;
mod results;
mod rounds;
mod sessions;
mod sides;
mod soak;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use criscope_testkit::bench::{block_on, machine, progress, stats};
use criscope_testkit::{error, process};
use serde_json::{Value, json};

use crate::args::{Args, Plan};
use crate::bare::Bare;
use crate::cri::Place;
use crate::daemons::{Daemon, Room};
use crate::error::{Error, IoContext, Result};
use crate::ground::Ground;
use crate::image::Image;
use crate::network::Network;
use crate::process::{find, version};
use crate::report::report;
use crate::results::Results;
use crate::rounds::Side;
use crate::sides::{CONTAINERD, CRUN, RUNC};

fn main() -> ExitCode {
    let args = Args::parse();
    args.options.main("runtime", || start(&args))
}

/// Measures until done or interrupted. The ground is dropped last, when no task or thread of the runtime can create
/// anything in it any more.
fn start(args: &Args) -> Result<bool> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::Setup("pods need root".to_owned()));
    }
    let mut ground = Ground::new()?;
    block_on(run(args, &mut ground))
}

/// Runs all measurements. Returns whether the budgets were met.
async fn run(args: &Args, ground: &mut Ground) -> Result<bool> {
    let runc = find("runc", "runc")?;
    let crun = find("crun", "crun").ok().filter(|_| ground.hugetlb());
    let image = Image::make(&ground.disk).await?;
    let subnet = |number: u8| format!("10.213.{}.0/19", number * 32);
    let network =
        |letter, number| Network::make(&ground.disk, &ground.bridge(letter), &subnet(number));
    let (of_bare, of_runc) = (network('b', 0)?, network('o', 1)?);
    let (of_crun, of_containerd) = (network('u', 2)?, network('c', 3)?);
    let room = |name: &str, network| Room {
        root: ground.disk.join(name),
        state: ground.run.join(name),
        network,
        image: &image,
        place: Place {
            cgroup: ground.cgroup(),
            logs: ground.disk.join("logs").join(name),
        },
    };
    let (criscope, shim) = (
        args.options.criscope(env!("CARGO_BIN_EXE_criscope")),
        args.shim(),
    );
    let programs = [&*criscope, &*shim];
    let ours = room("ours", &of_runc);
    let mut daemons = vec![(
        RUNC,
        Daemon::criscope(&ours, programs, ("runc", &runc), false).await?,
    )];
    if let Some(crun) = crun
        .as_ref()
        .filter(|_| !(args.sessions_only || args.node || args.soak))
    {
        let room = room("crun", &of_crun);
        let daemon = Daemon::criscope(&room, programs, ("crun", crun), true).await?;
        daemons.push((CRUN, daemon));
    }
    if !args.without_containerd && !args.soak {
        let daemon = Daemon::containerd(&room("ctrd", &of_containerd), &runc).await?;
        daemons.push((CONTAINERD, daemon));
    }
    let plan = args.plan();
    let facts = facts(args, &plan, &daemons, &runc, crun.as_deref());
    if args.node {
        let bare = bare(&mut daemons[0].1, &ours, ground, runc, of_bare).await?;
        let cgroup = ground.cgroup();
        let plan = args.node_plan();
        let measured = node::run(plan, &bare, &mut daemons, &cgroup, &criscope).await?;
        let results = node::Results { facts, ..measured };
        return node::report(&results).publish(&args.options);
    }
    if args.soak {
        let (minutes, daemon) = (args.soak_minutes(), &mut daemons[0].1);
        let measured = soak::run(minutes, daemon, &image, &criscope).await?;
        let results = soak::Results { facts, ..measured };
        return soak::report(&results).publish(&args.options);
    }
    let mut results = Results {
        facts,
        ..Results::default()
    };
    if !args.sessions_only {
        let bare = bare(&mut daemons[0].1, &ours, ground, runc, of_bare).await?;
        let cgroup = ground.cgroup();
        measure_pods(args, &plan, &bare, &mut daemons, &cgroup, &mut results).await?;
    }
    if !args.one_by_one {
        progress("sessions");
        let with_runc = daemons.iter_mut().filter(|(name, _)| *name != CRUN);
        let with_runc = with_runc.map(|(name, daemon)| (*name, daemon));
        results.sessions = sessions::run(with_runc, plan.sessions).await?;
    }
    for (_, daemon) in &mut daemons {
        daemon.process.check()?;
    }
    report(&results).publish(&args.options)
}

async fn measure_pods(
    args: &Args,
    plan: &Plan,
    bare: &Arc<Bare>,
    daemons: &mut [(&'static str, Daemon)],
    cgroup: &str,
    results: &mut Results,
) -> Result<()> {
    let side = |(name, daemon): &(&'static str, Daemon)| Side {
        name,
        cri: daemon.cri.clone(),
    };
    let mut sides: Vec<Side> = daemons.iter().map(side).collect();
    progress("one pod after the other");
    results.rows = rounds::run(bare, &mut sides, cgroup, plan.rounds).await?;
    if args.one_by_one {
        return Ok(());
    }
    for (name, daemon) in daemons.iter_mut().filter(|(name, _)| *name != CRUN) {
        progress(&format!("memory of {} pods, {name}", plan.held));
        let held = held::measure(name, daemon, plan.held, *name == CONTAINERD).await?;
        results.held.push(held);
    }
    progress(&format!("{} pods, ten at a time", plan.crowd));
    results.crowds = crowd::run(bare, &sides, cgroup, plan.crowds, plan.crowd).await?;
    Ok(())
}

/// The bare calls, with what criscope creates for a container.
async fn bare(
    daemon: &mut Daemon,
    room: &Room<'_>,
    ground: &Ground,
    runc: PathBuf,
    network: Network,
) -> Result<Arc<Bare>> {
    let spec = template(daemon, room, &ground.disk).await?;
    let (layer, folder) = (room.image.layer.clone(), ground.run.join("bare"));
    Ok(Arc::new(Bare::new(runc, network, layer, folder, spec)))
}

/// The specification that criscope creates for a container of the image, without references to its pod.
async fn template(daemon: &mut Daemon, room: &Room<'_>, folder: &Path) -> Result<Value> {
    let pod = daemon.cri.run("template").await?;
    let id = daemon.cri.start(&pod, "main").await?;
    let file = room
        .root
        .join("runtime/containers")
        .join(id)
        .join("config.json");
    let text = fs::read(&file).during(|| format!("reading {}", file.display()))?;
    let mut spec: Value = serde_json::from_slice(&text)
        .map_err(|error| Error::Setup(format!("{}: {error}", file.display())))?;
    let mounts = spec["mounts"].as_array_mut().into_iter().flatten();
    for (number, mount) in mounts.enumerate() {
        let source = PathBuf::from(mount["source"].as_str().unwrap_or_default());
        if source.is_dir() && mount["destination"] == "/dev/shm" {
            mount["source"] = json!("/dev/shm");
        } else if source.is_file() {
            let copy = folder.join(format!("mount-{number}"));
            fs::copy(&source, &copy).during(|| format!("copying {}", source.display()))?;
            mount["source"] = json!(copy);
        }
    }
    daemon.cri.end(pod).await?;
    Ok(spec)
}

fn facts(
    args: &Args,
    plan: &Plan,
    daemons: &[(&'static str, Daemon)],
    runc: &Path,
    crun: Option<&Path>,
) -> Vec<(&'static str, String)> {
    let crun = crun.map_or("not measured".to_owned(), |crun| version(crun, "--version"));
    let mut facts = machine();
    facts.extend([
        (
            "OCI runtimes",
            format!("{}, {crun}", version(runc, "--version")),
        ),
        (
            "rounds",
            if args.sessions_only {
                format!("{} of sessions", plan.sessions)
            } else if args.node || args.soak {
                "1".to_owned()
            } else {
                format!(
                    "{} of one pod after the other; {} of {} pods, ten at a time; {} pods for memory; {} of sessions",
                    plan.rounds, plan.crowds, plan.crowd, plan.held, plan.sessions
                )
            },
        ),
    ]);
    facts.extend(
        daemons
            .iter()
            .map(|(name, daemon)| (*name, daemon.version.clone())),
    );
    facts
}
