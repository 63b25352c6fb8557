//! Combines the usage that a shim of containerd reports with the cgroup's and with the limits of the request.

use criscope_linux::cgroup::usage::{Cpu, Io, Memory, Pids, Usage};

use criscope_cri::v1::LinuxContainerResources;

/// Completes the usage that a shim reports by the values it does not know: pressure and limits from the container's cgroup, and limits
/// that are in neither from the resources of the container. `cgroup` is `None` if the container has none, or an empty one.
#[must_use]
pub fn complete(
    reported: Usage,
    cgroup: Option<Usage>,
    resources: &LinuxContainerResources,
) -> Usage {
    let cgroup = cgroup.unwrap_or_default();
    let mut usage = Usage {
        at: reported.at,
        cpu: joined(reported.cpu, cgroup.cpu, |own, cgroup| cpu(own, &cgroup)),
        memory: joined(reported.memory, cgroup.memory, |own, cgroup| {
            memory(own, &cgroup);
        }),
        io: joined(reported.io, cgroup.io, io),
        pids: joined(reported.pids, cgroup.pids, |pids: &mut Pids, cgroup| {
            pids.limit = pids.limit.or(cgroup.limit);
        }),
        huge_pages: if reported.huge_pages.is_empty() {
            cgroup.huge_pages
        } else {
            reported.huge_pages
        },
    };
    if let Some(cpu) = &mut usage.cpu {
        cpu.period_us = cpu.period_us.or(limit(resources.cpu_period));
        cpu.quota_us = cpu.quota_us.or(limit(resources.cpu_quota));
        cpu.shares = cpu.shares.or(limit(resources.cpu_shares));
    }
    if let Some(memory) = &mut usage.memory {
        let asked = limit(resources.memory_limit_in_bytes);
        memory.limit = memory.limit.or(asked);
    }
    usage
}

/// A limit of a request, where 0 means none.
fn limit(value: i64) -> Option<u64> {
    u64::try_from(value).ok().filter(|value| *value > 0)
}

fn joined<T>(reported: Option<T>, cgroup: Option<T>, fill: impl FnOnce(&mut T, T)) -> Option<T> {
    match (reported, cgroup) {
        (Some(mut reported), Some(cgroup)) => {
            fill(&mut reported, cgroup);
            Some(reported)
        }
        (reported, cgroup) => reported.or(cgroup),
    }
}

fn cpu(cpu: &mut Cpu, cgroup: &Cpu) {
    // runwasi's shims report none with cgroup v1, and microseconds as nanoseconds with v2. Both are counters, and so is the larger one.
    cpu.usage = cpu.usage.max(cgroup.usage);
    cpu.user = cpu.user.max(cgroup.user);
    cpu.system = cpu.system.max(cgroup.system);
    cpu.period_us = cpu.period_us.or(cgroup.period_us);
    cpu.quota_us = cpu.quota_us.or(cgroup.quota_us);
    cpu.shares = cpu.shares.or(cgroup.shares);
    cpu.pressure = cpu.pressure.or(cgroup.pressure);
}

fn memory(memory: &mut Memory, cgroup: &Memory) {
    // A zero in a value that is never zero was not reported.
    if memory.rss == 0 {
        memory.rss = cgroup.rss;
    }
    memory.page_faults = memory.page_faults.max(cgroup.page_faults);
    memory.major_page_faults = memory.major_page_faults.max(cgroup.major_page_faults);
    memory.max_usage = memory.max_usage.or(cgroup.max_usage);
    memory.limit = memory.limit.or(cgroup.limit);
    memory.reservation = memory.reservation.or(cgroup.reservation);
    memory.kernel = memory.kernel.or(cgroup.kernel);
    memory.swap = memory.swap.or(cgroup.swap);
    memory.swap_limit = memory.swap_limit.or(cgroup.swap_limit);
    memory.oom_kills = memory.oom_kills.or(cgroup.oom_kills);
    memory.pressure = memory.pressure.or(cgroup.pressure);
}

fn io(io: &mut Io, cgroup: Io) {
    if io.devices.is_empty() {
        io.devices = cgroup.devices;
    }
    io.pressure = io.pressure.or(cgroup.pressure);
}

