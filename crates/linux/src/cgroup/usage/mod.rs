//! Resource usage of one cgroup, from its files: cgroup v1 and v2 in the same units.
//!
//! Sizes are in bytes, times in nanoseconds. A value that the kernel does not provide (a missing controller, pressure with
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

/// Limits above this mean no limit: the kernel rounds its maximum down to whole pages.
const UNLIMITED: u64 = 1 << 62;

/// Why the usage of a cgroup cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cgroup does not exist, or was removed during the read.
    #[error("{}: no such cgroup", path.display())]
    NotFound {
        /// The first directory.
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
    /// A file does not have the kernel's format.
    #[error("{}: not as expected", path.display())]
    Format {
        /// The file.
        path: PathBuf,
    },
}

/// How much is read. Each file costs several microseconds, and a list of statistics reads the cgroups of the whole node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// The statistics of the CRI: CPU time, memory, swap, pressure, and the number of processes. All other
    /// values keep their defaults.
    Statistics,
    /// Everything.
    All,
}

impl Detail {
    /// The value, if all is to be read.
    fn or_none<T>(
        self,
        read: impl FnOnce() -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        match self {
            Self::Statistics => Ok(None),
            Self::All => read(),
        }
    }
}

/// Usage and limits of a cgroup at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    /// When it was read, in nanoseconds since 1970.
    pub at: i64,
    /// CPU time.
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

/// CPU time and its limits.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cpu {
    /// Total.
    pub usage: u64,
    /// In user mode.
    pub user: u64,
    /// In the kernel.
    pub system: u64,
    /// Enforcement periods; counted only while there is a quota.
    pub periods: u64,
    /// Periods in which it was throttled.
    pub throttled_periods: u64,
    /// Throttled time.
    pub throttled: u64,
    /// Length of a period in microseconds.
    pub period_us: Option<u64>,
    /// Microseconds per period; `None` without a quota.
    pub quota_us: Option<u64>,
    /// CPU weight among its siblings, in shares of version 1; the default is 1024.
    pub shares: Option<u64>,
    /// CPU pressure.
    pub pressure: Option<Pressure>,
}

/// Memory usage and limits.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// Usage, including the page cache.
    pub usage: u64,
    /// Working set: usage without the inactive page cache, which the kubelet uses for evictions.
    pub working_set: u64,
    /// Peak usage.
    pub max_usage: Option<u64>,
    /// Memory limit; `None` without one.
    pub limit: Option<u64>,
    /// Memory protected from reclaim under pressure; `None` if not set.
    pub reservation: Option<u64>,
    /// Anonymous memory.
    pub rss: u64,
    /// The page cache.
    pub cache: u64,
    /// Mapped files.
    pub mapped_file: u64,
    /// Kernel memory that is charged to it.
    pub kernel: Option<u64>,
    /// Active page cache.
    pub active_file: u64,
    /// Inactive page cache.
    pub inactive_file: u64,
    /// How often the limit was reached.
    pub limit_hits: u64,
    /// Swap usage; `None` without swap accounting.
    pub swap: Option<u64>,
    /// Swap limit; `None` without one.
    pub swap_limit: Option<u64>,
    /// Page faults.
    pub page_faults: u64,
    /// Major page faults, which had to read from a disk.
    pub major_page_faults: u64,
    /// OOM kills.
    pub oom_kills: Option<u64>,
    /// Memory pressure.
    pub pressure: Option<Pressure>,
}

/// Block devices.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Io {
    /// By device; empty without I/O.
    pub devices: Vec<DeviceIo>,
    /// I/O pressure.
    pub pressure: Option<Pressure>,
}

impl Io {
    /// The entry of a device, which is added if there is none yet.
    pub fn device(&mut self, major: u32, minor: u32) -> &mut DeviceIo {
        let known = self
            .devices
            .iter()
            .position(|one| (one.major, one.minor) == (major, minor));
        let at = known.unwrap_or_else(|| {
            self.devices.push(DeviceIo {
                major,
                minor,
                ..DeviceIo::default()
            });
            self.devices.len() - 1
        });
        &mut self.devices[at]
    }
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
    /// Number of threads, which is what the kernel counts.
    pub current: u64,
    /// Limit; `None` without one.
    pub limit: Option<u64>,
}

/// Usage of huge pages of one size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HugePages {
    /// The size in the kernel's notation, `2MB`.
    pub size: String,
    /// Usage.
    pub usage: u64,
    /// Peak usage; `None` if the kernel does not record it.
    pub max_usage: Option<u64>,
}

/// Pressure stall information of one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pressure {
    /// Time in which some tasks were stalled.
    pub some: Stalled,
    /// Time in which all tasks were stalled. The kernel omits it where it has no meaning.
    pub full: Option<Stalled>,
}

/// Share and duration of stalls.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stalled {
    /// Percent of the last 10 s.
    pub avg10: f64,
    /// Percent of the last minute.
    pub avg60: f64,
    /// Percent of the last five minutes.
    pub avg300: f64,
    /// Total in nanoseconds; the unit of the kernel is the microsecond.
    pub total: u64,
}

impl Memory {
    /// Usage that a lower limit cannot reclaim: without the page cache. Files in a tmpfs count, since they are in no list of files.
    #[must_use]
    pub fn held(&self) -> u64 {
        let reclaimable = self.active_file.saturating_add(self.inactive_file);
        self.usage.saturating_sub(reclaimable)
    }
}

/// Reads the usage files of a cgroup.
///
/// # Errors
/// [`Error::NotFound`] if it does not exist or was removed during the read.
pub fn read(cgroup: &Cgroup, detail: Detail) -> Result<Usage, Error> {
    let first = cgroup.dirs().next().unwrap_or(Path::new("")).to_owned();
    let mut usage = match cgroup.version() {
        CgroupVersion::V1 => v1::read(cgroup, detail)?,
        CgroupVersion::V2 => v2::read(cgroup.dir("").unwrap_or(&first), detail)?,
    };
    let parts = [
        usage.cpu.is_some(),
        usage.memory.is_some(),
        usage.pids.is_some(),
    ];
    // Missing files mean missing controllers, unless the cgroup itself was removed.
    if parts == [false; 3] || parts != [true; 3] && !cgroup.exists() {
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

/// Maps limits near the largest number, which mean no limit, to `None`.
#[must_use]
pub fn limited(value: u64) -> Option<u64> {
    (value < UNLIMITED).then_some(value)
}

/// Asserts that statistics alone are the same as among all values.
#[cfg(test)]
fn same_statistics(statistics: &Usage, all: &Usage) {
    let cpu = |usage: &Usage| usage.cpu.as_ref().map(|cpu| (cpu.usage, cpu.pressure));
    let memory = |usage: &Usage| {
        let memory = usage.memory.clone()?;
        let Memory {
            usage,
            working_set,
            rss,
            limit,
            swap,
            swap_limit,
            ..
        } = memory;
        let faults = (memory.page_faults, memory.major_page_faults);
        Some((
            usage,
            working_set,
            rss,
            limit,
            swap,
            swap_limit,
            faults,
            memory.pressure,
        ))
    };
    let io = |usage: &Usage| usage.io.as_ref().and_then(|io| io.pressure);
    let pids = |usage: &Usage| usage.pids.map(|pids| pids.current);
    assert_eq!(cpu(statistics), cpu(all));
    assert_eq!(memory(statistics), memory(all));
    assert_eq!((io(statistics), pids(statistics)), (io(all), pids(all)));
    assert!(cpu(statistics).is_some() && memory(statistics).is_some());
}
