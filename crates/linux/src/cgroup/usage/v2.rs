//! cgroup v2: one directory, times in microseconds (Documentation/admin-guide/cgroup-v2.rst).

use std::path::Path;

use super::parse::{Flat, device, flat, limit, number, pressure, text};
use super::{Cpu, Detail, DeviceIo, Error, HugePages, Io, Memory, Pids, Usage, limited};

pub(super) fn read(dir: &Path, detail: Detail) -> Result<Usage, Error> {
    Ok(Usage {
        at: 0,
        cpu: cpu(dir, detail)?,
        memory: memory(dir, detail)?,
        io: io(dir, detail)?,
        pids: pids(dir, detail)?,
        huge_pages: match detail {
            Detail::Statistics => Vec::new(),
            Detail::All => huge_pages(dir)?,
        },
    })
}

fn cpu(dir: &Path, detail: Detail) -> Result<Option<Cpu>, Error> {
    let Some(stat) = flat(dir, "cpu.stat")? else {
        return Ok(None);
    };
    let max = detail.or_none(|| text(dir, "cpu.max"))?;
    let mut max = max.as_deref().unwrap_or("").split_whitespace();
    let (quota, period) = (max.next(), max.next());
    Ok(Some(Cpu {
        usage: stat.nanoseconds("usage_usec"),
        user: stat.nanoseconds("user_usec"),
        system: stat.nanoseconds("system_usec"),
        periods: stat.get("nr_periods"),
        throttled_periods: stat.get("nr_throttled"),
        throttled: stat.nanoseconds("throttled_usec"),
        period_us: period.and_then(|period| period.parse().ok()),
        quota_us: quota.and_then(|quota| quota.parse().ok()),
        shares: detail.or_none(|| number(dir, "cpu.weight"))?.map(shares),
        pressure: pressure(dir, "cpu.pressure")?,
    }))
}

/// The inverse of OCI runtimes' `1 + (shares - 2) * 9999 / 262142`.
fn shares(weight: u64) -> u64 {
    2 + weight.saturating_sub(1).saturating_mul(262_142) / 9999
}

fn memory(dir: &Path, detail: Detail) -> Result<Option<Memory>, Error> {
    let (Some(usage), Some(stat)) = (number(dir, "memory.current")?, flat(dir, "memory.stat")?)
    else {
        return Ok(None);
    };
    let events = detail.or_none(|| flat(dir, "memory.events"))?;
    let inactive = stat.get("inactive_file");
    Ok(Some(Memory {
        usage,
        working_set: usage.saturating_sub(inactive),
        max_usage: detail.or_none(|| number(dir, "memory.peak"))?,
        limit: limit(dir, "memory.max")?,
        reservation: detail
            .or_none(|| number(dir, "memory.low"))
            .unwrap_or(None)
            .and_then(limited)
            .filter(|low| *low > 0),
        rss: stat.get("anon"),
        cache: stat.get("file"),
        mapped_file: stat.get("file_mapped"),
        kernel: Some(kernel(&stat)),
        active_file: stat.get("active_file"),
        inactive_file: inactive,
        limit_hits: events.as_ref().map_or(0, |events| events.get("max")),
        swap: number(dir, "memory.swap.current")?,
        swap_limit: limit(dir, "memory.swap.max")?,
        page_faults: stat.get("pgfault"),
        major_page_faults: stat.get("pgmajfault"),
        oom_kills: events.as_ref().and_then(|events| events.find("oom_kill")),
        pressure: pressure(dir, "memory.pressure")?,
    }))
}

/// `kernel` exists since Linux 5.18; before, its largest parts are separate keys.
fn kernel(stat: &Flat) -> u64 {
    stat.find("kernel").unwrap_or_else(|| {
        let parts = ["kernel_stack", "pagetables", "slab", "sock"];
        parts.iter().map(|part| stat.get(part)).sum()
    })
}

