//! The events of pods and containers.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::adaptation::Adaptation;
use crate::api::{
    Container, ContainerAdjustment, ContainerRequest, CreateContainerResponse, Empty, Event,
    EventRequest, LinuxResources, PluginInstance, PodRequest, PodSandbox, StopContainerResponse,
    UpdateContainerRequest, UpdateContainerResponse, UpdatePodSandboxRequest,
    ValidateContainerAdjustmentRequest, ValidateContainerAdjustmentResponse,
};
use crate::error::{CallError, EventError};
use crate::merge::{MergedCreation, MergedStop, MergedUpdate};
use crate::plugin::RegisteredPlugin;
use crate::runtime::EvictionRequest;

/// The outcome of UpdateContainer: the resources to set, if plugins changed the resources of the request.
pub type UpdatedContainer = Option<LinuxResources>;

/// Names the plugin in an error.
fn named(plugin: &RegisteredPlugin, event: Event) -> impl FnOnce(CallError) -> EventError {
    let plugin = plugin.name().to_owned();
    move |error| EventError::Plugin {
        plugin,
        method: event.method(),
        error,
    }
}

impl Adaptation {
    /// Sends an event without an answer to the plugins; the first error ends it.
    async fn notify(&self, event: Event, request: &impl EventRequest) -> Result<(), EventError> {
        if !self.wants(event) {
            return Ok(());
        }
        for plugin in &*self.plugins.lock().await {
            let told = plugin.event::<Empty>(event, request).await;
            told.map_err(named(plugin, event))?;
        }
        Ok(())
    }

    /// An event of a pod: RunPodSandbox, PostUpdatePodSandbox, StopPodSandbox or RemovePodSandbox.
    ///
    /// # Errors
    /// The first error of a plugin.
    pub async fn pod(&self, event: Event, pod: PodSandbox) -> Result<(), EventError> {
        self.notify(event, &PodRequest { pod: Some(pod) }).await
    }

    /// UpdatePodSandbox, before the resources of a pod are changed.
    ///
    /// # Errors
    /// The first error of a plugin.
    pub async fn update_pod(
        &self,
        pod: PodSandbox,
        overhead: Option<LinuxResources>,
        resources: Option<LinuxResources>,
    ) -> Result<(), EventError> {
        let request = UpdatePodSandboxRequest {
            pod: Some(pod),
            overhead_linux_resources: overhead,
            linux_resources: resources,
        };
        self.notify(Event::UpdatePodSandbox, &request).await
    }

    /// An event of a container without an answer: all but CreateContainer, UpdateContainer and StopContainer.
    ///
    /// # Errors
    /// The first error of a plugin.
    pub async fn container(
        &self,
        event: Event,
        pod: PodSandbox,
        container: Container,
    ) -> Result<(), EventError> {
        let request = ContainerRequest {
            pod: Some(pod),
            container: Some(container),
        };
        self.notify(event, &request).await
    }

    /// CreateContainer. Returns the merged adjustments, after other containers were updated and evicted as the plugins asked.
    ///
    /// # Errors
    /// The first error of a plugin, a conflict, or a rejection by a validating plugin.
    pub async fn create_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<ContainerAdjustment, EventError> {
        let event = Event::CreateContainer;
        let plugins = self.plugins.lock().await;
        let validators: Vec<_> = plugins
            .iter()
            .filter(|plugin| plugin.wants(Event::ValidateContainerAdjustment))
            .cloned()
            .collect();
        let validating = (!validators.is_empty()).then(|| ValidateContainerAdjustmentRequest {
            pod: Some(pod.clone()),
            container: Some(container.clone()),
            plugins: plugins.iter().map(|plugin| instance(plugin)).collect(),
            ..Default::default()
        });
        let mut creation = MergedCreation::new(pod, container);
        for plugin in &*plugins {
            let answer = plugin.event(event, &creation.request).await;
            let answer: Option<CreateContainerResponse> = answer.map_err(named(plugin, event))?;
            if let Some(answer) = answer {
                creation.merge(answer, plugin.name())?;
            }
        }
        if let Some(mut request) = validating {
            creation.validated(&mut request);
            validate(validators, Arc::new(request)).await?;
        }
        let (adjusted, updates) = creation.into_parts();
        let (updates, evictions) = updates.into_parts();
        let applied = self.queue.add(updates);
        drop(plugins);
        self.evict(evictions).await;
        applied.failed().await;
        Ok(adjusted)
    }

