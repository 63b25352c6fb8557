//! The overhead of criscope, compared with socat and nginx in front of the same containerd, in one run.
//!
//! ```text
//! cargo bench --bench proxy               about four minutes
//! cargo bench --bench proxy -- --quick    about one
//! cargo bench --bench proxy -- --help     the rest
//! ```
//!
//! `docs/PERFORMANCE.md` describes the measurements. In reading order: [`args`] (sizes), [`containerd`] and [`upstream`]
//! (the runtimes), [`paths`] (the proxies), [`client`] and [`load`] (the calls), [`compare`] and [`memory`] (the
//! measurements), [`budget`] and [`report`] (the results).

mod args;
mod budget;
mod client;
mod compare;
mod containerd;
mod facts;
mod load;
mod memory;
mod message;
mod otlp;
mod paths;
mod report;
mod results;
mod upstream;

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use criscope::cri::v1;
use criscope_testkit::bench::{block_on, progress, server_thread, stats};
use criscope_testkit::{error, process};
use tempfile::TempDir;

use crate::args::{Args, Plan};
use crate::client::Prepared;
use crate::compare::{Shape, THOUSAND};
use crate::containerd::{Runtime, version_of};
use crate::error::{Error, IoContext, Result};
use crate::facts::Facts;
use crate::memory::{Idle, Memory};
use crate::otlp::Sink;
use crate::paths::{Kind, Proxies, Route};
use crate::process::adopt_orphans;
use crate::report::report;
use crate::results::{Results, Telemetry};
use crate::upstream::{Fake, List};

fn main() -> ExitCode {
    let args = Args::parse();
    args.options.main("proxy", || block_on(run(&args)))
}