/// `8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6`
fn io(dir: &Path, detail: Detail) -> Result<Option<Io>, Error> {
    let pressure = pressure(dir, "io.pressure")?;
    let stat = detail.or_none(|| text(dir, "io.stat"))?;
    if stat.is_none() && pressure.is_none() {
        return Ok(None);
    }
    let mut devices = Vec::new();
    for line in stat.as_deref().unwrap_or("").lines() {
        let mut words = line.split(' ');
        // A device without statistics is listed without numbers.
        let Some((major, minor)) = words.next().and_then(device) else {
            continue;
        };
        let mut one = DeviceIo {
            major,
            minor,
            ..DeviceIo::default()
        };
        for (name, value) in words.filter_map(|word| word.split_once('=')) {
            let place = match name {
                "rbytes" => &mut one.read_bytes,
                "wbytes" => &mut one.write_bytes,
                "rios" => &mut one.reads,
                "wios" => &mut one.writes,
                _ => continue,
            };
            *place = value.parse().unwrap_or(0);
        }
        devices.push(one);
    }
    Ok(Some(Io { devices, pressure }))
}

/// Reads the pids controller, whose files are the same in both versions.
pub(super) fn pids(dir: &Path, detail: Detail) -> Result<Option<Pids>, Error> {
    let Some(current) = number(dir, "pids.current")? else {
        return Ok(None);
    };
    Ok(Some(Pids {
        current,
        limit: detail.or_none(|| limit(dir, "pids.max"))?,
    }))
}

fn huge_pages(dir: &Path) -> Result<Vec<HugePages>, Error> {
    let mut all = Vec::new();
    for size in sizes(dir, ".current") {
        if let Some(usage) = number(dir, &format!("hugetlb.{size}.current"))? {
            all.push(HugePages {
                size,
                usage,
                max_usage: None,
            });
        }
    }
    Ok(all)
}

/// The sizes that have a file `hugetlb.SIZE` with a suffix.
pub(super) fn sizes(dir: &Path, ending: &str) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut sizes: Vec<_> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let size = name.strip_prefix("hugetlb.")?.strip_suffix(ending)?;
            (!size.contains('.')).then(|| size.to_owned())
        })
        .collect();
    sizes.sort_unstable();
    sizes
}

#[cfg(test)]
mod tests {
    use super::super::{Error, read, same_statistics};
    use super::*;
    use crate::cgroup::Cgroup;
    use std::fs;

    /// A cgroup with the files of Linux 6.1.
    fn cgroup(files: &[(&str, &str)]) -> (tempfile::TempDir, Cgroup) {
        let dir = tempfile::tempdir().expect("dir");
        for (name, text) in files {
            fs::write(dir.path().join(name), text).expect("write");
        }
        let cgroup = Cgroup::unified("/", dir.path());
        (dir, cgroup)
    }

