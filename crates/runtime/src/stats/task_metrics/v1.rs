//! `io.containerd.cgroups.v1.Metrics` (containerd/cgroups, `cgroup1/stats/metrics.proto`): times in nanoseconds.

use criscope_linux::cgroup::usage::{Cpu, HugePages, Io, Memory, Usage};
use criscope_wire::cgroups::v1::{BlkIoStat, CpuStat, MemoryStat, Metrics};

use super::{known, limit, pids};

pub(super) fn usage(metrics: Metrics) -> Usage {
    let kills = metrics.memory_oom_control.map(|control| control.oom_kill);
    let pages = metrics.hugetlb.into_iter().map(|pages| HugePages {
        size: pages.pagesize,
        usage: pages.usage,
        max_usage: Some(pages.max),
    });
    Usage {
        at: 0,
        cpu: metrics.cpu.and_then(cpu),
        memory: metrics
            .memory
            .and_then(|memory| self::memory(memory, kills)),
        io: metrics.blkio.map(|all| io(&all)),
        pids: metrics.pids.map(pids),
        huge_pages: pages.collect(),
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
