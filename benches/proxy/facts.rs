//! Facts about the machine and the versions of programs, for the report.

use std::fs;

use criscope_testkit::bench::{cores, first_line};
use serde::Serialize;

use crate::args::{Args, Plan};
use crate::containerd::Runtime;
use crate::paths::{Kind, Proxies};
use crate::process::version;

/// Name and value of each fact, in the order of the report.
#[derive(Debug, Serialize)]
pub(crate) struct Facts(pub(crate) Vec<(&'static str, String)>);

impl Facts {
    /// Collects them from the kernel and the programs.
    pub(crate) fn gather(args: &Args, plan: &Plan, proxies: &Proxies, runtime: &Runtime) -> Self {
        let mut facts = vec![
            ("kernel", first_line("/proc/sys/kernel/osrelease")),
            (
                "processor",
                format!(
                    "{} cores, {}",
                    cores(),
                    field("/proc/cpuinfo", "model name")
                ),
            ),
            ("memory", field("/proc/meminfo", "MemTotal")),
            ("load before the run", load()),
            ("runtime", runtime.version.clone()),
            (
                "socat",
                version(&proxies.socat, "-V")
                    .replace("socat version ", "")
                    .split_whitespace()
                    .next()
                    .unwrap_or("unknown")
                    .to_owned(),
            ),
            (
                "nginx",
                version(&proxies.nginx, "-v").replace("nginx version: nginx/", ""),
            ),
        ];
        if args.paths().contains(&Kind::Criscope) {
            facts.push(("criscope", version(&proxies.criscope, "--version")));
        }
        facts.push((
            "rounds",
            format!(
                "{} of {} calls at 1 caller; {} of {:?} at 16; {} lists; {} calls for memory",
                plan.latency_rounds,
                plan.latency_calls,
                plan.throughput_rounds,
                plan.throughput_block,
                plan.list_rounds,
                plan.memory_calls,
            ),
        ));
        if args.upstream.is_some() {
            facts.push(("note", "the runtime was not started by this run".to_owned()));
        }
        Self(facts)
    }
}

/// The load averages over 1, 5 and 15 minutes.
fn load() -> String {
    let line = first_line("/proc/loadavg");
    let averages: Vec<&str> = line.split(' ').take(3).collect();
    averages.join(", ")
}

/// The value of the first `name : value` line.
fn field(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))
        .map_or_else(|| "unknown".to_owned(), |value| value.trim().to_owned())
}
