//! UpdateContainerResources.

use std::fs;
use std::sync::Arc;

use criscope_nri::api::Event;
use oci_spec::runtime::{LinuxResources, Spec};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::atomic_replace::Drafts;
use super::bundle::SPEC;
use crate::Runtime;
use crate::error::{Error, Result, shown};
use crate::handler::Handler;
use crate::oci::spec::{MoreLimits, reverted_resources, updated_resources};
use crate::sandbox::teardown::blocking;
use crate::shim_client::Update;
use crate::store::{Container, ContainerState};
use criscope_cri::call::steps::RuntimeStep;
use criscope_cri::v1::{LinuxContainerResources, UpdateContainerResourcesRequest};

impl Runtime {
    /// Changes the resources of a created or running container; fields that are unset in the request stay. On failure everything
    /// is rolled back.
    ///
    /// The record is written last, after the kernel and the bundle: if the daemon is killed in between, callers see the old
    /// values and retry.
    ///
    /// # Errors
    /// If the container has exited, uses more memory than the new limit, the OCI runtime fails, or the disk is full.
    pub async fn update_container_resources(
        self: &Arc<Self>,
        request: UpdateContainerResourcesRequest,
    ) -> Result<()> {
        let container = self.store.containers.get(&request.container_id)?;
        let Some(requested) = request.linux else {
            return Ok(());
        };
        // Before the lock: plugins may ask for updates of this container in answer to other events.
        let changed = self.nri_update(&container, &requested).await?;
        let (requested, more) = changed.unwrap_or((requested, MoreLimits::default()));
        self.set_container_resources(&container, requested, &more)
            .await?;
        self.nri_tell(Event::PostUpdateContainer, &container).await;
        Ok(())
    }

    /// Like [`Self::update_container_resources`], without asking plugins.
    pub(crate) async fn set_container_resources(
        self: &Arc<Self>,
        container: &Arc<Container>,
        requested: LinuxContainerResources,
        more: &MoreLimits,
    ) -> Result<()> {
        let _guard = container.op_lock.lock().await;
        let state = container.record().state;
        if !matches!(state, ContainerState::Created | ContainerState::Running) {
            return Err(Error::state(format!(
                "container {} is {}",
                container.id,
                state.in_error()
            )));
        }
        let old = read_spec(container).await?;
        let mut linux = old.linux().clone().unwrap_or_default();
        let before = linux.resources().clone().unwrap_or_default();
        let node = &self.live().settings.node;
        let mut after = updated_resources(&before, &requested, node)?;
        more.apply(&mut after);
        if state == ContainerState::Running {
            self.check_memory(container, &requested).await?;
        }
        linux.set_resources(Some(after.clone()));
        let mut new = old.clone();
        new.set_linux(Some(linux));
        let path = container.dir().join(SPEC);
        // First, because a full disk most likely fails here, where nothing needs to be rolled back yet.
        let drafts = container.work(move || Drafts::write(path, &old, &new));
        let drafts = drafts.await?;
        // A container that is only created receives its limits when it is started.
        let set = match state {
            ContainerState::Running => self.set_resources(container, &after).await,
            _ => Ok(()),
        };
        let changed = match set {
            Ok(()) => place(container, drafts, requested).await,
            // The OCI runtime may have applied a part; rolled back below.
            Err(error) => {
                let tidied = container.work(move || {
                    drop(drafts);
                    Ok(())
                });
                tidied.await?;
                Err(error)
            }
        };
        if changed.is_err() && state == ContainerState::Running {
            let back = reverted_resources(&before, &after);
            if let Err(error) = self.set_resources(container, &back).await {
                tracing::warn!(target: "criscope::runtime::container::update", event = "runtime.update", container.id = %container.id, error.message = %shown(&error), "resources could not be restored after a failed update");
            }
        }
        changed
    }

