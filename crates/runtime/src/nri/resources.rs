//! Resources between the CRI and the messages of the interface.

use criscope_nri::api::{
    Container, HugepageLimit, LinuxCpu, LinuxMemory, LinuxResources, OptionalInt64, OptionalUInt64,
};

use super::adjust::rdt_group;
use crate::oci::spec::MoreLimits;
use criscope_cri::v1;

/// The resources of a request. Unset fields are sent as 0, as containerd sends them.
pub(super) fn from_cri(from: &v1::LinuxContainerResources) -> LinuxResources {
    LinuxResources {
        cpu: Some(LinuxCpu {
            shares: Some(optional_u64(from.cpu_shares)),
            quota: Some(OptionalInt64 {
                value: from.cpu_quota,
            }),
            period: Some(optional_u64(from.cpu_period)),
            cpus: from.cpuset_cpus.clone(),
            mems: from.cpuset_mems.clone(),
            ..LinuxCpu::default()
        }),
        memory: Some(LinuxMemory {
            limit: Some(OptionalInt64 {
                value: from.memory_limit_in_bytes,
            }),
            ..LinuxMemory::default()
        }),
        hugepage_limits: from
            .hugepage_limits
            .iter()
            .map(|limit| HugepageLimit {
                page_size: limit.page_size.clone(),
                limit: limit.limit,
            })
            .collect(),
        unified: from.unified.clone().into_iter().collect(),
        ..LinuxResources::default()
    }
}

fn optional_u64(value: i64) -> OptionalUInt64 {
    OptionalUInt64 {
        value: value.try_into().unwrap_or(0),
    }
}

fn saturating_i64(value: Option<OptionalUInt64>) -> i64 {
    value.map_or(0, |one| one.value.try_into().unwrap_or(i64::MAX))
}

/// The part of resources that the CRI can express.
pub(super) fn to_cri(from: &LinuxResources) -> v1::LinuxContainerResources {
    let (cpu, memory) = (
        from.cpu.clone().unwrap_or_default(),
        from.memory.unwrap_or_default(),
    );
    v1::LinuxContainerResources {
        cpu_shares: saturating_i64(cpu.shares),
        cpu_quota: cpu.quota.map_or(0, |quota| quota.value),
        cpu_period: saturating_i64(cpu.period),
        cpuset_cpus: cpu.cpus,
        cpuset_mems: cpu.mems,
        memory_limit_in_bytes: memory.limit.map_or(0, |limit| limit.value),
        memory_swap_limit_in_bytes: memory.swap.map_or(0, |swap| swap.value),
        hugepage_limits: from
            .hugepage_limits
            .iter()
            .map(|limit| v1::HugepageLimit {
                page_size: limit.page_size.clone(),
                limit: limit.limit,
            })
            .collect(),
        unified: from.unified.clone().into_iter().collect(),
        ..Default::default()
    }
}

/// The part of resources that can be updated as well, as CRI-O does.
pub(super) fn beyond_cri(from: &LinuxResources) -> MoreLimits {
    let (cpu, memory) = (from.cpu.as_ref(), from.memory.as_ref());
    MoreLimits {
        memory_reservation: memory.and_then(|memory| Some(memory.reservation?.value)),
        realtime_runtime: cpu.and_then(|cpu| Some(cpu.realtime_runtime?.value)),
        realtime_period: cpu.and_then(|cpu| Some(cpu.realtime_period?.value)),
        pids: from.pids.as_ref().map(|pids| pids.limit),
    }
}

/// Logs the names of fields that an update does not change. They do not refuse it: plugins repeat the classes of a container in
/// each of its updates, and with the peers these have no effect either.
pub(super) fn warn_unchanged(wanted: &LinuxResources, container: &Container) {
    let fields = unchanged(wanted, container);
    if !fields.is_empty() {
        let fields = fields.join(", ");
        tracing::warn!(target: "criscope::runtime::nri::resources", event = "runtime.nri", container.id = %container.id, nri.fields = fields, "NRI plugins want an update to change what is set only when a container is created");
    }
}

/// The fields that OCI runtimes set only when they create a container, and that are not what the container has. A block I/O class
/// cannot be compared with its limits, and always counts.
fn unchanged(wanted: &LinuxResources, container: &Container) -> Vec<&'static str> {
    let linux = container.linux.clone().unwrap_or_default();
    let has = linux.resources.unwrap_or_default();
    let group = linux.rdt.and_then(|rdt| Some(rdt.clos_id?.value));
    let moves = wanted
        .rdt_class
        .as_ref()
        .is_some_and(|class| rdt_group(&class.value) != group.as_deref());
    let memory = (
        wanted.memory.unwrap_or_default(),
        has.memory.unwrap_or_default(),
    );
    macro_rules! differs {
        ($field:ident) => {
            memory.0.$field.is_some() && memory.0.$field != memory.1.$field
        };
    }
    let fields = [
        ("blockio_class", wanted.blockio_class.is_some()),
        ("rdt_class", moves),
        (
            "devices",
            !wanted.devices.is_empty() && wanted.devices != has.devices,
        ),
        ("memory.kernel", differs!(kernel)),
        ("memory.kernel_tcp", differs!(kernel_tcp)),
        ("memory.swappiness", differs!(swappiness)),
        ("memory.disable_oom_killer", differs!(disable_oom_killer)),
        ("memory.use_hierarchy", differs!(use_hierarchy)),
    ];
    let fields = fields.into_iter().filter(|(_, differs)| *differs);
    fields.map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests;
