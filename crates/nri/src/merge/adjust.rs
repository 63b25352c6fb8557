//! The adjustments of a container that is being created.

use super::lists::added;
use super::{ContainerFieldOwners, ContainerUpdates, FieldClaims, resources};
use crate::api::{
    Container, ContainerAdjustment, ContainerRequest, CreateContainerResponse, Field, Hooks,
    LinuxContainerAdjustment, LinuxRdt, PodSandbox, ValidateContainerAdjustmentRequest,
};
use crate::error::EventError;

/// The merged answers to CreateContainer.
pub(crate) struct MergedCreation {
    /// The request. It shows the next plugin the adjustments of earlier ones.
    pub(crate) request: ContainerRequest,
    adjusted: ContainerAdjustment,
    owners: ContainerFieldOwners,
    /// Updates of other containers that plugins want.
    pub(crate) updates: ContainerUpdates,
}

impl MergedCreation {
    pub(crate) fn new(pod: PodSandbox, container: Container) -> Self {
        Self {
            request: ContainerRequest {
                pod: Some(pod),
                container: Some(container),
            },
            adjusted: ContainerAdjustment::default(),
            owners: ContainerFieldOwners::default(),
            updates: ContainerUpdates::default(),
        }
    }

    /// The merged adjustments, and the updates and evictions of other containers.
    pub(crate) fn into_parts(self) -> (ContainerAdjustment, ContainerUpdates) {
        (self.adjusted, self.updates)
    }

    /// Completes the request to validating plugins.
    pub(crate) fn validated(&self, request: &mut ValidateContainerAdjustmentRequest) {
        request.adjust = Some(self.adjusted.clone());
        request.update = self.updates.list().to_vec();
        request.owners = Some(self.owners.message());
    }

    /// Merges the answer of a plugin.
    pub(crate) fn merge(
        &mut self,
        answer: CreateContainerResponse,
        plugin: &str,
    ) -> Result<(), EventError> {
        let container = self.request.container.get_or_insert_default();
        let id = container.id.clone();
        let mut claims = FieldClaims {
            owners: &mut self.owners,
            id: &id,
            plugin,
        };
        if let Some(wanted) = answer.adjust {
            adjust(&mut claims, wanted, &mut self.adjusted, container)?;
        }
        if answer.update.iter().any(|update| update.container_id == id) {
            return Err(EventError::Early {
                plugin: plugin.to_owned(),
                id,
            });
        }
        self.updates
            .merge(&mut self.owners, answer.update, plugin)?;
        self.updates.evict(answer.evict, plugin);
        Ok(())
    }
}

