//! CPU, memory, huge pages, processes.

use std::collections::HashMap;

use oci_spec::runtime::{LinuxCpu, LinuxHugepageLimit, LinuxMemory, LinuxPids, LinuxResources};

use super::error::SpecError;
use super::facts::{CgroupVersion, NodeFacts};
use super::policy::HugePages;
use crate::cri::v1::LinuxContainerResources;

/// The resources of a container as the OCI runtime takes them. Zero and empty mean "not said".
///
/// A memory limit with no word on swap limits memory and swap together to it, where the kernel accounts swap. What becomes of
/// huge page limits is the policy of the node.
pub fn container_resources(
    asked: &LinuxContainerResources,
    node: &NodeFacts,
) -> Result<LinuxResources, SpecError> {
    updated_resources(&LinuxResources::default(), asked, node)
}

/// The resources after an update: what the update does not say stays as it was.
pub fn updated_resources(
    current: &LinuxResources,
    asked: &LinuxContainerResources,
    node: &NodeFacts,
) -> Result<LinuxResources, SpecError> {
    check_names(asked)?;
    let mut to = current.clone();
    to.set_cpu(cpu(to.cpu().as_ref(), asked)?);
    to.set_memory(memory(to.memory().as_ref(), asked, node)?);
    if to.pids().is_none() && node.pids_limit > 0 {
        let mut pids = LinuxPids::default();
        pids.set_limit(node.pids_limit);
        to.set_pids(Some(pids));
    }
    if !asked.hugepage_limits.is_empty() && limits_huge_pages(node)? {
        to.set_hugepage_limits(Some(hugepages(asked)?));
    }
    if !asked.unified.is_empty() {
        if node.cgroup_version == CgroupVersion::V1 {
            return Err(SpecError::Unsupported(
                "unified resources need cgroup v2".to_owned(),
            ));
        }
        let mut unified: HashMap<String, String> = to.unified().clone().unwrap_or_default();
        unified.extend(asked.unified.clone());
        to.set_unified(Some(unified));
    }
    Ok(to)
}

/// Checks what becomes names or content of files of a cgroup.
fn check_names(asked: &LinuxContainerResources) -> Result<(), SpecError> {
    let invalid = |what: &str| Err(SpecError::Invalid(what.to_owned()));
    let set = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b',' | b'-'))
    };
    if !set(&asked.cpuset_cpus) || !set(&asked.cpuset_mems) {
        return invalid("cpuset: not a list such as 0-3,7");
    }
    for limit in &asked.hugepage_limits {
        let size = limit.page_size.trim_end_matches('B');
        let digits = size.trim_end_matches(['K', 'M', 'G', 'T']);
        let fits = digits.bytes().all(|byte| byte.is_ascii_digit());
        if digits.is_empty() || !fits || size.len() - digits.len() > 1 {
            return invalid("size of huge pages: not a size such as 2MB");
        }
    }
    for (key, value) in &asked.unified {
        let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_');
        // `cgroup.` are no limits: they move, freeze and kill.
        if !key.contains('.') || !key.bytes().all(letters) || key.starts_with("cgroup.") {
            return invalid("unified resource: not a key such as memory.high");
        }
        if value.contains(|c: char| c.is_control() && c != '\n') {
            return invalid("unified resource: the value has control characters");
        }
    }
    Ok(())
}

/// What puts `before` back once `after` was set. A limit that only `after` has becomes what the kernel has by itself; CPU sets,
/// huge pages and keys of cgroup v2 have no such value, and stay where `before` has none.
pub fn reverted_resources(before: &LinuxResources, after: &LinuxResources) -> LinuxResources {
    const UNLIMITED: i64 = -1;
    let mut to = before.clone();
    if let Some(after) = after.memory() {
        let mut memory = to.memory().unwrap_or_default();
        let limit = memory.limit().or(after.limit().map(|_| UNLIMITED));
        let swap = memory.swap().or(after.swap().map(|_| UNLIMITED));
        memory.set_limit(limit).set_swap(swap);
        to.set_memory(Some(memory));
    }
    if let Some(after) = after.cpu() {
        let mut cpu = to.cpu().clone().unwrap_or_default();
        let quota = cpu.quota().or(after.quota().map(|_| UNLIMITED));
        let period = cpu.period().or(after.period().map(|_| 100_000));
        let shares = cpu.shares().or(after.shares().map(|_| 1024));
        cpu.set_quota(quota).set_period(period).set_shares(shares);
        to.set_cpu(Some(cpu));
    }
    if to.pids().is_none() && after.pids().is_some() {
        let mut pids = LinuxPids::default();
        pids.set_limit(UNLIMITED);
        to.set_pids(Some(pids));
    }
    to
}