/// Waits until no other run is active on this machine, because they would disturb each other. The lock is a name in the
/// abstract namespace, which is released when the process ends.
async fn alone() -> Result<UnixListener> {
    let doing = || "taking the name of the benchmark".to_owned();
    let name = SocketAddr::from_abstract_name("criscope-bench").during(doing)?;
    let mut told = false;
    loop {
        match UnixListener::bind_addr(&name) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            done => return done.during(doing),
        }
        if !told {
            eprintln!("waiting for another run on this machine to end");
            told = true;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Runs all measurements. Returns whether the budgets were met.
async fn run(args: &Args) -> Result<bool> {
    let _alone = alone().await?;
    adopt_orphans(true)?;
    let folder = tempfile::Builder::new()
        .prefix("criscope-bench-")
        .tempdir_in("/tmp")
        .during(|| "making a folder in /tmp".to_owned())?;
    let sink = Sink::start()?;
    let bench = Bench {
        plan: args.plan(),
        paths: args.paths(),
        proxies: Proxies::find(
            args.options.criscope(env!("CARGO_BIN_EXE_criscope")),
            sink.endpoint(),
        )?,
        sink,
        folder,
    };
    let results = bench.measure(args).await?;
    report(&results).publish(&args.options)
}

struct Bench {
    plan: Plan,
    paths: Vec<Kind>,
    proxies: Proxies,
    sink: Sink,
    folder: TempDir,
}

impl Bench {
    async fn measure(&self, args: &Args) -> Result<Results> {
        let runtime = match &args.upstream {
            Some(socket) => Runtime::existing(socket.clone()).await?,
            None => Runtime::start(self.folder.path()).await?,
        };
        let mut results = Results {
            facts: Facts::gather(args, &self.plan, &self.proxies, &runtime),
            latency: Vec::new(),
            throughput: Vec::new(),
            long_list: Vec::new(),
            memory: None,
            telemetry: None,
        };
        let idle = self.with_runtime(&runtime, &mut results).await?;
        self.with_fake(idle, &mut results).await?;
        if let Some(telemetry) = &mut results.telemetry {
            telemetry.spans = self.sink.spans();
        }
        Ok(results)
    }

    /// Latency and throughput. Returns criscope's idle memory.
    async fn with_runtime(&self, runtime: &Runtime, results: &mut Results) -> Result<Option<Idle>> {
        let folder = self.folder.path().join("real");
        let mut routes = self.start(&self.paths, &runtime.socket, &folder).await?;
        progress("idle memory");
        let mut idle = None;
        if let Some(route) = criscope(&routes) {
            idle = Some(Idle::of(route.process()?, self.plan.settle).await?);
        }
        let version = Prepared::runtime("Version", &v1::VersionRequest::default())?;
        let status = Prepared::runtime("Status", &v1::StatusRequest::default())?;
        for (method, call) in [("Version", &version), ("Status", &status)] {
            progress(&format!("one caller of {method}"));
            let latency = compare::latency(&routes, method, call, &self.plan).await?;
            results.latency.push(latency);
        }
        for shape in [Shape::Streams, Shape::Connections] {
            progress(shape.name());
            let throughput = compare::throughput(&routes, shape, &version, &self.plan).await?;
            results.throughput.push(throughput);
        }
        for process in routes.iter_mut().filter_map(|route| route.process.as_mut()) {
            process.check()?;
        }
        if let Some(route) = criscope(&routes) {
            results.telemetry = Some(Telemetry {
                series: route.scrape().await?,
                spans: 0,
            });
        }
        Ok(idle)
    }

    /// The long list and memory.
    async fn with_fake(&self, idle: Option<Idle>, results: &mut Results) -> Result<()> {
        let fake = Fake::start(self.folder.path())?;
        let mut kinds = self.paths.clone();
        kinds.retain(|&kind| kind != Kind::CriscopeAllTraced);
        let folder = self.folder.path().join("fake");
        let routes = self.start(&kinds, &fake.socket, &folder).await?;
        progress("list of 1,000 containers");
        fake.set_list(List::Thousand);
        let plan = Plan {
            latency_calls: self.plan.thousand_calls,
            ..self.plan
        };
        let thousand = compare::latency(&routes, THOUSAND, &list_call()?, &plan).await?;
        results.latency.push(thousand);
        fake.set_list(List::Short);
        let Some(route) = criscope(&routes) else {
            fake.set_list(List::Long);
            results.long_list = self.long_list(&routes).await?;
            return Ok(());
        };
        progress(&format!("{} calls", self.plan.memory_calls));
        let during_calls = memory::many_calls(route, self.plan.memory_calls).await?;

        fake.set_list(List::Long);
        let process = route.process()?;
        process.reset_peak()?;
        results.long_list = self.long_list(&routes).await?;
        let list_peak = process.peak_rss()?;
        let call = list_call()?;
        progress("list of 10 MB, slow reader");
        let slow_list_peak = memory::slow_list(route, &call).await?;
        drop(routes);

        progress("start in front of that list");
        let routes = self
            .start(&[Kind::Criscope], &fake.socket, &folder.join("again"))
            .await?;
        let mut start_peak = 0;
        if let Some(route) = criscope(&routes) {
            start_peak = memory::peak_after(route.process()?, self.plan.settle).await?;
        }
        results.memory = idle.map(|idle| Memory {
            idle,
            list_peak,
            slow_list_peak,
            start_peak,
            during_calls,
        });
        Ok(())
    }

    async fn long_list(&self, routes: &[Route]) -> Result<Vec<compare::ListRow>> {
        progress("list of 10 MB");
        compare::long_list(routes, &list_call()?, &self.plan).await
    }

    /// Starts paths to `upstream`, and checks that each reaches it.
    async fn start(&self, kinds: &[Kind], upstream: &Path, folder: &Path) -> Result<Vec<Route>> {
        let expected = version_of(upstream).await?;
        let mut routes = Vec::new();
        for &kind in kinds {
            let route = self.proxies.start(kind, upstream, folder).await?;
            let version = version_of(&route.socket).await?;
            if version != expected {
                let name = kind.name();
                return Err(Error::Setup(format!(
                    "{name} leads to {version}, not to {expected}"
                )));
            }
            routes.push(route);
        }
        Ok(routes)
    }
}

fn list_call() -> Result<Prepared> {
    Prepared::runtime("ListContainers", &v1::ListContainersRequest::default())
}

fn criscope(routes: &[Route]) -> Option<&Route> {
    routes.iter().find(|route| route.kind == Kind::Criscope)
}
