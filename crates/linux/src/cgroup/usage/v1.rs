//! cgroup v1: a directory per controller, times in nanoseconds and clock ticks (Documentation/admin-guide/cgroup-v1).

use std::path::Path;

use super::parse::{device, flat, limit, number, text};
use super::v2::{pids, sizes};
use super::{Cpu, Detail, Error, HugePages, Io, Memory, Usage};
use crate::cgroup::Cgroup;

/// Nanoseconds of a clock tick: `USER_HZ` is 100 on all architectures that containers run on.
const TICK: u64 = 10_000_000;

pub(super) fn read(cgroup: &Cgroup, detail: Detail) -> Result<Usage, Error> {
    let (blkio, hugetlb) = match detail {
        Detail::Statistics => (None, None),
        Detail::All => (cgroup.dir("blkio"), cgroup.dir("hugetlb")),
    };
    Ok(Usage {
        at: 0,
        cpu: cpu(cgroup, detail)?,
        memory: cgroup
            .dir("memory")
            .map_or(Ok(None), |dir| memory(dir, detail))?,
        // There is no pressure in it, unlike in version 2.
        io: blkio.map_or(Ok(None), io)?,
        pids: cgroup
            .dir("pids")
            .map_or(Ok(None), |dir| pids(dir, detail))?,
        huge_pages: hugetlb.map_or(Ok(Vec::new()), huge_pages)?,
    })
}

fn cpu(cgroup: &Cgroup, detail: Detail) -> Result<Option<Cpu>, Error> {
    let Some(accounts) = cgroup.dir("cpuacct") else {
        return Ok(None);
    };
    let Some(usage) = number(accounts, "cpuacct.usage")? else {
        return Ok(None);
    };
    let mut cpu = Cpu {
        usage,
        ..Cpu::default()
    };
    if detail == Detail::Statistics {
        return Ok(Some(cpu));
    }
    if let Some(stat) = flat(accounts, "cpuacct.stat")? {
        cpu.user = stat.get("user").saturating_mul(TICK);
        cpu.system = stat.get("system").saturating_mul(TICK);
    }
    if let Some(dir) = cgroup.dir("cpu") {
        if let Some(stat) = flat(dir, "cpu.stat")? {
            cpu.periods = stat.get("nr_periods");
            cpu.throttled_periods = stat.get("nr_throttled");
            cpu.throttled = stat.get("throttled_time");
        }
        cpu.period_us = number(dir, "cpu.cfs_period_us")?;
        cpu.quota_us = limit(dir, "cpu.cfs_quota_us")?;
        cpu.shares = number(dir, "cpu.shares")?;
    }
    Ok(Some(cpu))
}

/// `total_` includes the descendants, as version 2 always does.
fn memory(dir: &Path, detail: Detail) -> Result<Option<Memory>, Error> {
    let (Some(usage), Some(stat)) = (
        number(dir, "memory.usage_in_bytes")?,
        flat(dir, "memory.stat")?,
    ) else {
        return Ok(None);
    };
    let inactive = stat.get("total_inactive_file");
    let own_limit = limit(dir, "memory.limit_in_bytes")?;
    // Memory and swap have a common limit: swap is the part above the memory limit.
    let both = limit(dir, "memory.memsw.limit_in_bytes")?;
    let control = detail.or_none(|| flat(dir, "memory.oom_control"))?;
    Ok(Some(Memory {
        usage,
        working_set: usage.saturating_sub(inactive),
        max_usage: detail.or_none(|| number(dir, "memory.max_usage_in_bytes"))?,
        limit: own_limit,
        reservation: detail.or_none(|| limit(dir, "memory.soft_limit_in_bytes"))?,
        rss: stat.get("total_rss"),
        cache: stat.get("total_cache"),
        mapped_file: stat.get("total_mapped_file"),
        kernel: detail.or_none(|| number(dir, "memory.kmem.usage_in_bytes"))?,
        active_file: stat.get("total_active_file"),
        inactive_file: inactive,
        limit_hits: detail
            .or_none(|| number(dir, "memory.failcnt"))?
            .unwrap_or(0),
        swap: stat.find("total_swap"),
        swap_limit: both.map(|both| both.saturating_sub(own_limit.unwrap_or(0))),
        page_faults: stat.get("total_pgfault"),
        major_page_faults: stat.get("total_pgmajfault"),
        oom_kills: control.and_then(|control| control.find("oom_kill")),
        pressure: None,
    }))
}

