//! Command line and sizes of the benchmark.

use std::path::PathBuf;

use clap::Parser;
use criscope_testkit::bench::Options;

use crate::node;

/// Compares the built-in runtime with containerd, and both with the bare OCI runtime and CNI plugins.
#[derive(Debug, Parser)]
#[command(name = "runtime", bin_name = "cargo bench --bench runtime --")]
pub(crate) struct Args {
    /// The shim to measure [default: the one that cargo built for this run]
    #[arg(long, value_name = "PATH")]
    shim: Option<PathBuf>,
    /// Number of rounds of one pod after the other, and of sessions
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Measure pods one after the other only: no concurrent pods, no memory, no sessions
    #[arg(long, conflicts_with_all = ["check", "write_docs"])]
    pub(crate) one_by_one: bool,
    /// Measure sessions only: exec and port-forward
    #[arg(long, conflicts_with_all = ["one_by_one", "check", "write_docs"])]
    pub(crate) sessions_only: bool,
    /// Measure a node with hundreds of pods only, after which nothing else is measured
    #[arg(long, conflicts_with_all = ["one_by_one", "sessions_only"])]
    pub(crate) node: bool,
    /// Measure memory under an hour of gentle load only: pods, sessions, pulls, lists and scrapes
    #[arg(long, conflicts_with_all = ["one_by_one", "sessions_only", "node"])]
    pub(crate) soak: bool,
    /// Minutes of that load [default: 60, with --quick 5]; growth is checked from 30
    #[arg(
        long,
        value_name = "N",
        requires = "soak",
        conflicts_with = "write_docs"
    )]
    minutes: Option<usize>,
    /// Number of pods of a full node
    #[arg(long, value_name = "N", requires = "node", conflicts_with_all = ["check", "write_docs"])]
    pods: Option<usize>,
    /// Skip containerd and every comparison with it
    #[arg(long, conflicts_with_all = ["check", "write_docs"])]
    pub(crate) without_containerd: bool,
    #[command(flatten)]
    pub(crate) options: Options,
}

impl Args {
    /// The shim to measure.
    pub(crate) fn shim(&self) -> PathBuf {
        let built = || PathBuf::from(env!("CARGO_BIN_EXE_criscope-shim"));
        self.shim.clone().unwrap_or_else(built)
    }

    /// The sizes of a full node.
    pub(crate) fn node_plan(&self) -> node::Plan {
        let plan = if self.options.quick {
            node::Plan::QUICK
        } else {
            node::Plan::FULL
        };
        node::Plan {
            many: self.pods.unwrap_or(plan.many),
            ..plan
        }
    }

    /// Minutes of load of a soak.
    pub(crate) fn soak_minutes(&self) -> usize {
        self.minutes
            .unwrap_or(if self.options.quick { 5 } else { 60 })
    }

    /// The sizes of all measurements.
    pub(crate) fn plan(&self) -> Plan {
        let plan = if self.options.quick {
            Plan::QUICK
        } else {
            Plan::FULL
        };
        Plan {
            rounds: self.rounds.unwrap_or(plan.rounds),
            sessions: self.rounds.unwrap_or(plan.sessions),
            ..plan
        }
    }
}

/// Numbers of rounds and pods. Each side has its turn in each round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Rounds of one pod after the other.
    pub(crate) rounds: usize,
    /// Rounds of many pods, ten at a time.
    pub(crate) crowds: usize,
    /// Pods of such a round.
    pub(crate) crowd: usize,
    /// Pods that run while memory is read.
    pub(crate) held: usize,
    /// Rounds of sessions.
    pub(crate) sessions: usize,
}

impl Plan {
    const FULL: Self = Self {
        rounds: 60,
        crowds: 2,
        crowd: 100,
        held: 50,
        sessions: 9,
    };
    const QUICK: Self = Self {
        rounds: 9,
        crowds: 1,
        crowd: 40,
        held: 20,
        sessions: 3,
    };
}
