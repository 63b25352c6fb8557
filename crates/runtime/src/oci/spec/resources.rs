//! CPU, memory, huge pages, processes.

use std::collections::HashMap;

use oci_spec::runtime::{LinuxCpu, LinuxHugepageLimit, LinuxMemory, LinuxPids, LinuxResources};

use super::error::SpecError;
use super::facts::{CgroupVersion, NodeFacts};
use criscope_cri::v1::LinuxContainerResources;

/// The resources of a container in the OCI specification. Zero and empty mean unset.
///
/// A memory limit without a swap limit applies to memory and swap together, if the kernel accounts swap. Huge page limits are
/// subject to the node's policy.
pub fn container_resources(
    requested: &LinuxContainerResources,
    node: &NodeFacts,
) -> Result<LinuxResources, SpecError> {
    updated_resources(&LinuxResources::default(), requested, node)
}

/// The resources after an update; fields that are unset in the update stay unchanged.
pub fn updated_resources(
    current: &LinuxResources,
    requested: &LinuxContainerResources,
    node: &NodeFacts,
) -> Result<LinuxResources, SpecError> {
    check_names(requested)?;
    let mut to = current.clone();
    to.set_cpu(cpu(to.cpu().as_ref(), requested)?);
    to.set_memory(memory(to.memory().as_ref(), requested, node)?);
    if to.pids().is_none() && node.pids_limit > 0 {
        let mut pids = LinuxPids::default();
        pids.set_limit(node.pids_limit);
        to.set_pids(Some(pids));
    }
    if !requested.hugepage_limits.is_empty() && limits_huge_pages(node)? {
        to.set_hugepage_limits(Some(hugepages(requested)?));
    }
    if !requested.unified.is_empty() {
        if node.cgroup_version == CgroupVersion::V1 {
            return Err(SpecError::Unsupported(
                "unified resources need cgroup v2".to_owned(),
            ));
        }
        let mut unified: HashMap<String, String> = to.unified().clone().unwrap_or_default();
        unified.extend(requested.unified.clone());
        to.set_unified(Some(unified));
    }
    Ok(to)
}

/// Limits of an update that the CRI cannot express and an OCI runtime can change; `None` stays unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoreLimits {
    /// Bytes of memory that are reclaimed last.
    pub memory_reservation: Option<i64>,
    /// Microseconds of each real-time period.
    pub realtime_runtime: Option<i64>,
    /// Microseconds.
    pub realtime_period: Option<u64>,
    /// Processes and threads; -1 is no limit.
    pub pids: Option<i64>,
}

impl MoreLimits {
    /// Sets the limits in resources.
    pub fn apply(&self, to: &mut LinuxResources) {
        if self.memory_reservation.is_some() {
            let mut memory = to.memory().unwrap_or_default();
            memory.set_reservation(self.memory_reservation);
            to.set_memory(Some(memory));
        }
        if self.realtime_runtime.is_some() || self.realtime_period.is_some() {
            let mut cpu = to.cpu().clone().unwrap_or_default();
            let runtime = self.realtime_runtime.or(cpu.realtime_runtime());
            let period = self.realtime_period.or(cpu.realtime_period());
            cpu.set_realtime_runtime(runtime)
                .set_realtime_period(period);
            to.set_cpu(Some(cpu));
        }
        if let Some(limit) = self.pids {
            let mut pids = LinuxPids::default();
            pids.set_limit(limit);
            to.set_pids(Some(pids));
        }
    }
}

/// Checks the strings that become names or contents of cgroup files.
fn check_names(requested: &LinuxContainerResources) -> Result<(), SpecError> {
    check_cpu_set(&requested.cpuset_cpus)?;
    check_cpu_set(&requested.cpuset_mems)?;
    for limit in &requested.hugepage_limits {
        check_page_size(&limit.page_size)?;
    }
    requested.unified.iter().try_for_each(check_unified)
}

/// Checks the same strings of resources that may not be those of a request.
pub(super) fn check_strings(resources: &LinuxResources) -> Result<(), SpecError> {
    if let Some(cpu) = resources.cpu() {
        check_cpu_set(cpu.cpus().as_deref().unwrap_or_default())?;
        check_cpu_set(cpu.mems().as_deref().unwrap_or_default())?;
    }
    for limit in resources.hugepage_limits().iter().flatten() {
        check_page_size(limit.page_size())?;
    }
    let mut unified = resources.unified().iter().flatten();
    unified.try_for_each(check_unified)
}