/// The usage of a pod whose cgroup is empty: the sum over its running containers; `None` is unknown. Processor
/// time and memory are only summed if those of all containers are known, because a counter that goes down and up again is taken for
/// a new one.
#[must_use]
pub fn sum(containers: &[Option<&Usage>]) -> Option<Usage> {
    let known: Vec<_> = containers.iter().copied().collect::<Option<_>>()?;
    let at = known.iter().map(|usage| usage.at).max()?;
    let cpus: Option<Vec<_>> = known.iter().map(|usage| usage.cpu.as_ref()).collect();
    let memories: Option<Vec<_>> = known.iter().map(|usage| usage.memory.as_ref()).collect();
    Some(Usage {
        at,
        cpu: cpus.map(|all| Cpu {
            usage: all.iter().map(|cpu| cpu.usage).sum(),
            ..Cpu::default()
        }),
        memory: memories.map(|all| sum_of_memory(&all)),
        ..Usage::default()
    })
}

fn sum_of_memory(all: &[&Memory]) -> Memory {
    let mut sum = Memory::default();
    for memory in all {
        sum.usage += memory.usage;
        sum.working_set += memory.working_set;
        sum.rss += memory.rss;
        sum.page_faults += memory.page_faults;
        sum.major_page_faults += memory.major_page_faults;
    }
    sum
}

#[cfg(test)]
mod tests {
    use criscope_linux::cgroup::usage::{Pressure, Stalled};

    use super::*;

    fn usage(time: u64, bytes: u64) -> Usage {
        Usage {
            at: 42,
            cpu: Some(Cpu {
                usage: time,
                ..Cpu::default()
            }),
            memory: Some(Memory {
                usage: bytes,
                working_set: bytes,
                ..Memory::default()
            }),
            pids: Some(Pids::default()),
            ..Usage::default()
        }
    }

    #[test]
    fn the_cgroup_says_what_the_shim_does_not_know() {
        let mut cgroup = usage(1, 1);
        let pressure = Pressure {
            some: Stalled::default(),
            full: None,
        };
        if let (Some(cpu), Some(memory)) = (&mut cgroup.cpu, &mut cgroup.memory) {
            cpu.pressure = Some(pressure);
            cpu.shares = Some(2);
            memory.limit = Some(900);
            memory.swap = Some(3);
        }
        cgroup.io = Some(Io::default());
        let resources = LinuxContainerResources {
            memory_limit_in_bytes: 1000,
            cpu_quota: 500,
            cpu_shares: 1024,
            ..Default::default()
        };
        let complete = complete(usage(70, 80), Some(cgroup), &resources);
        let cpu = complete.cpu.expect("cpu");
        assert_eq!((cpu.usage, cpu.pressure), (70, Some(pressure)));
        assert_eq!((cpu.shares, cpu.quota_us), (Some(2), Some(500)));
        let memory = complete.memory.expect("memory");
        assert_eq!(
            (memory.usage, memory.limit, memory.swap),
            (80, Some(900), Some(3))
        );
        assert_eq!((complete.at, complete.io), (42, Some(Io::default())));
    }

    /// Shims such as runwasi's, whose containers are in their cgroups.
    #[test]
    fn what_the_shim_leaves_out_is_that_of_the_cgroup() {
        let mut cgroup = usage(7000, 90);
        if let Some(memory) = &mut cgroup.memory {
            (memory.rss, memory.page_faults) = (60, 5);
        }
        let resources = LinuxContainerResources::default();
        for time in [0, 7] {
            let reported = usage(time, 80);
            let complete = complete(reported, Some(cgroup.clone()), &resources);
            assert_eq!(complete.cpu.expect("cpu").usage, 7000);
            let memory = complete.memory.expect("memory");
            assert_eq!((memory.usage, memory.rss, memory.page_faults), (80, 60, 5));
        }
    }

    #[test]
    fn limits_without_a_cgroup_are_those_asked_for() {
        let resources = LinuxContainerResources {
            memory_limit_in_bytes: 1000,
            cpu_quota: -1,
            ..Default::default()
        };
        let usage = complete(usage(70, 80), None, &resources);
        assert_eq!(usage.memory.expect("memory").limit, Some(1000));
        assert_eq!(usage.cpu.expect("cpu").quota_us, None);
        assert_eq!(usage.io, None);
    }

    #[test]
    fn a_sum_needs_all_its_parts() {
        let (one, other) = (usage(70, 80), usage(7, 8));
        let both = sum(&[Some(&one), Some(&other)]).expect("both");
        assert_eq!(both.cpu.expect("cpu").usage, 77);
        assert_eq!(both.memory.expect("memory").working_set, 88);
        assert_eq!(sum(&[Some(&one), None]), None);
        assert_eq!(sum(&[]), None);
        let mut without = other.clone();
        without.cpu = None;
        let part = sum(&[Some(&one), Some(&without)]).expect("a part");
        assert!(part.cpu.is_none() && part.memory.is_some());
    }
}
