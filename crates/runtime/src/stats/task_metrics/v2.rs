//! `io.containerd.cgroups.v2.Metrics` (containerd/cgroups, `cgroup2/stats/metrics.proto`): times in microseconds.

use criscope_linux::cgroup::usage::{
    Cpu, DeviceIo, HugePages, Io, Memory, Pressure, Stalled, Usage,
};
use criscope_wire::cgroups::v2::{
    CpuStat, IoStat, MemoryEvents, MemoryStat, Metrics, PsiData, PsiStats,
};

use super::{known, limit, pids};

pub(super) fn usage(metrics: Metrics) -> Usage {
    let events = metrics.memory_events;
    let pages = metrics.hugetlb.into_iter().map(|pages| HugePages {
        size: pages.pagesize,
        usage: pages.current,
        // `max` is the limit in this version.
        max_usage: None,
    });
    Usage {
        at: 0,
        cpu: metrics.cpu.map(cpu),
        memory: metrics.memory.map(|memory| self::memory(memory, events)),
        io: metrics.io.map(io),
        pids: metrics.pids.map(pids),
        huge_pages: pages.collect(),
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
        some: stalled(&psi.some?),
        full: psi.full.as_ref().map(stalled),
    })
}

fn stalled(data: &PsiData) -> Stalled {
    Stalled {
        avg10: data.avg10,
        avg60: data.avg60,
        avg300: data.avg300,
        total: nanoseconds(data.total),
    }
}

fn nanoseconds(microseconds: u64) -> u64 {
    microseconds.saturating_mul(1000)
}
