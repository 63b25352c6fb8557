//! The requests of plugins to the runtime.

use std::sync::{Arc, Weak};

use criscope_nri::api::{Container, ContainerUpdate, PodSandbox};
use criscope_nri::{Adaptation, BoxFuture, EvictionRequest};

use super::observe::Plugins;
use super::resources;
use crate::Runtime;
use crate::error::shown;
use crate::store::{ContainerState, SandboxState};

/// The runtime as plugins see it.
#[derive(Debug)]
struct Host(Weak<Runtime>);

impl Runtime {
    /// Starts the plugins that are installed and accepts others, if the interface is on. Called after recovery, before calls are
    /// served: the first pod meets the installed plugins.
    pub async fn start_nri(self: &Arc<Self>) {
        let Some(settings) = self.settings.live.config.nri.library() else {
            return;
        };
        let plugins = Adaptation::new(
            settings,
            Arc::new(Host(Arc::downgrade(self))),
            Arc::new(Plugins::new(self.steps.clone())),
        );
        // Before they start: a plugin that is synchronized meanwhile must not miss an event.
        let _once = self.nri.0.set(Arc::clone(&plugins));
        if let Err(error) = plugins.start().await {
            // Pods run without them, as they do when no plugin has connected.
            tracing::error!(target: "criscope::runtime::nri::host", event = "runtime.nri", error.message = %error, "NRI plugins cannot connect");
            self.problem("nri", &error.path, &error);
        }
    }

    /// Tells the plugins that the runtime shuts down, and ends those it has started.
    pub async fn stop_nri(&self) {
        if let Some(plugins) = self.nri.0.get() {
            plugins.stop().await;
        }
    }
}

impl criscope_nri::Runtime for Host {
    fn list(&self) -> BoxFuture<'_, (Vec<PodSandbox>, Vec<Container>)> {
        Box::pin(async {
            let Some(runtime) = self.0.upgrade() else {
                return Default::default();
            };
            let (mut pods, mut containers) = (Vec::new(), Vec::new());
            for sandbox in runtime.store.sandboxes.all() {
                if sandbox.record().state != SandboxState::Making {
                    pods.push(runtime.nri_pod(&sandbox.record()));
                }
            }
            for container in runtime.store.containers.all() {
                let state = container.record().state;
                if !matches!(state, ContainerState::Making | ContainerState::Exited) {
                    containers.push(runtime.nri_container(&container).await);
                }
            }
            (pods, containers)
        })
    }

    fn update(&self, update: ContainerUpdate) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let Some(runtime) = self.0.upgrade() else {
                return Ok(());
            };
            let id = update.container_id;
            let found = runtime.store.containers.find(&id);
            let Some(container) = found.map_err(|error| error.to_string())? else {
                return Ok(());
            };
            let wanted = update.linux.and_then(|linux| linux.resources);
            let wanted = wanted.unwrap_or_default();
            resources::warn_unchanged(&wanted, &runtime.nri_container(&container).await);
            let (limits, more) = (resources::to_cri(&wanted), resources::beyond_cri(&wanted));
            let updated = runtime.set_container_resources(&container, limits, &more);
            updated.await.map_err(|error| error.to_string())
        })
    }

    fn evict(&self, eviction: EvictionRequest) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let Some(runtime) = self.0.upgrade() else {
                return Ok(());
            };
            tracing::warn!(target: "criscope::runtime::nri::host", event = "runtime.nri", container.id = %eviction.container_id, nri.plugin = %eviction.plugin, reason = %shown(&eviction.reason), "an NRI plugin evicts a container");
            let evicted = runtime.evict_container(&eviction).await;
            evicted.map_err(|error| error.to_string())
        })
    }
}
