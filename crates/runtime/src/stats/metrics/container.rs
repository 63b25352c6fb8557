//! The metrics of one container.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use criscope_linux::cgroup::usage::{Cpu, Io, Memory, Pressure, Usage};

use super::table::{self, Kind};
use super::{Identity, Writer};
use crate::stats::disk::Size;
use crate::stats::processes::Processes;
use criscope_cri::v1;

const SECOND: u64 = 1_000_000_000;

/// The measurements of a running container.
#[derive(Debug)]
pub struct Container<'a> {
    /// The identity.
    pub identity: Identity<'a>,
    /// The usage of its cgroup.
    pub usage: &'a Usage,
    /// When it was started: nanoseconds since 1970.
    pub started_at: i64,
    /// The processes; `None` if they could not be read.
    pub processes: Option<Processes>,
    /// The file system of its writable layer.
    pub filesystem: Option<Filesystem>,
}

/// The file system of a writable layer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filesystem {
    /// `MAJOR:MINOR`.
    pub device: String,
    /// The size in bytes.
    pub bytes: u64,
    /// The inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// The usage of the layer.
    pub used: Size,
}

impl Filesystem {
    /// The file system of a path, for a layer with this usage.
    ///
    /// # Errors
    /// If stat(2) or statvfs(3) fails.
    pub fn measure(path: &Path, used: Size) -> io::Result<Self> {
        let device = std::fs::metadata(path)?.dev();
        let all = rustix::fs::statvfs(path)?;
        Ok(Self {
            device: numbers(nix::sys::stat::major(device), nix::sys::stat::minor(device)),
            bytes: all.f_blocks.saturating_mul(all.f_frsize),
            inodes: all.f_files,
            inodes_free: all.f_ffree,
            used,
        })
    }
}

fn numbers(major: impl std::fmt::Display, minor: impl std::fmt::Display) -> String {
    format!("{major}:{minor}")
}

/// The metrics of a container, without the ones that have no value.
#[must_use]
pub fn container_metrics(container: &Container<'_>) -> v1::ContainerMetrics {
    let now = crate::stats::now();
    let usage = container.usage;
    let mut to = Writer::new(container.identity, now);
    to.put(&table::LAST_SEEN, seconds(now));
    to.put(&table::START_TIME, seconds(container.started_at));
    if let Some(cpu) = &usage.cpu {
        self::cpu(&mut to, cpu);
    }
    if let Some(memory) = &usage.memory {
        self::memory(&mut to, memory);
    }
    for pages in &usage.huge_pages {
        let size = [pages.size.as_str()];
        to.put_with(&table::HUGE_PAGES, &size, pages.usage);
        if let Some(most) = pages.max_usage {
            to.put_with(&table::HUGE_PAGES_MAX, &size, most);
        }
    }
    if let Some(io) = &usage.io {
        self::io(&mut to, io);
    }
    if let Some(pids) = &usage.pids {
        to.put(&table::THREADS, pids.current);
        to.put(&table::THREADS_MAX, pids.limit.unwrap_or(0));
    }
    if let Some(processes) = &container.processes {
        to.put(&table::PROCESSES, processes.processes);
        if let Some(files) = &processes.files {
            to.put(&table::FILE_DESCRIPTORS, files.file_descriptors);
            to.put(&table::SOCKETS, files.sockets);
        }
        if let Some(limit) = processes.max_open_files {
            to.put_with(&table::ULIMITS, &["max_open_files"], limit);
        }
    }
    if let Some(filesystem) = &container.filesystem {
        let device = [filesystem.device.as_str()];
        to.put_with(&table::FS_USAGE, &device, filesystem.used.bytes);
        to.put_with(&table::FS_LIMIT, &device, filesystem.bytes);
        to.put_with(&table::FS_INODES, &device, filesystem.inodes);
        to.put_with(&table::FS_INODES_FREE, &device, filesystem.inodes_free);
    }
    v1::ContainerMetrics {
        container_id: container.identity.id.to_owned(),
        metrics: to.metrics,
    }
}

