//! Updates of containers that exist.

use super::{ContainerFieldOwners, FieldClaims, resources};
use crate::api::{
    ContainerEviction, ContainerUpdate, LinuxResources, UpdateContainerRequest,
    UpdateContainerResponse,
};
use crate::error::EventError;
use crate::runtime::EvictionRequest;

/// The updates and evictions that plugins want, in order, one for each container.
#[derive(Default)]
pub(crate) struct ContainerUpdates {
    list: Vec<ContainerUpdate>,
    evictions: Vec<EvictionRequest>,
}

impl ContainerUpdates {
    pub(super) fn list(&self) -> &[ContainerUpdate] {
        &self.list
    }

    pub(crate) fn into_parts(self) -> (Vec<ContainerUpdate>, Vec<EvictionRequest>) {
        (self.list, self.evictions)
    }

    pub(super) fn evict(&mut self, evictions: Vec<ContainerEviction>, plugin: &str) {
        for eviction in evictions {
            let id = &eviction.container_id;
            if !self.evictions.iter().any(|one| one.container_id == *id) {
                self.evictions.push(EvictionRequest::new(plugin, eviction));
            }
        }
    }

    /// Merges the updates of a plugin. One that conflicts and may fail is left out.
    pub(super) fn merge(
        &mut self,
        owners: &mut ContainerFieldOwners,
        updates: Vec<ContainerUpdate>,
        plugin: &str,
    ) -> Result<(), EventError> {
        for update in updates {
            let id = &update.container_id;
            let at = self.list.iter().position(|one| one.container_id == *id);
            let at = at.unwrap_or_else(|| {
                self.list.push(ContainerUpdate {
                    container_id: id.clone(),
                    linux: Some(Default::default()),
                    ignore_failure: true,
                });
                self.list.len() - 1
            });
            let merged = &mut self.list[at];
            merged.ignore_failure &= update.ignore_failure;
            let to = merged.linux.get_or_insert_default();
            let to = to.resources.get_or_insert_default();
            let claims = FieldClaims {
                owners: &mut *owners,
                id,
                plugin,
            };
            merge_one(claims, &update, to)?;
        }
        Ok(())
    }
}

/// Merges an update. One with an ignored conflict is dropped as a whole. Returns whether it was merged.
fn merge_one(
    mut claims: FieldClaims<'_>,
    update: &ContainerUpdate,
    to: &mut LinuxResources,
) -> Result<bool, EventError> {
    let wanted = update.linux.as_ref();
    let Some(wanted) = wanted.and_then(|linux| linux.resources.as_ref()) else {
        return Ok(true);
    };
    let (mut draft, mut unseen) = (to.clone(), LinuxResources::default());
    match resources::merge(&mut claims, wanted, &mut draft, &mut unseen) {
        Ok(()) => *to = draft,
        Err(_) if update.ignore_failure => return Ok(false),
        Err(error) => return Err(error),
    }
    Ok(true)
}

/// The merged answers to UpdateContainer.
pub(crate) struct MergedUpdate {
    /// The request. It shows the next plugin the changes of earlier ones.
    pub(crate) request: UpdateContainerRequest,
    /// Updates of other containers that plugins want.
    pub(crate) others: ContainerUpdates,
    /// Set if a plugin changed the resources of the request.
    pub(crate) changed: bool,
    owners: ContainerFieldOwners,
}

impl MergedUpdate {
    pub(crate) fn new(request: UpdateContainerRequest) -> Self {
        Self {
            request,
            others: ContainerUpdates::default(),
            changed: false,
            owners: ContainerFieldOwners::default(),
        }
    }

    /// Merges the answer of a plugin.
    pub(crate) fn merge(
        &mut self,
        answer: UpdateContainerResponse,
        plugin: &str,
    ) -> Result<(), EventError> {
        let container = self.request.container.as_ref();
        let id = container.map(|container| container.id.clone());
        let id = id.unwrap_or_default();
        let (own, others): (Vec<_>, Vec<_>) = answer
            .update
            .into_iter()
            .partition(|update| update.container_id == id);
        for update in own {
            let to = self.request.linux_resources.get_or_insert_default();
            let claims = FieldClaims {
                owners: &mut self.owners,
                id: &id,
                plugin,
            };
            self.changed |= merge_one(claims, &update, to)?;
        }
        self.others.merge(&mut self.owners, others, plugin)?;
        self.others.evict(answer.evict, plugin);
        Ok(())
    }
}

/// The merged answers to StopContainer.
#[derive(Default)]
pub(crate) struct MergedStop {
    pub(crate) updates: ContainerUpdates,
    owners: ContainerFieldOwners,
}

impl MergedStop {
    /// Merges the answer of a plugin.
    pub(crate) fn merge(
        &mut self,
        updates: Vec<ContainerUpdate>,
        plugin: &str,
    ) -> Result<(), EventError> {
        self.updates.merge(&mut self.owners, updates, plugin)
    }
}
