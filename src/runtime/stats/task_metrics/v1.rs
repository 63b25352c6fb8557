//! `io.containerd.cgroups.v1.Metrics` (containerd/cgroups, `cgroup1/stats/metrics.proto`): times in nanoseconds.

use prost::Message;

use criscope_linux::cgroup::usage::{Cpu, HugePages, Io, Memory, Usage};

use super::{PidsStat, known, limit};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metrics {
    #[prost(message, repeated, tag = "1")]
    pub(super) hugetlb: Vec<HugetlbStat>,
    #[prost(message, optional, tag = "2")]
    pub(super) pids: Option<PidsStat>,
    #[prost(message, optional, tag = "3")]
    pub(super) cpu: Option<CpuStat>,
    #[prost(message, optional, tag = "4")]
    pub(super) memory: Option<MemoryStat>,
    #[prost(message, optional, tag = "5")]
    pub(super) blkio: Option<BlkIoStat>,
    #[prost(message, optional, tag = "9")]
    pub(super) memory_oom_control: Option<MemoryOomControl>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HugetlbStat {
    #[prost(uint64, tag = "1")]
    pub(super) usage: u64,
    #[prost(uint64, tag = "2")]
    pub(super) max: u64,
    #[prost(string, tag = "4")]
    pub(super) pagesize: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CpuStat {
    #[prost(message, optional, tag = "1")]
    pub(super) usage: Option<CpuUsage>,
    #[prost(message, optional, tag = "2")]
    pub(super) throttling: Option<Throttle>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CpuUsage {
    #[prost(uint64, tag = "1")]
    pub(super) total: u64,
    #[prost(uint64, tag = "2")]
    pub(super) kernel: u64,
    #[prost(uint64, tag = "3")]
    pub(super) user: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Throttle {
    #[prost(uint64, tag = "1")]
    pub(super) periods: u64,
    #[prost(uint64, tag = "2")]
    pub(super) throttled_periods: u64,
    #[prost(uint64, tag = "3")]
    pub(super) throttled_time: u64,
}

/// Fields whose names begin with `total_` include the descendants.
#[derive(Clone, PartialEq, Message)]
pub(super) struct MemoryStat {
    #[prost(uint64, tag = "1")]
    pub(super) cache: u64,
    #[prost(uint64, tag = "18")]
    pub(super) total_cache: u64,
    #[prost(uint64, tag = "19")]
    pub(super) total_rss: u64,
    #[prost(uint64, tag = "21")]
    pub(super) total_mapped_file: u64,
    #[prost(uint64, tag = "26")]
    pub(super) total_pg_fault: u64,
    #[prost(uint64, tag = "27")]
    pub(super) total_pg_maj_fault: u64,
    #[prost(uint64, tag = "30")]
    pub(super) total_inactive_file: u64,
    #[prost(uint64, tag = "31")]
    pub(super) total_active_file: u64,
    #[prost(message, optional, tag = "33")]
    pub(super) usage: Option<MemoryEntry>,
    /// Memory and swap together.
    #[prost(message, optional, tag = "34")]
    pub(super) swap: Option<MemoryEntry>,
    #[prost(message, optional, tag = "35")]
    pub(super) kernel: Option<MemoryEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MemoryEntry {
    #[prost(uint64, tag = "1")]
    pub(super) limit: u64,
    #[prost(uint64, tag = "2")]
    pub(super) usage: u64,
    #[prost(uint64, tag = "3")]
    pub(super) max: u64,
    #[prost(uint64, tag = "4")]
    pub(super) failcnt: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MemoryOomControl {
    #[prost(uint64, tag = "3")]
    pub(super) oom_kill: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BlkIoStat {
    #[prost(message, repeated, tag = "1")]
    pub(super) io_service_bytes_recursive: Vec<BlkIoEntry>,
    #[prost(message, repeated, tag = "2")]
    pub(super) io_serviced_recursive: Vec<BlkIoEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BlkIoEntry {
    #[prost(string, tag = "1")]
    pub(super) op: String,
    #[prost(uint64, tag = "3")]
    pub(super) major: u64,
    #[prost(uint64, tag = "4")]
    pub(super) minor: u64,
    #[prost(uint64, tag = "5")]
    pub(super) value: u64,
}

impl From<Metrics> for Usage {
    fn from(metrics: Metrics) -> Self {
        let kills = metrics.memory_oom_control.map(|control| control.oom_kill);
        let pages = metrics.hugetlb.into_iter().map(|pages| HugePages {
            size: pages.pagesize,
            usage: pages.usage,
            max_usage: Some(pages.max),
        });
        Self {
            at: 0,
            cpu: metrics.cpu.and_then(cpu),
            memory: metrics
                .memory
                .and_then(|memory| self::memory(memory, kills)),
            io: metrics.blkio.map(|all| io(&all)),
            pids: metrics.pids.map(Into::into),
            huge_pages: pages.collect(),
        }
    }
}

fn cpu(cpu: CpuStat) -> Option<Cpu> {
    let usage = cpu.usage?;
    let throttling = cpu.throttling.unwrap_or_default();
    Some(Cpu {
        usage: usage.total,
        user: usage.user,
        system: usage.kernel,
        periods: throttling.periods,
        throttled_periods: throttling.throttled_periods,
        throttled: throttling.throttled_time,
        ..Cpu::default()
    })
}

/// The working set is the usage without `total_inactive_file`, as in containerd's CRI plugin.
fn memory(memory: MemoryStat, oom_kills: Option<u64>) -> Option<Memory> {
    let usage = memory.usage?;
    let own_limit = limit(usage.limit);
    let with_swap = memory.swap.filter(|swap| swap.usage > 0);
    let both = with_swap.as_ref().and_then(|swap| limit(swap.limit));
    Some(Memory {
        usage: usage.usage,
        working_set: usage.usage.saturating_sub(memory.total_inactive_file),
        max_usage: known(usage.max),
        limit: own_limit,
        reservation: None,
        rss: memory.total_rss,
        // gVisor's shim sets the value without descendants, because it has none.
        cache: memory.total_cache.max(memory.cache),
        mapped_file: memory.total_mapped_file,
        kernel: memory.kernel.and_then(|kernel| known(kernel.usage)),
        active_file: memory.total_active_file,
        inactive_file: memory.total_inactive_file,
        limit_hits: usage.failcnt,
        swap: with_swap.map(|both| both.usage.saturating_sub(usage.usage)),
        swap_limit: both.map(|both| both.saturating_sub(own_limit.unwrap_or(0))),
        page_faults: memory.total_pg_fault,
        major_page_faults: memory.total_pg_maj_fault,
        oom_kills,
        pressure: None,
    })
}

fn io(all: &BlkIoStat) -> Io {
    let mut io = Io::default();
    let bytes = all.io_service_bytes_recursive.iter();
    let counts = all.io_serviced_recursive.iter();
    for (entry, is_bytes) in bytes
        .map(|one| (one, true))
        .chain(counts.map(|one| (one, false)))
    {
        let (Ok(major), Ok(minor)) = (entry.major.try_into(), entry.minor.try_into()) else {
            continue;
        };
        let one = io.device(major, minor);
        match (entry.op.as_str(), is_bytes) {
            ("Read" | "read", true) => one.read_bytes = entry.value,
            ("Write" | "write", true) => one.write_bytes = entry.value,
            ("Read" | "read", false) => one.reads = entry.value,
            ("Write" | "write", false) => one.writes = entry.value,
            _ => {}
        }
    }
    io
}
