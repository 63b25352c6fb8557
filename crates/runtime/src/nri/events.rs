//! The events of the life of pods and containers.

use std::sync::Arc;

use criscope_nri::EventError;
use criscope_nri::api::{Container, ContainerAdjustment, Event, PodSandbox};
use oci_spec::runtime::Spec;
use serde_json::Value;

use super::message::message;
use super::resources::{beyond_cri, from_cri, to_cri, warn_unchanged};
use crate::Runtime;
use crate::error::{Error, Result, shown};
use crate::oci::spec::MoreLimits;
use crate::store::{self, ContainerRecord, ContainerState, Sandbox, SandboxRecord};
use criscope_cri::v1::LinuxContainerResources;

/// A container and its pod, as they were before they were removed.
pub(crate) struct Removed {
    pod: PodSandbox,
    container: Container,
    stopped: bool,
}

/// Logs the error of a plugin about something that has happened.
fn only_logged(event: Event, result: std::result::Result<(), EventError>) {
    if let Err(error) = result {
        tracing::warn!(target: "criscope::runtime::nri::events", event = "runtime.nri", nri.plugin = error.plugin(), nri.method = event.method(), error.message = %shown(&error), "an NRI plugin failed on an event that cannot be refused");
    }
}

impl Runtime {
    /// RunPodSandbox. After an error plugins are told that the pod is gone.
    pub(crate) async fn nri_run_pod(&self, sandbox: &Sandbox) -> Result<()> {
        let Some(nri) = self.nri.wanting(Event::RunPodSandbox) else {
            return Ok(());
        };
        let pod = self.nri_pod(&sandbox.record());
        let told = nri.pod(Event::RunPodSandbox, pod.clone()).await;
        if told.is_err() {
            for event in [Event::StopPodSandbox, Event::RemovePodSandbox] {
                only_logged(event, nri.pod(event, pod.clone()).await);
            }
        }
        Ok(told?)
    }

    /// StopPodSandbox, RemovePodSandbox or PostUpdatePodSandbox.
    pub(crate) async fn nri_tell_pod(&self, event: Event, record: &SandboxRecord) {
        if let Some(nri) = self.nri.wanting(event) {
            only_logged(event, nri.pod(event, self.nri_pod(record)).await);
        }
    }

    /// UpdatePodSandbox.
    pub(crate) async fn nri_update_pod(
        &self,
        record: &SandboxRecord,
        overhead: Option<&LinuxContainerResources>,
        resources: Option<&LinuxContainerResources>,
    ) -> Result<()> {
        let Some(nri) = self.nri.wanting(Event::UpdatePodSandbox) else {
            return Ok(());
        };
        let (overhead, resources) = (overhead.map(from_cri), resources.map(from_cri));
        Ok(nri
            .update_pod(self.nri_pod(record), overhead, resources)
            .await?)
    }

    /// CreateContainer, with the specification so far. `None` if nothing is to be adjusted.
    pub(crate) async fn nri_create(
        &self,
        pod: &SandboxRecord,
        record: &ContainerRecord,
        spec: &Spec,
    ) -> Result<Option<ContainerAdjustment>> {
        let Some(nri) = self.nri.wanting(Event::CreateContainer) else {
            return Ok(None);
        };
        let spec = serde_json::to_value(spec)
            .map_err(|error| Error::Internal(format!("specification: {error}")))?;
        let adjusted = nri
            .create_container(self.nri_pod(pod), message(record, &spec))
            .await?;
        Ok(Some(adjusted))
    }

    /// The event for plugins if the creation of a container fails, if any plugin wants to know.
    pub(crate) fn nri_creating(
        &self,
        pod: &SandboxRecord,
        record: &ContainerRecord,
    ) -> Option<Removed> {
        self.nri.wants_ends().then(|| Removed {
            pod: self.nri_pod(pod),
            container: message(record, &Value::Null),
            stopped: false,
        })
    }

    /// StartContainer.
    pub(crate) async fn nri_start(
        &self,
        sandbox: &Sandbox,
        container: &Arc<store::Container>,
    ) -> Result<()> {
        let event = Event::StartContainer;
        let Some(nri) = self.nri.wanting(event) else {
            return Ok(());
        };
        let message = self.nri_container(container).await;
        Ok(nri
            .container(event, self.nri_pod(&sandbox.record()), message)
            .await?)
    }

    /// PostCreateContainer, PostStartContainer or PostUpdateContainer.
    pub(crate) async fn nri_tell(&self, event: Event, container: &Arc<store::Container>) {
        if let Some(nri) = self.nri.wanting(event) {
            let pod = self.nri_pod_of(container);
            let message = self.nri_container(container).await;
            only_logged(event, nri.container(event, pod, message).await);
        }
    }

    /// UpdateContainer. Returns the resources to set instead of the requested ones, if plugins changed them.
    pub(crate) async fn nri_update(
        &self,
        container: &Arc<store::Container>,
        requested: &LinuxContainerResources,
    ) -> Result<Option<(LinuxContainerResources, MoreLimits)>> {
        let Some(nri) = self.nri.wanting(Event::UpdateContainer) else {
            return Ok(None);
        };
        let pod = self.nri_pod_of(container);
        let message = self.nri_container(container).await;
        let updated = nri
            .update_container(pod, message.clone(), from_cri(requested))
            .await?;
        Ok(updated.map(|resources| {
            warn_unchanged(&resources, &message);
            let changed = to_cri(&resources);
            let changed = LinuxContainerResources {
                // Resources that plugins do not see stay as requested.
                oom_score_adj: requested.oom_score_adj,
                memory_swap_limit_in_bytes: match changed.memory_swap_limit_in_bytes {
                    0 => requested.memory_swap_limit_in_bytes,
                    swap => swap,
                },
                ..changed
            };
            (changed, beyond_cri(&resources))
        }))
    }

    /// StopContainer, when a container has ended.
    pub(crate) async fn nri_stopped(&self, container: &Arc<store::Container>) {
        let event = Event::StopContainer;
        if let Some(nri) = self.nri.wanting(event) {
            let pod = self.nri_pod_of(container);
            let message = self.nri_container(container).await;
            only_logged(event, nri.stop_container(pod, message).await);
        }
    }

    /// The event for plugins about a container that is going to be removed, if any plugin wants to know.
    pub(crate) async fn nri_removing(&self, container: &Arc<store::Container>) -> Option<Removed> {
        if !self.nri.wants_ends() {
            return None;
        }
        Some(Removed {
            pod: self.nri_pod_of(container),
            container: self.nri_container(container).await,
            stopped: container.record().state == ContainerState::Exited,
        })
    }

    /// RemoveContainer, after StopContainer for a container that never ran.
    pub(crate) async fn nri_removed(&self, removed: Removed) {
        let Removed { pod, container, .. } = &removed;
        let event = Event::StopContainer;
        if let Some(nri) = self.nri.wanting(event).filter(|_| !removed.stopped) {
            let told = nri.stop_container(pod.clone(), container.clone()).await;
            only_logged(event, told);
        }
        let event = Event::RemoveContainer;
        if let Some(nri) = self.nri.wanting(event) {
            let Removed { pod, container, .. } = removed;
            only_logged(event, nri.container(event, pod, container).await);
        }
    }

    /// The pod of a container; only its id if it is gone.
    fn nri_pod_of(&self, container: &store::Container) -> PodSandbox {
        let id = container.record().sandbox.clone();
        match self.store.sandboxes.get(&id) {
            Ok(sandbox) => self.nri_pod(&sandbox.record()),
            Err(_) => PodSandbox {
                id,
                ..PodSandbox::default()
            },
        }
    }
}
