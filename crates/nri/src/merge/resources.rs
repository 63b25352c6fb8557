//! Resources, field by field.

use super::FieldClaims;
use crate::api::{Field, LinuxCpu, LinuxMemory, LinuxResources};
use crate::error::EventError;

/// Claims the fields that are set in `$from`, and copies them to both others.
macro_rules! fields {
    ($claims:ident, $from:ident, $to:ident, $also:ident, $($field:ident = $name:ident),* $(,)?) => {$(
        if let Some(value) = &$from.$field {
            $claims.claim(Field::$name)?;
            $to.$field = Some(value.clone());
            $also.$field = Some(value.clone());
        }
    )*};
}

/// Merges the resources that a plugin wants into the adjustments and into the request for the next plugin.
pub(super) fn merge(
    claims: &mut FieldClaims<'_>,
    wanted: &LinuxResources,
    adjusted: &mut LinuxResources,
    request: &mut LinuxResources,
) -> Result<(), EventError> {
    if let Some(from) = &wanted.memory {
        memory(
            claims,
            from,
            adjusted.memory.get_or_insert_default(),
            request.memory.get_or_insert_default(),
        )?;
    }
    if let Some(from) = &wanted.cpu {
        cpu(
            claims,
            from,
            adjusted.cpu.get_or_insert_default(),
            request.cpu.get_or_insert_default(),
        )?;
    }
    for limit in &wanted.hugepage_limits {
        claims.claim_key(Field::HugepageLimits, &limit.page_size)?;
        for to in [&mut *adjusted, &mut *request] {
            to.hugepage_limits
                .retain(|other| other.page_size != limit.page_size);
            to.hugepage_limits.push(limit.clone());
        }
    }
    for rule in &wanted.devices {
        adjusted.devices.push(rule.clone());
        request.devices.push(rule.clone());
    }
    for (key, value) in &wanted.unified {
        claims.claim_key(Field::CgroupsUnified, key)?;
        adjusted.unified.insert(key.clone(), value.clone());
        request.unified.insert(key.clone(), value.clone());
    }
    fields!(
        claims,
        wanted,
        adjusted,
        request,
        blockio_class = BlockioClass,
        rdt_class = RdtClass,
        pids = PidsLimit
    );
    Ok(())
}

fn memory(
    claims: &mut FieldClaims<'_>,
    from: &LinuxMemory,
    adjusted: &mut LinuxMemory,
    request: &mut LinuxMemory,
) -> Result<(), EventError> {
    fields!(
        claims,
        from,
        adjusted,
        request,
        limit = MemLimit,
        reservation = MemReservation,
        swap = MemSwapLimit,
        kernel = MemKernelLimit,
        kernel_tcp = MemTcpLimit,
        swappiness = MemSwappiness,
        disable_oom_killer = MemDisableOomKiller,
        use_hierarchy = MemUseHierarchy,
    );
    Ok(())
}

fn cpu(
    claims: &mut FieldClaims<'_>,
    from: &LinuxCpu,
    adjusted: &mut LinuxCpu,
    request: &mut LinuxCpu,
) -> Result<(), EventError> {
    fields!(
        claims,
        from,
        adjusted,
        request,
        shares = CpuShares,
        quota = CpuQuota,
        period = CpuPeriod,
        realtime_runtime = CpuRealtimeRuntime,
        realtime_period = CpuRealtimePeriod,
    );
    if !from.cpus.is_empty() {
        claims.claim(Field::CpuSetCpUs)?;
        adjusted.cpus.clone_from(&from.cpus);
        request.cpus.clone_from(&from.cpus);
    }
    if !from.mems.is_empty() {
        claims.claim(Field::CpuSetMems)?;
        adjusted.mems.clone_from(&from.mems);
        request.mems.clone_from(&from.mems);
    }
    Ok(())
}
