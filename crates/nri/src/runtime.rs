//! The trait that a container runtime implements for the requests of plugins.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::api::{Container, ContainerEviction, ContainerUpdate, PodSandbox};

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A plugin's request to evict a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionRequest {
    /// Index and name of the plugin, such as `10-device-injector`.
    pub plugin: String,
    /// The id of the container.
    pub container_id: String,
    /// The reason that the plugin gives; may be empty, and of any length that fits into a message.
    pub reason: String,
}

impl EvictionRequest {
    pub(crate) fn new(plugin: &str, asked: ContainerEviction) -> Self {
        Self {
            plugin: plugin.to_owned(),
            container_id: asked.container_id,
            reason: asked.reason,
        }
    }
}

/// The container runtime. Errors are texts for logs and plugins.
pub trait Runtime: Send + Sync + fmt::Debug {
    /// The pods and containers that exist, for a plugin that connects. Exited containers are left out.
    fn list(&self) -> BoxFuture<'_, (Vec<PodSandbox>, Vec<Container>)>;

    /// Changes the resources of a container. A container that does not exist is no error.
    ///
    /// Updates are applied one after the other. The implementation may wait for events to end, but not for other updates.
    fn update(&self, update: ContainerUpdate) -> BoxFuture<'_, Result<(), String>>;

    /// Stops a container at once. A container that does not exist is no error.
    fn evict(&self, eviction: EvictionRequest) -> BoxFuture<'_, Result<(), String>>;
}