    #[test]
    fn all_files_of_a_container_are_read_in_their_units() {
        let (_dir, cgroup) = cgroup(&[
            (
                "cpu.stat",
                "usage_usec 3000000\nuser_usec 2000000\nsystem_usec 1000000\nnr_periods 9\nnr_throttled 4\nthrottled_usec 70\nnr_bursts 0\nburst_usec 0\n",
            ),
            ("cpu.max", "20000 100000\n"),
            ("cpu.weight", "39\n"),
            (
                "cpu.pressure",
                "some avg10=1.50 avg60=0.20 avg300=0.03 total=12345\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=6\n",
            ),
            ("memory.current", "10485760\n"),
            ("memory.peak", "20971520\n"),
            ("memory.max", "67108864\n"),
            ("memory.low", "0\n"),
            ("memory.swap.current", "4096\n"),
            ("memory.swap.max", "max\n"),
            (
                "memory.stat",
                "anon 1000\nfile 2000\nkernel 300\nkernel_stack 16384\nfile_mapped 500\ninactive_file 485760\nactive_file 7\npgfault 11\npgmajfault 2\n",
            ),
            (
                "memory.events",
                "low 0\nhigh 0\nmax 5\noom 1\noom_kill 1\noom_group_kill 0\n",
            ),
            (
                "io.stat",
                "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n7:0 \n",
            ),
            (
                "io.pressure",
                "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
            ),
            ("pids.current", "3\n"),
            ("pids.max", "max\n"),
            ("hugetlb.2MB.current", "2097152\n"),
            ("hugetlb.2MB.rsvd.current", "0\n"),
        ]);
        let statistics = read(&cgroup, Detail::Statistics).expect("read");
        let usage = read(&cgroup, Detail::All).expect("read");
        same_statistics(&statistics, &usage);
        assert!(usage.at > 1_600_000_000_000_000_000);
        let cpu = usage.cpu.expect("cpu");
        assert_eq!(
            (cpu.usage, cpu.user, cpu.system),
            (3_000_000_000, 2_000_000_000, 1_000_000_000)
        );
        assert_eq!(
            (cpu.periods, cpu.throttled_periods, cpu.throttled),
            (9, 4, 70_000)
        );
        assert_eq!((cpu.quota_us, cpu.period_us), (Some(20_000), Some(100_000)));
        assert_eq!(
            cpu.shares,
            Some(998),
            "the nearest value to 1024 that a weight can express"
        );
        let pressure = cpu.pressure.expect("pressure");
        assert_eq!(
            (pressure.some.avg10, pressure.some.total),
            (1.5, 12_345_000)
        );
        assert_eq!(pressure.full.map(|full| full.total), Some(6000));
        let memory = usage.memory.expect("memory");
        assert_eq!((memory.usage, memory.working_set), (10_485_760, 10_000_000));
        assert_eq!((memory.limit, memory.reservation), (Some(64 << 20), None));
        assert_eq!((memory.swap, memory.swap_limit), (Some(4096), None));
        assert_eq!(
            (memory.rss, memory.cache, memory.kernel),
            (1000, 2000, Some(300))
        );
        assert_eq!((memory.page_faults, memory.major_page_faults), (11, 2));
        assert_eq!((memory.limit_hits, memory.oom_kills), (5, Some(1)));
        assert_eq!(memory.max_usage, Some(20 << 20));
        let io = usage.io.expect("io");
        let device = DeviceIo {
            major: 8,
            minor: 0,
            read_bytes: 1,
            write_bytes: 2,
            reads: 3,
            writes: 4,
        };
        assert_eq!(io.devices[0], device);
        assert!(io.pressure.is_some_and(|pressure| pressure.full.is_none()));
        assert_eq!(
            usage.pids,
            Some(Pids {
                current: 3,
                limit: None
            })
        );
        assert_eq!(usage.huge_pages.len(), 1);
        assert_eq!(
            (usage.huge_pages[0].size.as_str(), usage.huge_pages[0].usage),
            ("2MB", 2 << 20)
        );
    }

    #[test]
    fn a_missing_controller_is_none_and_not_zero() {
        // cpu.stat exists without the cpu controller, with the basic counters.
        let (_dir, cgroup) = cgroup(&[("cpu.stat", "usage_usec 5\nuser_usec 3\nsystem_usec 2\n")]);
        let usage = read(&cgroup, Detail::All).expect("read");
        assert_eq!(usage.cpu.as_ref().map(|cpu| cpu.usage), Some(5000));
        assert!(usage.memory.is_none() && usage.pids.is_none() && usage.io.is_none());
        assert!(
            usage
                .cpu
                .is_some_and(|cpu| cpu.quota_us.is_none() && cpu.pressure.is_none())
        );
    }

    #[test]
    fn a_removed_cgroup_is_not_found_and_a_malformed_file_is_named() {
        let (dir, cgroup) = cgroup(&[("memory.current", "many\n")]);
        let error = read(&cgroup, Detail::All).expect_err("damaged");
        assert!(
            matches!(&error, Error::Format { path } if path.ends_with("memory.current")),
            "{error}"
        );
        drop(dir);
        let error = read(&cgroup, Detail::All).expect_err("gone");
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }
}