/// `8:0 Read 4096`, a line per operation, `Total 8192` at the end.
fn io(dir: &Path) -> Result<Option<Io>, Error> {
    let bytes = text(dir, "blkio.throttle.io_service_bytes_recursive")?;
    let counts = text(dir, "blkio.throttle.io_serviced_recursive")?;
    let (Some(bytes), Some(counts)) = (bytes, counts) else {
        return Ok(None);
    };
    let mut io = Io::default();
    for (text, is_bytes) in [(bytes, true), (counts, false)] {
        for line in text.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            let &[numbers, kind, value] = words.as_slice() else {
                continue;
            };
            let (Some((major, minor)), Ok(value)) = (device(numbers), value.parse()) else {
                continue;
            };
            let one = io.device(major, minor);
            match (kind, is_bytes) {
                ("Read", true) => one.read_bytes = value,
                ("Write", true) => one.write_bytes = value,
                ("Read", false) => one.reads = value,
                ("Write", false) => one.writes = value,
                _ => {}
            }
        }
    }
    Ok(Some(io))
}

fn huge_pages(dir: &Path) -> Result<Vec<HugePages>, Error> {
    let mut all = Vec::new();
    for size in sizes(dir, ".usage_in_bytes") {
        if let Some(usage) = number(dir, &format!("hugetlb.{size}.usage_in_bytes"))? {
            let max_usage = number(dir, &format!("hugetlb.{size}.max_usage_in_bytes"))?;
            all.push(HugePages {
                size,
                usage,
                max_usage,
            });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::super::{read, same_statistics};
    use super::*;
    use crate::cgroup::Hierarchies;
    use crate::cgroup::usage::Pids;
    use std::fs;

    /// The hierarchies of a node with version 1, with one cgroup `c`.
    fn cgroup(controllers: &[&str], files: &[(&str, &str)]) -> (tempfile::TempDir, Cgroup) {
        let dir = tempfile::tempdir().expect("dir");
        let mut table = String::new();
        for name in controllers {
            let point = dir.path().join(name);
            fs::create_dir_all(point.join("c")).expect("dir");
            table += &format!(
                "1 2 0:3 / {} rw - cgroup cgroup rw,{name}\n",
                point.display()
            );
        }
        for (path, text) in files {
            let (controller, file) = path.split_once('/').expect("controller/file");
            fs::write(dir.path().join(controller).join("c").join(file), text).expect("write");
        }
        let all = Hierarchies::parse(table.as_bytes()).expect("mounted");
        (dir, all.at("/c".as_ref()).expect("valid"))
    }

    #[test]
    fn all_files_of_a_container_are_read_in_their_units() {
        let (_dir, cgroup) = cgroup(
            &["cpu", "cpuacct", "memory", "blkio", "pids", "hugetlb"],
            &[
                ("cpuacct/cpuacct.usage", "5000000000\n"),
                ("cpuacct/cpuacct.stat", "user 300\nsystem 200\n"),
                (
                    "cpu/cpu.stat",
                    "nr_periods 7\nnr_throttled 3\nthrottled_time 99\n",
                ),
                ("cpu/cpu.cfs_quota_us", "-1\n"),
                ("cpu/cpu.cfs_period_us", "100000\n"),
                ("cpu/cpu.shares", "1024\n"),
                ("memory/memory.usage_in_bytes", "1000\n"),
                ("memory/memory.max_usage_in_bytes", "3000\n"),
                ("memory/memory.limit_in_bytes", "4096\n"),
                ("memory/memory.memsw.limit_in_bytes", "12288\n"),
                ("memory/memory.soft_limit_in_bytes", "9223372036854771712\n"),
                ("memory/memory.failcnt", "6\n"),
                (
                    "memory/memory.stat",
                    "cache 1\nrss 2\ntotal_cache 10\ntotal_rss 20\ntotal_mapped_file 30\ntotal_swap 40\ntotal_inactive_file 1500\ntotal_active_file 50\ntotal_pgfault 60\ntotal_pgmajfault 70\n",
                ),
                (
                    "memory/memory.oom_control",
                    "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
                ),
                (
                    "blkio/blkio.throttle.io_service_bytes_recursive",
                    "8:0 Read 100\n8:0 Write 200\n8:0 Sync 300\n8:0 Total 300\n8:16 Read 1\nTotal 301\n",
                ),
                (
                    "blkio/blkio.throttle.io_serviced_recursive",
                    "8:0 Read 1\n8:0 Write 2\nTotal 3\n",
                ),
                ("pids/pids.current", "4\n"),
                ("pids/pids.max", "100\n"),
                ("hugetlb/hugetlb.2MB.usage_in_bytes", "0\n"),
                ("hugetlb/hugetlb.2MB.max_usage_in_bytes", "2097152\n"),
            ],
        );
        let statistics = read(&cgroup, Detail::Statistics).expect("read");
        let usage = read(&cgroup, Detail::All).expect("read");
        same_statistics(&statistics, &usage);
        assert_eq!(statistics.io, None, "more files than the statistics need");
        let cpu = usage.cpu.expect("cpu");
        assert_eq!(
            (cpu.usage, cpu.user, cpu.system),
            (5_000_000_000, 3_000_000_000, 2_000_000_000)
        );
        assert_eq!(
            (cpu.periods, cpu.throttled_periods, cpu.throttled),
            (7, 3, 99)
        );
        assert_eq!(
            (cpu.quota_us, cpu.period_us, cpu.shares),
            (None, Some(100_000), Some(1024))
        );
        let memory = usage.memory.expect("memory");
        assert_eq!(
            (memory.usage, memory.working_set),
            (1000, 0),
            "never below zero"
        );
        assert_eq!((memory.limit, memory.reservation), (Some(4096), None));
        assert_eq!((memory.swap, memory.swap_limit), (Some(40), Some(8192)));
        assert_eq!((memory.cache, memory.rss, memory.page_faults), (10, 20, 60));
        assert_eq!((memory.limit_hits, memory.oom_kills), (6, Some(2)));
        assert_eq!(memory.kernel, None, "a kernel without that file");
        let io = usage.io.expect("io");
        assert_eq!(io.devices.len(), 2);
        let first = &io.devices[0];
        assert_eq!(
            (
                first.read_bytes,
                first.write_bytes,
                first.reads,
                first.writes
            ),
            (100, 200, 1, 2)
        );
        assert_eq!(
            usage.pids,
            Some(Pids {
                current: 4,
                limit: Some(100)
            })
        );
        assert_eq!(usage.huge_pages[0].max_usage, Some(2 << 20));
    }

    #[test]
    fn a_cgroup_removed_from_every_hierarchy_is_not_found() {
        let (dir, cgroup) = cgroup(&["cpuacct", "memory"], &[("cpuacct/cpuacct.usage", "1\n")]);
        let usage = read(&cgroup, Detail::All).expect("one hierarchy remains");
        assert!(usage.memory.is_none() && usage.cpu.is_some());
        fs::remove_dir_all(dir.path().join("cpuacct/c")).expect("remove");
        let error = read(&cgroup, Detail::All).expect_err("nothing to read");
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }
}