fn adjust(
    claims: &mut FieldClaims<'_>,
    wanted: ContainerAdjustment,
    adjusted: &mut ContainerAdjustment,
    container: &mut Container,
) -> Result<(), EventError> {
    claims.map(
        Field::Annotations,
        wanted.annotations,
        &mut adjusted.annotations,
        &mut container.annotations,
    )?;
    let gone = claims.list(&wanted.mounts, &mut adjusted.mounts)?;
    container.mounts.retain(|m| !gone.contains(&m.destination));
    container.mounts.extend(added(&wanted.mounts).cloned());
    let gone = claims.list(&wanted.env, &mut adjusted.env)?;
    container.env.retain(|pair| {
        let name = pair.split('=').next().unwrap_or_default();
        !gone.contains(name)
    });
    let pairs = added(&wanted.env).map(|one| format!("{}={}", one.key, one.value));
    container.env.extend(pairs);
    args(claims, wanted.args, adjusted, container)?;
    if let Some(hooks) = wanted.hooks {
        claims
            .owners
            .share(claims.id, Field::OciHooks, claims.plugin);
        add_hooks(adjusted.hooks.get_or_insert_default(), &hooks);
        add_hooks(container.hooks.get_or_insert_default(), &hooks);
    }
    if let Some(linux) = wanted.linux {
        adjust_linux(
            claims,
            linux,
            adjusted.linux.get_or_insert_default(),
            container,
        )?;
    }
    for limit in wanted.rlimits {
        claims.claim_key(Field::Rlimits, &limit.r#type)?;
        container.rlimits.retain(|one| one.r#type != limit.r#type);
        container.rlimits.push(limit.clone());
        adjusted.rlimits.push(limit);
    }
    // The runtime resolves CDI devices: later plugins do not see them.
    for device in wanted.cdi_devices {
        claims.claim_key(Field::CdiDevices, &device.name)?;
        adjusted.cdi_devices.push(device);
    }
    Ok(())
}

fn args(
    claims: &mut FieldClaims<'_>,
    mut wanted: Vec<String>,
    adjusted: &mut ContainerAdjustment,
    container: &mut Container,
) -> Result<(), EventError> {
    let Some(first) = wanted.first() else {
        return Ok(());
    };
    if first.is_empty() {
        claims.clear(Field::Args);
        wanted.remove(0);
    }
    claims.claim(Field::Args)?;
    container.args.clone_from(&wanted);
    adjusted.args = wanted;
    Ok(())
}

fn add_hooks(to: &mut Hooks, from: &Hooks) {
    to.prestart.extend_from_slice(&from.prestart);
    to.create_runtime.extend_from_slice(&from.create_runtime);
    to.create_container
        .extend_from_slice(&from.create_container);
    to.start_container.extend_from_slice(&from.start_container);
    to.poststart.extend_from_slice(&from.poststart);
    to.poststop.extend_from_slice(&from.poststop);
}

fn adjust_linux(
    claims: &mut FieldClaims<'_>,
    wanted: LinuxContainerAdjustment,
    adjusted: &mut LinuxContainerAdjustment,
    container: &mut Container,
) -> Result<(), EventError> {
    let linux = container.linux.get_or_insert_default();
    let gone = claims.list(&wanted.devices, &mut adjusted.devices)?;
    linux.devices.retain(|device| !gone.contains(&device.path));
    linux.devices.extend(added(&wanted.devices).cloned());
    if let Some(wanted) = &wanted.resources {
        resources::merge(
            claims,
            wanted,
            adjusted.resources.get_or_insert_default(),
            linux.resources.get_or_insert_default(),
        )?;
    }
    if !wanted.cgroups_path.is_empty() {
        claims.claim(Field::CgroupsPath)?;
        linux.cgroups_path.clone_from(&wanted.cgroups_path);
        adjusted.cgroups_path = wanted.cgroups_path;
    }
    macro_rules! whole {
        ($($field:ident = $name:ident),* $(,)?) => {$(
            if let Some(value) = wanted.$field {
                claims.claim(Field::$name)?;
                linux.$field = Some(value.clone());
                adjusted.$field = Some(value);
            }
        )*};
    }
    whole!(
        oom_score_adj = OomScoreAdj,
        io_priority = IoPriority,
        seccomp_policy = SeccompPolicy,
        scheduler = LinuxSched,
    );
    claims.namespaces(
        &wanted.namespaces,
        &mut adjusted.namespaces,
        &mut linux.namespaces,
    )?;
    claims.map(
        Field::Sysctl,
        wanted.sysctl,
        &mut adjusted.sysctl,
        &mut linux.sysctl,
    )?;
    claims.map(
        Field::LinuxNetDevices,
        wanted.net_devices,
        &mut adjusted.net_devices,
        &mut linux.net_devices,
    )?;
    if let Some(wanted) = wanted.rdt {
        rdt(claims, wanted, adjusted.rdt.get_or_insert_default())?;
    }
    if let Some(policy) = wanted.memory_policy {
        claims.claim(Field::MemoryPolicy)?;
        adjusted.memory_policy = Some(policy);
    }
    Ok(())
}

fn rdt(
    claims: &mut FieldClaims<'_>,
    wanted: LinuxRdt,
    adjusted: &mut LinuxRdt,
) -> Result<(), EventError> {
    if wanted.remove {
        for field in [
            Field::RdtClosId,
            Field::RdtSchemata,
            Field::RdtEnableMonitoring,
        ] {
            claims.clear(field);
        }
        *adjusted = LinuxRdt {
            remove: true,
            ..LinuxRdt::default()
        };
    }
    if wanted.clos_id.is_some() {
        claims.claim(Field::RdtClosId)?;
        adjusted.clos_id = wanted.clos_id;
        adjusted.remove = false;
    }
    if wanted.schemata.is_some() {
        claims.claim(Field::RdtSchemata)?;
        adjusted.schemata = wanted.schemata;
        adjusted.remove = false;
    }
    if wanted.enable_monitoring.is_some() {
        claims.claim(Field::RdtEnableMonitoring)?;
        adjusted.enable_monitoring = wanted.enable_monitoring;
        adjusted.remove = false;
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
