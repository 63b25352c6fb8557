//! UpdateContainerResources.

use std::fs;
use std::sync::Arc;

use oci_spec::runtime::Spec;

use super::super::sandbox::teardown::blocking;
use super::assemble::{SPEC, write_private};
use crate::cri::phases::RuntimePhase;
use crate::cri::v1::{LinuxContainerResources, UpdateContainerResourcesRequest};
use crate::runtime::Runtime;
use crate::runtime::error::{Error, Result};
use crate::runtime::oci::spec::updated_resources;
use crate::runtime::store::{Container, ContainerState};

impl Runtime {
    /// Changes the resources of a container that is created or runs; what the request does not say stays. On failure
    /// everything is as before.
    ///
    /// # Errors
    /// It has ended, or the OCI runtime refuses.
    pub async fn update_container_resources(
        self: &Arc<Self>,
        request: UpdateContainerResourcesRequest,
    ) -> Result<()> {
        let container = self.store.containers.get(&request.container_id)?;
        let Some(asked) = request.linux else {
            return Ok(());
        };
        let _turn = container.turn.lock().await;
        let state = container.record().state;
        if !matches!(state, ContainerState::Created | ContainerState::Running) {
            return Err(Error::state(format!(
                "container {} is {}",
                container.id,
                state.name()
            )));
        }
        let mut spec = read_spec(&container).await?;
        let linux = spec.linux().clone().unwrap_or_default();
        let before = linux.resources().clone().unwrap_or_default();
        let after = updated_resources(&before, &asked, &self.settings.node)?;
        let mut linux = linux;
        linux.set_resources(Some(after.clone()));
        spec.set_linux(Some(linux));
        if state == ContainerState::Running {
            let handler = self.handler_of(&container);
            let updating = handler.oci.update(&container.id, &after);
            self.watch
                .step(RuntimePhase::OciUpdate, Some(handler.program()), updating)
                .await?;
        }
        write_spec(&container, spec).await?;
        container.update(|record| merge(&mut record.resources, asked))?;
        Ok(())
    }
}

/// What a later request says wins; what it does not say stays.
pub(in crate::runtime) fn merge(
    resources: &mut LinuxContainerResources,
    asked: LinuxContainerResources,
) {
    let number = |to: &mut i64, from: i64| {
        if from != 0 {
            *to = from;
        }
    };
    number(&mut resources.cpu_period, asked.cpu_period);
    number(&mut resources.cpu_quota, asked.cpu_quota);
    number(&mut resources.cpu_shares, asked.cpu_shares);
    number(
        &mut resources.memory_limit_in_bytes,
        asked.memory_limit_in_bytes,
    );
    number(
        &mut resources.memory_swap_limit_in_bytes,
        asked.memory_swap_limit_in_bytes,
    );
    number(&mut resources.oom_score_adj, asked.oom_score_adj);
    if !asked.cpuset_cpus.is_empty() {
        resources.cpuset_cpus = asked.cpuset_cpus;
    }
    if !asked.cpuset_mems.is_empty() {
        resources.cpuset_mems = asked.cpuset_mems;
    }
    if !asked.hugepage_limits.is_empty() {
        resources.hugepage_limits = asked.hugepage_limits;
    }
    resources.unified.extend(asked.unified);
}

/// Reads the specification of a container.
pub(in crate::runtime) async fn read_spec(container: &Arc<Container>) -> Result<Spec> {
    let path = container.dir().join(SPEC);
    blocking(move || {
        let text = fs::read(&path).map_err(|e| Error::io("read", &path, e))?;
        serde_json::from_slice(&text).map_err(|e| Error::io("read", &path, e))
    })
    .await
}

async fn write_spec(container: &Arc<Container>, spec: Spec) -> Result<()> {
    let path = container.dir().join(SPEC);
    blocking(move || {
        let text = serde_json::to_vec(&spec).map_err(|e| Error::io("write", &path, e))?;
        write_private(&path, &text)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_update_does_not_say_stays() {
        let mut now = LinuxContainerResources {
            cpu_shares: 10,
            memory_limit_in_bytes: 5,
            cpuset_cpus: "0".to_owned(),
            ..Default::default()
        };
        merge(
            &mut now,
            LinuxContainerResources {
                cpu_shares: 20,
                ..Default::default()
            },
        );
        assert_eq!(
            (
                now.cpu_shares,
                now.memory_limit_in_bytes,
                now.cpuset_cpus.as_str()
            ),
            (20, 5, "0")
        );
    }
}