/// Whether limits of huge pages are set.
fn limits_huge_pages(node: &NodeFacts) -> Result<bool, SpecError> {
    match node.policy.huge_pages {
        HugePages::Ignored => Ok(false),
        HugePages::Required if !node.hugetlb => Err(SpecError::Unsupported(
            "limits of huge pages need the hugetlb controller, which this node has not".to_owned(),
        )),
        HugePages::Required | HugePages::IfPossible => Ok(node.hugetlb),
    }
}

fn unsigned(value: i64, what: &str) -> Result<u64, SpecError> {
    u64::try_from(value).map_err(|_| SpecError::Invalid(format!("{what} {value} is negative")))
}

fn cpu(
    current: Option<&LinuxCpu>,
    asked: &LinuxContainerResources,
) -> Result<Option<LinuxCpu>, SpecError> {
    let mut to = current.cloned().unwrap_or_default();
    if asked.cpu_period != 0 {
        to.set_period(Some(unsigned(asked.cpu_period, "cpu period")?));
    }
    if asked.cpu_quota != 0 {
        to.set_quota(Some(asked.cpu_quota));
    }
    if asked.cpu_shares != 0 {
        to.set_shares(Some(unsigned(asked.cpu_shares, "cpu shares")?));
    }
    if !asked.cpuset_cpus.is_empty() {
        to.set_cpus(Some(asked.cpuset_cpus.clone()));
    }
    if !asked.cpuset_mems.is_empty() {
        to.set_mems(Some(asked.cpuset_mems.clone()));
    }
    Ok(Some(to).filter(|cpu| *cpu != LinuxCpu::default()))
}

fn memory(
    current: Option<&LinuxMemory>,
    asked: &LinuxContainerResources,
    node: &NodeFacts,
) -> Result<Option<LinuxMemory>, SpecError> {
    let limit = asked.memory_limit_in_bytes;
    let swap = asked.memory_swap_limit_in_bytes;
    let mut to = current.copied().unwrap_or_default();
    if limit != 0 {
        to.set_limit(Some(limit));
    }
    if swap > 0 && limit > 0 && swap < limit {
        return Err(SpecError::Invalid(format!(
            "memory and swap limit {swap} is below the memory limit {limit}"
        )));
    }
    if node.swap_accounting {
        if swap != 0 {
            to.set_swap(Some(swap));
        } else if limit != 0 {
            to.set_swap(Some(limit));
        }
    }
    Ok(Some(to).filter(|memory| *memory != LinuxMemory::default()))
}

fn hugepages(asked: &LinuxContainerResources) -> Result<Vec<LinuxHugepageLimit>, SpecError> {
    let limits = asked.hugepage_limits.iter();
    limits
        .map(|limit| {
            let mut to = LinuxHugepageLimit::default();
            let bytes = i64::try_from(limit.limit).unwrap_or(i64::MAX);
            to.set_page_size(limit.page_size.clone()).set_limit(bytes);
            Ok(to)
        })
        .collect()
}

/// The `oom_score_adj` a container gets: what was asked, but no lower than the floor, where the node has one. -1000 to 1000.
pub fn restricted_oom_score_adj(asked: i64, floor: Option<i32>) -> Result<i32, SpecError> {
    let value = i32::try_from(asked)
        .ok()
        .filter(|value| (-1000..=1000).contains(value))
        .ok_or_else(|| SpecError::Invalid(format!("oom_score_adj {asked} is out of range")))?;
    Ok(floor.map_or(value, |floor| value.max(floor)))
}