    /// Refuses a memory limit below what the container holds: cgroup v2 kills a process of it, and version 1 answers EBUSY. The
    /// page cache does not count, because the kernel drops it for a lower limit. No limit (-1) and an unknown usage pass.
    async fn check_memory(
        self: &Arc<Self>,
        container: &Arc<Container>,
        requested: &LinuxContainerResources,
    ) -> Result<()> {
        let Ok(limit @ 1..) = u64::try_from(requested.memory_limit_in_bytes) else {
            return Ok(());
        };
        let reports = self.reports_of(std::slice::from_ref(container)).await;
        let (runtime, record) = (Arc::clone(self), container.record());
        let looking = blocking(move || Ok(runtime.usage_of(&record, &reports)));
        let memory = looking.await?.and_then(|usage| usage.memory);
        match memory.map(|memory| memory.held()) {
            Some(held) if held > limit => Err(Error::state(format!(
                "the memory limit of {limit} bytes is below the usage of container {}: {held} bytes without the page cache",
                container.id
            ))),
            _ => Ok(()),
        }
    }

    async fn set_resources(
        self: &Arc<Self>,
        container: &Container,
        to: &LinuxResources,
    ) -> Result<()> {
        let handler = self.handler_of(container);
        let setting = async {
            if handler.has_containerd_shim() {
                self.set_by_shim(container, &handler, to).await
            } else {
                Ok(handler.oci.update(&container.id, to).await?)
            }
        };
        self.steps
            .step(RuntimeStep::OciUpdate, Some(handler.program()), setting)
            .await
    }

    async fn set_by_shim(
        self: &Arc<Self>,
        container: &Container,
        handler: &Handler,
        to: &LinuxResources,
    ) -> Result<()> {
        let mut resources = to.clone();
        resources.set_devices(None);
        let resources = serde_json::to_vec(&resources)
            .map_err(|error| Error::Internal(format!("resources: {error}")))?;
        let sandbox = self.store.sandboxes.get(&container.record().sandbox)?;
        let update = Update {
            id: container.id.clone(),
            resources,
            timeout_ms: handler.call().timeout_ms,
        };
        Ok(self.shim_of(&sandbox).await?.update(update).await?)
    }
}

/// Replaces the specification and writes the record; restores the old specification if the record cannot be written.
async fn place(
    container: &Container,
    drafts: Drafts,
    requested: LinuxContainerResources,
) -> Result<()> {
    let drafts = container
        .work(move || drafts.place().map(|()| drafts))
        .await?;
    let noted = container.update(|record| merge(&mut record.resources, requested));
    let noted = noted.await.map(drop);
    let failed = noted.is_err();
    let tidied = container.work(move || {
        if failed {
            drafts.put_back();
        }
        drop(drafts);
        Ok(())
    });
    noted.and(tidied.await)
}

/// Merges the fields that a request sets into `resources`.
pub(crate) fn merge(resources: &mut LinuxContainerResources, asked: LinuxContainerResources) {
    set_nonzero(&mut resources.cpu_period, asked.cpu_period);
    set_nonzero(&mut resources.cpu_quota, asked.cpu_quota);
    set_nonzero(&mut resources.cpu_shares, asked.cpu_shares);
    set_nonzero(
        &mut resources.memory_limit_in_bytes,
        asked.memory_limit_in_bytes,
    );
    set_nonzero(
        &mut resources.memory_swap_limit_in_bytes,
        asked.memory_swap_limit_in_bytes,
    );
    set_nonzero(&mut resources.oom_score_adj, asked.oom_score_adj);
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

/// Sets a number. 0 means that the request does not change the limit.
fn set_nonzero(to: &mut i64, from: i64) {
    if from != 0 {
        *to = from;
    }
}

/// Reads the specification of a container.
pub(crate) async fn read_spec(container: &Arc<Container>) -> Result<Spec> {
    read_bundle(container).await
}

/// Reads the specification of a container as JSON.
pub(crate) async fn read_spec_json(container: &Arc<Container>) -> Result<Value> {
    read_bundle(container).await
}

async fn read_bundle<T: DeserializeOwned + Send + 'static>(
    container: &Arc<Container>,
) -> Result<T> {
    let path = container.dir().join(SPEC);
    let reading = container.work(move || {
        let text = fs::read(&path).map_err(|e| Error::io("read", &path, e))?;
        serde_json::from_slice(&text).map_err(|e| Error::io("read", &path, e))
    });
    reading.await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_unset_in_an_update_are_kept() {
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
