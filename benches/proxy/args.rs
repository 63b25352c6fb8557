//! Command line and sizes of the benchmark.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use criscope_testkit::bench::Options;

use crate::paths::Kind;

/// Compares criscope with socat and nginx in front of the same containerd.
#[derive(Debug, Parser)]
#[command(name = "proxy", bin_name = "cargo bench --bench proxy --")]
pub(crate) struct Args {
    /// Measure these paths only, and always the direct one
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with_all = ["check", "write_docs"])]
    paths: Vec<Kind>,
    /// The CRI socket behind the paths, instead of that of a private containerd
    #[arg(long, value_name = "SOCKET")]
    pub(crate) upstream: Option<PathBuf>,
    /// Number of calls during which memory must not grow [default: 1000000, with --quick 100000]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1_000..))]
    calls: Option<u64>,
    #[command(flatten)]
    pub(crate) options: Options,
}

impl Args {
    /// The paths to measure, the direct one first.
    pub(crate) fn paths(&self) -> Vec<Kind> {
        let chosen = |kind: &Kind| {
            *kind == Kind::Direct || self.paths.is_empty() || self.paths.contains(kind)
        };
        Kind::value_variants()
            .iter()
            .copied()
            .filter(chosen)
            .collect()
    }

    /// The sizes of all measurements.
    pub(crate) fn plan(&self) -> Plan {
        let plan = if self.options.quick {
            Plan::QUICK
        } else {
            Plan::FULL
        };
        Plan {
            memory_calls: self.calls.unwrap_or(plan.memory_calls),
            ..plan
        }
    }
}

/// Numbers of rounds, calls and durations. Each path has a block in each round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Rounds with one caller.
    pub(crate) latency_rounds: usize,
    /// Calls per block of one caller.
    pub(crate) latency_calls: usize,
    /// The same of the list of 1,000 containers.
    pub(crate) thousand_calls: usize,
    /// Rounds with 16 callers.
    pub(crate) throughput_rounds: usize,
    /// Duration of a block of 16 callers.
    pub(crate) throughput_block: Duration,
    /// Rounds of the long list, one call per block.
    pub(crate) list_rounds: usize,
    /// Calls during which memory must not grow.
    pub(crate) memory_calls: u64,
    /// Pause before criscope's idle memory is read.
    pub(crate) settle: Duration,
}

impl Plan {
    const FULL: Self = Self {
        latency_rounds: 60,
        latency_calls: 500,
        thousand_calls: 50,
        throughput_rounds: 15,
        throughput_block: Duration::from_millis(1_000),
        list_rounds: 30,
        memory_calls: 1_000_000,
        settle: Duration::from_secs(5),
    };
    const QUICK: Self = Self {
        latency_rounds: 20,
        latency_calls: 300,
        thousand_calls: 30,
        throughput_rounds: 7,
        throughput_block: Duration::from_millis(400),
        list_rounds: 15,
        memory_calls: 100_000,
        settle: Duration::from_secs(3),
    };
}
