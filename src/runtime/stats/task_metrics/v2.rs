//! `io.containerd.cgroups.v2.Metrics` (containerd/cgroups, `cgroup2/stats/metrics.proto`): times in microseconds.

use prost::Message;

use criscope_linux::cgroup::usage::{
    Cpu, DeviceIo, HugePages, Io, Memory, Pressure, Stalled, Usage,
};

use super::{PidsStat, known, limit};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metrics {
    #[prost(message, optional, tag = "1")]
    pub(super) pids: Option<PidsStat>,
    #[prost(message, optional, tag = "2")]
    pub(super) cpu: Option<CpuStat>,
    #[prost(message, optional, tag = "4")]
    pub(super) memory: Option<MemoryStat>,
    #[prost(message, optional, tag = "6")]
    pub(super) io: Option<IoStat>,
    #[prost(message, repeated, tag = "7")]
    pub(super) hugetlb: Vec<HugeTlbStat>,
    #[prost(message, optional, tag = "8")]
    pub(super) memory_events: Option<MemoryEvents>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PsiData {
    #[prost(double, tag = "1")]
    pub(super) avg10: f64,
    #[prost(double, tag = "2")]
    pub(super) avg60: f64,
    #[prost(double, tag = "3")]
    pub(super) avg300: f64,
    #[prost(uint64, tag = "4")]
    pub(super) total: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PsiStats {
    #[prost(message, optional, tag = "1")]
    pub(super) some: Option<PsiData>,
    #[prost(message, optional, tag = "2")]
    pub(super) full: Option<PsiData>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CpuStat {
    #[prost(uint64, tag = "1")]
    pub(super) usage_usec: u64,
    #[prost(uint64, tag = "2")]
    pub(super) user_usec: u64,
    #[prost(uint64, tag = "3")]
    pub(super) system_usec: u64,
    #[prost(uint64, tag = "4")]
    pub(super) nr_periods: u64,
    #[prost(uint64, tag = "5")]
    pub(super) nr_throttled: u64,
    #[prost(uint64, tag = "6")]
    pub(super) throttled_usec: u64,
    #[prost(message, optional, tag = "7")]
    pub(super) psi: Option<PsiStats>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MemoryStat {
    #[prost(uint64, tag = "1")]
    pub(super) anon: u64,
    #[prost(uint64, tag = "2")]
    pub(super) file: u64,
    #[prost(uint64, tag = "3")]
    pub(super) kernel_stack: u64,
    #[prost(uint64, tag = "4")]
    pub(super) slab: u64,
    #[prost(uint64, tag = "5")]
    pub(super) sock: u64,
    #[prost(uint64, tag = "7")]
    pub(super) file_mapped: u64,
    #[prost(uint64, tag = "13")]
    pub(super) inactive_file: u64,
    #[prost(uint64, tag = "14")]
    pub(super) active_file: u64,
    #[prost(uint64, tag = "18")]
    pub(super) pgfault: u64,
    #[prost(uint64, tag = "19")]
    pub(super) pgmajfault: u64,
    #[prost(uint64, tag = "32")]
    pub(super) usage: u64,
    #[prost(uint64, tag = "33")]
    pub(super) usage_limit: u64,
    #[prost(uint64, tag = "34")]
    pub(super) swap_usage: u64,
    #[prost(uint64, tag = "35")]
    pub(super) swap_limit: u64,
    #[prost(uint64, tag = "36")]
    pub(super) max_usage: u64,
    #[prost(message, optional, tag = "38")]
    pub(super) psi: Option<PsiStats>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MemoryEvents {
    #[prost(uint64, tag = "3")]
    pub(super) max: u64,
    #[prost(uint64, tag = "5")]
    pub(super) oom_kill: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct IoStat {
    #[prost(message, repeated, tag = "1")]
    pub(super) usage: Vec<IoEntry>,
    #[prost(message, optional, tag = "2")]
    pub(super) psi: Option<PsiStats>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct IoEntry {
    #[prost(uint64, tag = "1")]
    pub(super) major: u64,
    #[prost(uint64, tag = "2")]
    pub(super) minor: u64,
    #[prost(uint64, tag = "3")]
    pub(super) rbytes: u64,
    #[prost(uint64, tag = "4")]
    pub(super) wbytes: u64,
    #[prost(uint64, tag = "5")]
    pub(super) rios: u64,
    #[prost(uint64, tag = "6")]
    pub(super) wios: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HugeTlbStat {
    #[prost(uint64, tag = "1")]
    pub(super) current: u64,
    #[prost(string, tag = "3")]
    pub(super) pagesize: String,
}

impl From<Metrics> for Usage {
    fn from(metrics: Metrics) -> Self {
        let events = metrics.memory_events;
        let pages = metrics.hugetlb.into_iter().map(|pages| HugePages {
            size: pages.pagesize,
            usage: pages.current,
            // `max` is the limit in this version.
            max_usage: None,
        });
        Self {
            at: 0,
            cpu: metrics.cpu.map(cpu),
            memory: metrics.memory.map(|memory| self::memory(memory, events)),
            io: metrics.io.map(io),
            pids: metrics.pids.map(Into::into),
            huge_pages: pages.collect(),
        }
    }
}

fn cpu(cpu: CpuStat) -> Cpu {
    Cpu {
        usage: nanoseconds(cpu.usage_usec),
        user: nanoseconds(cpu.user_usec),
        system: nanoseconds(cpu.system_usec),
        periods: cpu.nr_periods,
        throttled_periods: cpu.nr_throttled,
        throttled: nanoseconds(cpu.throttled_usec),
        pressure: cpu.psi.and_then(pressure),
        ..Cpu::default()
    }
}

/// The working set is the usage without `inactive_file`, as in containerd's CRI plugin.
fn memory(memory: MemoryStat, events: Option<MemoryEvents>) -> Memory {
    // Without an account of swap both numbers are 0, and with a limit of 0 too.
    let has_swap = memory.swap_usage > 0 || memory.swap_limit > 0;
    let kernel = memory.kernel_stack.saturating_add(memory.slab);
    Memory {
        usage: memory.usage,
        working_set: memory.usage.saturating_sub(memory.inactive_file),
        max_usage: known(memory.max_usage),
        limit: limit(memory.usage_limit),
        reservation: None,
        rss: memory.anon,
        cache: memory.file,
        mapped_file: memory.file_mapped,
        kernel: known(kernel.saturating_add(memory.sock)),
        active_file: memory.active_file,
        inactive_file: memory.inactive_file,
        limit_hits: events.as_ref().map_or(0, |events| events.max),
        swap: has_swap.then_some(memory.swap_usage),
        swap_limit: limit(memory.swap_limit),
        page_faults: memory.pgfault,
        major_page_faults: memory.pgmajfault,
        oom_kills: events.map(|events| events.oom_kill),
        pressure: memory.psi.and_then(pressure),
    }
}

fn io(all: IoStat) -> Io {
    let devices = all.usage.into_iter().filter_map(|one| {
        Some(DeviceIo {
            major: one.major.try_into().ok()?,
            minor: one.minor.try_into().ok()?,
            read_bytes: one.rbytes,
            write_bytes: one.wbytes,
            reads: one.rios,
            writes: one.wios,
        })
    });
    Io {
        devices: devices.collect(),
        pressure: all.psi.and_then(pressure),
    }
}

fn pressure(psi: PsiStats) -> Option<Pressure> {
    Some(Pressure {
        some: psi.some?.into(),
        full: psi.full.map(Stalled::from),
    })
}

impl From<PsiData> for Stalled {
    fn from(data: PsiData) -> Self {
        Self {
            avg10: data.avg10,
            avg60: data.avg60,
            avg300: data.avg300,
            total: nanoseconds(data.total),
        }
    }
}

fn nanoseconds(microseconds: u64) -> u64 {
    microseconds.saturating_mul(1000)
}
