//! What one cgroup uses, from its files: cgroup v1 and v2 in the same units.
//!
//! Sizes are bytes, times nanoseconds. What the kernel does not say (a controller that is not there, pressure with
//! version 1) is `None`, never zero.

mod parse;
mod v1;
mod v2;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Cgroup, CgroupVersion};
#[doc(hidden)]
pub use parse::fuzz;

/// A limit above this one is none: the kernel rounds the largest number down to whole pages.
const UNLIMITED: u64 = 1 << 62;

/// Why a cgroup cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not there, or vanished meanwhile.
    #[error("{}: no such cgroup", path.display())]
    NotFound {
        /// Its first directory.
        path: PathBuf,
    },
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file is not as the kernel writes it.
    #[error("{}: not as expected", path.display())]
    Format {
        /// The file.
        path: PathBuf,
    },
}

/// What a cgroup uses, and may use, at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    /// When it was read: nanoseconds since 1970.
    pub at: i64,
    /// Time on CPUs.
    pub cpu: Option<Cpu>,
    /// Memory.
    pub memory: Option<Memory>,
    /// Block devices.
    pub io: Option<Io>,
    /// Processes and threads.
    pub pids: Option<Pids>,
    /// Huge pages, by size.
    pub huge_pages: Vec<HugePages>,
}

/// Time on CPUs, and what limits it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cpu {
    /// In all.
    pub usage: u64,
    /// In user mode.
    pub user: u64,
    /// In the kernel.
    pub system: u64,
    /// Periods in which it could have been throttled; counted only while there is a quota.
    pub periods: u64,
    /// Periods in which it was.
    pub throttled_periods: u64,
    /// How long it was.
    pub throttled: u64,
    /// The length of a period in microseconds.
    pub period_us: Option<u64>,
    /// Microseconds per period; `None` without a quota.
    pub quota_us: Option<u64>,
    /// Its share among its siblings, in shares of version 1: 1024 is usual.
    pub shares: Option<u64>,
    /// Waiting for a CPU.
    pub pressure: Option<Pressure>,
}

/// Memory, and what limits it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// With the page cache.
    pub usage: u64,
    /// Without the part of the page cache that would be given back first: what the kubelet evicts by.
    pub working_set: u64,
    /// The most it used.
    pub max_usage: Option<u64>,
    /// Its own limit; `None` without one.
    pub limit: Option<u64>,
    /// What it is left when memory is short; `None` when nothing is said.
    pub reservation: Option<u64>,
    /// Anonymous memory.
    pub rss: u64,
    /// The page cache.
    pub cache: u64,
    /// Mapped files.
    pub mapped_file: u64,
    /// The kernel's own, for it.
    pub kernel: Option<u64>,
    /// Page cache in use.
    pub active_file: u64,
    /// Page cache not in use.
    pub inactive_file: u64,
    /// How often it ran against its limit.
    pub limit_hits: u64,
    /// Swap; `None` where the kernel does not account it.
    pub swap: Option<u64>,
    /// The most swap it may use; `None` without a limit.
    pub swap_limit: Option<u64>,
    /// Page faults.
    pub page_faults: u64,
    /// Those that had to read from a disk.
    pub major_page_faults: u64,
    /// Processes killed for want of memory.
    pub oom_kills: Option<u64>,
    /// Waiting for memory.
    pub pressure: Option<Pressure>,
}

/// Block devices.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Io {
    /// One by one; none where nothing was read or written.
    pub devices: Vec<DeviceIo>,
    /// Waiting for them.
    pub pressure: Option<Pressure>,
}

/// One block device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceIo {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// Processes and threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pids {
    /// As the kernel counts them: threads.
    pub current: u64,
    /// The most there may be; `None` without a limit.
    pub limit: Option<u64>,
}

/// Huge pages of one size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HugePages {
    /// As the kernel writes it, `2MB`.
    pub size: String,
    /// Used.
    pub usage: u64,
    /// The most that was used; `None` where it is not kept.
    pub max_usage: Option<u64>,
}

/// Pressure stall information of one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pressure {
    /// Some tasks waited.
    pub some: Stalled,
    /// All did. The kernel leaves it out where it means nothing.
    pub full: Option<Stalled>,
}

/// How much was waited.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stalled {
    /// Percent of the last 10 s.
    pub avg10: f64,
    /// Percent of the last minute.
    pub avg60: f64,
    /// Percent of the last five minutes.
    pub avg300: f64,
    /// In all, in nanoseconds; the kernel's own unit is the microsecond.
    pub total: u64,
}

/// Reads all of a cgroup's files that say what it uses.
///
/// # Errors
/// [`Error::NotFound`] when it is not there or vanished meanwhile.
pub fn read(cgroup: &Cgroup) -> Result<Usage, Error> {
    let first = cgroup.dirs().next().unwrap_or(Path::new("")).to_owned();
    let mut usage = match cgroup.version() {
        CgroupVersion::V1 => v1::read(cgroup)?,
        CgroupVersion::V2 => v2::read(cgroup.dir("").unwrap_or(&first))?,
    };
    // Files that are not there are controllers that are not there, unless the cgroup is gone altogether.
    if !cgroup.exists() || usage.cpu.is_none() && usage.memory.is_none() && usage.pids.is_none() {
        return Err(Error::NotFound { path: first });
    }
    usage.at = now();
    Ok(usage)
}

/// Nanoseconds since 1970.
#[must_use]
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    })
}

/// Limits as large as the largest number are none.
fn limited(value: u64) -> Option<u64> {
    (value < UNLIMITED).then_some(value)
}
