//! ListContainers.

use super::super::sandbox::selects;
use super::status::without_handler;
use crate::Runtime;
use crate::store::{ContainerRecord, ContainerState};
use criscope_cri::v1;

impl Runtime {
    /// Returns the containers that match the filter; all containers without one.
    pub fn list_containers(&self, filter: Option<&v1::ContainerFilter>) -> Vec<v1::Container> {
        let mut found: Vec<_> = self
            .store
            .containers
            .all()
            .into_iter()
            .map(|container| container.record())
            .collect();
        if let Some(filter) = filter {
            found.retain(|record| {
                let state = filter.state.as_ref();
                record.id.starts_with(&filter.id)
                    && record.sandbox.starts_with(&filter.pod_sandbox_id)
                    && state.is_none_or(|state| state.state == state_of(record) as i32)
                    && selects(&filter.label_selector, &record.config.labels)
            });
        }
        found.sort_by_key(|record| std::cmp::Reverse(record.created_at));
        let containers = found.iter().map(|record| v1::Container {
            id: record.id.clone(),
            pod_sandbox_id: record.sandbox.clone(),
            metadata: record.config.metadata.clone(),
            image: Some(without_handler(record)),
            image_ref: record.image_ref.clone(),
            state: state_of(record) as i32,
            created_at: record.created_at,
            labels: record.config.labels.clone(),
            annotations: record.config.annotations.clone(),
            image_id: record.image_id.clone(),
        });
        containers.collect()
    }
}

/// The state as a value of the CRI's enum.
pub(crate) fn state_of(record: &ContainerRecord) -> v1::ContainerState {
    match record.state {
        ContainerState::Making | ContainerState::Created | ContainerState::Starting => {
            v1::ContainerState::ContainerCreated
        }
        ContainerState::Running => v1::ContainerState::ContainerRunning,
        ContainerState::Exited => v1::ContainerState::ContainerExited,
    }
}
