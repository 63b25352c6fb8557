//! Command line and sizes of the benchmark.

use std::path::PathBuf;

use clap::Parser;
use criscope_testkit::bench::Options;

/// Compares pulls by the built-in runtime with those of containerd and CRI-O.
#[derive(Debug, Parser)]
#[command(name = "pulls", bin_name = "cargo bench --bench pulls --")]
pub(crate) struct Args {
    /// Number of rounds
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Another criscope, to compare with in the same rounds
    #[arg(long, value_name = "PATH", conflicts_with_all = ["check", "write_docs"])]
    pub(crate) against: Option<PathBuf>,
    /// Only the images whose name contains this, such as "large" or "zstd"
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["check", "write_docs"])]
    pub(crate) only: Option<String>,
    /// Skip containerd and CRI-O
    #[arg(long, conflicts_with_all = ["check", "write_docs"])]
    pub(crate) without_peers: bool,
    #[command(flatten)]
    pub(crate) options: Options,
}

impl Args {
    /// The sizes of all measurements.
    pub(crate) fn plan(&self) -> Plan {
        let (rounds, size) = if self.options.quick {
            (2, 100 << 20)
        } else {
            (5, 300 << 20)
        };
        Plan {
            rounds: self.rounds.unwrap_or(rounds),
            size,
            rate: 25 << 20,
        }
    }
}

/// Sizes. Each side has its turn in each round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// How often each side pulls each image.
    pub(crate) rounds: usize,
    /// Bytes of the files of an image.
    pub(crate) size: usize,
    /// Bytes per second and connection of the slow registry.
    pub(crate) rate: usize,
}