fn check_cpu_set(text: &str) -> Result<(), SpecError> {
    let mut letters = text.bytes();
    if letters.all(|byte| byte.is_ascii_digit() || matches!(byte, b',' | b'-')) {
        return Ok(());
    }
    invalid("cpuset: not a list such as 0-3,7")
}

fn check_page_size(text: &str) -> Result<(), SpecError> {
    let size = text.trim_end_matches('B');
    let digits = size.trim_end_matches(['K', 'M', 'G', 'T']);
    let fits = digits.bytes().all(|byte| byte.is_ascii_digit());
    if digits.is_empty() || !fits || size.len() - digits.len() > 1 {
        return invalid("size of huge pages: not a size such as 2MB");
    }
    Ok(())
}

fn check_unified((key, value): (&String, &String)) -> Result<(), SpecError> {
    let is_name = key
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_'));
    // `cgroup.*` files are not limits: they move, freeze and kill processes.
    if !is_name || !key.contains('.') || key.starts_with("cgroup.") {
        return invalid("unified resource: not a key such as memory.high");
    }
    if value.contains(|c: char| c.is_control() && c != '\n') {
        return invalid("unified resource: the value has control characters");
    }
    Ok(())
}

fn invalid(what: &str) -> Result<(), SpecError> {
    Err(SpecError::Invalid(what.to_owned()))
}

/// Returns the update that restores `before` after `after` was set. Limits that only `after` has become the kernel's defaults;
/// CPU sets, huge pages, keys of cgroup v2, reservations and real-time limits have no default and stay if `before` does not have
/// them.
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

/// Returns whether huge page limits are applied.
fn limits_huge_pages(node: &NodeFacts) -> Result<bool, SpecError> {
    let policy = &node.policy;
    if policy.disable_hugetlb_controller {
        return Ok(false);
    }
    if !node.hugetlb && !policy.tolerate_missing_hugetlb_controller {
        return Err(SpecError::Unsupported(
            "huge page limits need the hugetlb controller, which this node does not have"
                .to_owned(),
        ));
    }
    Ok(node.hugetlb)
}

fn unsigned(value: i64, what: &str) -> Result<u64, SpecError> {
    u64::try_from(value).map_err(|_| SpecError::Invalid(format!("{what} {value} is negative")))
}

fn cpu(
    current: Option<&LinuxCpu>,
    requested: &LinuxContainerResources,
) -> Result<Option<LinuxCpu>, SpecError> {
    let mut to = current.cloned().unwrap_or_default();
    if requested.cpu_period != 0 {
        to.set_period(Some(unsigned(requested.cpu_period, "cpu period")?));
    }
    if requested.cpu_quota != 0 {
        to.set_quota(Some(requested.cpu_quota));
    }
    if requested.cpu_shares != 0 {
        to.set_shares(Some(unsigned(requested.cpu_shares, "cpu shares")?));
    }
    if !requested.cpuset_cpus.is_empty() {
        to.set_cpus(Some(requested.cpuset_cpus.clone()));
    }
    if !requested.cpuset_mems.is_empty() {
        to.set_mems(Some(requested.cpuset_mems.clone()));
    }
    Ok(Some(to).filter(|cpu| *cpu != LinuxCpu::default()))
}

fn memory(
    current: Option<&LinuxMemory>,
    requested: &LinuxContainerResources,
    node: &NodeFacts,
) -> Result<Option<LinuxMemory>, SpecError> {
    let limit = requested.memory_limit_in_bytes;
    let swap = requested.memory_swap_limit_in_bytes;
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

fn hugepages(requested: &LinuxContainerResources) -> Result<Vec<LinuxHugepageLimit>, SpecError> {
    let limits = requested.hugepage_limits.iter();
    limits
        .map(|limit| {
            let mut to = LinuxHugepageLimit::default();
            let bytes = i64::try_from(limit.limit).unwrap_or(i64::MAX);
            to.set_page_size(limit.page_size.clone()).set_limit(bytes);
            Ok(to)
        })
        .collect()
}

/// The `oom_score_adj` of a container (-1000 to 1000): the requested one, but not below the floor of the node, if any.
pub fn restricted_oom_score_adj(requested: i64, floor: Option<i32>) -> Result<i32, SpecError> {
    let value = i32::try_from(requested)
        .ok()
        .filter(|value| (-1000..=1000).contains(value))
        .ok_or_else(|| SpecError::Invalid(format!("oom_score_adj {requested} is out of range")))?;
    Ok(floor.map_or(value, |floor| value.max(floor)))
}