fn seconds(nanoseconds: i64) -> u64 {
    u64::try_from(nanoseconds).unwrap_or(0) / SECOND
}

fn cpu(to: &mut Writer, cpu: &Cpu) {
    to.put(&table::CPU_USAGE, cpu.usage / SECOND);
    to.put(&table::CPU_USER, cpu.user / SECOND);
    to.put(&table::CPU_SYSTEM, cpu.system / SECOND);
    to.put(&table::CPU_PERIODS, cpu.periods);
    to.put(&table::CPU_THROTTLED_PERIODS, cpu.throttled_periods);
    to.put(&table::CPU_THROTTLED, cpu.throttled / SECOND);
    to.put(&table::SPEC_PERIOD, cpu.period_us.unwrap_or(0));
    to.put(&table::SPEC_SHARES, cpu.shares.unwrap_or(0));
    if let Some(quota) = cpu.quota_us {
        to.put(&table::SPEC_QUOTA, quota);
    }
    pressure(to, cpu.pressure, &table::CPU_WAITING, &table::CPU_STALLED);
}

fn memory(to: &mut Writer, memory: &Memory) {
    for (kind, value) in [
        (&table::MEMORY_USAGE, memory.usage),
        (&table::MEMORY_WORKING_SET, memory.working_set),
        (&table::MEMORY_MAX_USAGE, memory.max_usage.unwrap_or(0)),
        (&table::MEMORY_RSS, memory.rss),
        (&table::MEMORY_CACHE, memory.cache),
        (&table::MEMORY_MAPPED_FILE, memory.mapped_file),
        (&table::MEMORY_KERNEL, memory.kernel.unwrap_or(0)),
        (&table::MEMORY_SWAP, memory.swap.unwrap_or(0)),
        (&table::MEMORY_FAILCNT, memory.limit_hits),
        (&table::MEMORY_ACTIVE_FILE, memory.active_file),
        (&table::MEMORY_INACTIVE_FILE, memory.inactive_file),
        (&table::OOM_EVENTS, memory.oom_kills.unwrap_or(0)),
        (&table::SPEC_MEMORY, memory.limit.unwrap_or(0)),
        (&table::SPEC_RESERVATION, memory.reservation.unwrap_or(0)),
        (&table::SPEC_SWAP, memory.swap_limit.unwrap_or(0)),
    ] {
        to.put(kind, value);
    }
    // Containers rarely have nested cgroups: both scopes have the same value, as in cAdvisor with cgroup v2.
    for scope in ["container", "hierarchy"] {
        to.put_with(
            &table::MEMORY_FAILURES,
            &["pgfault", scope],
            memory.page_faults,
        );
        to.put_with(
            &table::MEMORY_FAILURES,
            &["pgmajfault", scope],
            memory.major_page_faults,
        );
    }
    pressure(
        to,
        memory.pressure,
        &table::MEMORY_WAITING,
        &table::MEMORY_STALLED,
    );
}

fn io(to: &mut Writer, io: &Io) {
    for one in &io.devices {
        let name = numbers(one.major, one.minor);
        let device = [name.as_str()];
        to.put_with(&table::FS_READ_BYTES, &device, one.read_bytes);
        to.put_with(&table::FS_WRITTEN_BYTES, &device, one.write_bytes);
        to.put_with(&table::FS_READS, &device, one.reads);
        to.put_with(&table::FS_WRITES, &device, one.writes);
        let (major, minor) = (one.major.to_string(), one.minor.to_string());
        for (operation, value) in [("Read", one.read_bytes), ("Write", one.write_bytes)] {
            to.put_with(&table::BLKIO, &[&name, &major, &minor, operation], value);
        }
    }
    pressure(to, io.pressure, &table::IO_WAITING, &table::IO_STALLED);
}

fn pressure(to: &mut Writer, pressure: Option<Pressure>, waiting: &Kind, stalled: &Kind) {
    let Some(pressure) = pressure else {
        return;
    };
    to.put(waiting, pressure.some.total / SECOND);
    if let Some(full) = pressure.full {
        to.put(stalled, full.total / SECOND);
    }
}