    /// UpdateContainer, before the resources of a container are changed. Other containers are updated and evicted as the
    /// plugins asked.
    ///
    /// # Errors
    /// The first error of a plugin, or a conflict.
    pub async fn update_container(
        &self,
        pod: PodSandbox,
        container: Container,
        resources: LinuxResources,
    ) -> Result<UpdatedContainer, EventError> {
        let event = Event::UpdateContainer;
        let mut updating = MergedUpdate::new(UpdateContainerRequest {
            pod: Some(pod),
            container: Some(container),
            linux_resources: Some(resources),
        });
        let plugins = self.plugins.lock().await;
        for plugin in &*plugins {
            let answer = plugin.event(event, &updating.request).await;
            let answer: Option<UpdateContainerResponse> = answer.map_err(named(plugin, event))?;
            if let Some(answer) = answer {
                updating.merge(answer, plugin.name())?;
            }
        }
        let (updates, evictions) = updating.others.into_parts();
        let applied = self.queue.add(updates);
        drop(plugins);
        self.evict(evictions).await;
        applied.failed().await;
        let resources = updating.request.linux_resources;
        Ok(resources.filter(|_| updating.changed))
    }

    /// StopContainer, after a container has ended. Other containers are updated as the plugins asked, without waiting for it.
    ///
    /// # Errors
    /// The first error of a plugin, or a conflict.
    pub async fn stop_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<(), EventError> {
        let event = Event::StopContainer;
        let request = ContainerRequest {
            pod: Some(pod),
            container: Some(container),
        };
        let mut stopping = MergedStop::default();
        let plugins = self.plugins.lock().await;
        for plugin in &*plugins {
            let answer = plugin.event(event, &request).await;
            let answer: Option<StopContainerResponse> = answer.map_err(named(plugin, event))?;
            if let Some(answer) = answer {
                stopping.merge(answer.update, plugin.name())?;
            }
        }
        let (updates, _) = stopping.updates.into_parts();
        drop(self.queue.add(updates));
        Ok(())
    }

    /// Stops containers that plugins want to be gone, and waits for it.
    pub(crate) async fn evict(&self, evictions: Vec<EvictionRequest>) {
        let mut ends = JoinSet::new();
        for eviction in evictions {
            let (runtime, observer) = (Arc::clone(&self.runtime), Arc::clone(&self.observer));
            ends.spawn(async move {
                let id = eviction.container_id.clone();
                if let Err(error) = runtime.evict(eviction).await {
                    observer.problem(&format!("eviction of container {id}: {error}"));
                }
            });
        }
        // Evictions that are still running when this is dropped go on.
        while ends.join_next().await.is_some() {}
        ends.detach_all();
    }
}

fn instance(plugin: &RegisteredPlugin) -> PluginInstance {
    let (index, name) = plugin.parts();
    PluginInstance {
        name: name.to_owned(),
        index: index.to_owned(),
    }
}

/// Asks all validating plugins. A plugin that fails to answer fails the creation: it may have rejected the adjustments.
async fn validate(
    validators: Vec<Arc<RegisteredPlugin>>,
    request: Arc<ValidateContainerAdjustmentRequest>,
) -> Result<(), EventError> {
    let event = Event::ValidateContainerAdjustment;
    let mut answers = Vec::new();
    for plugin in &validators {
        // Plugins are asked one after the other, which keeps them within the steps of the call. They are few.
        answers.push((plugin, plugin.event(event, &*request).await));
    }
    for (plugin, answer) in answers {
        let answer: Option<ValidateContainerAdjustmentResponse> =
            answer.map_err(named(plugin, event))?;
        let answer = answer
            .ok_or(CallError::Closed)
            .map_err(named(plugin, event))?;
        if answer.reject {
            let plugin = plugin.name().to_owned();
            let reason = answer.reason;
            return Err(EventError::Rejected { plugin, reason });
        }
    }
    Ok(())
}
