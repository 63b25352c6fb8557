//! What the interface asks of the container runtime.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::api::{Container, ContainerEviction, ContainerUpdate, PodSandbox};

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The container runtime. Errors are texts for logs and plugins.
pub trait Runtime: Send + Sync + fmt::Debug {
    /// The pods and containers that exist, for a plugin that connects. Exited containers are left out.
    fn list(&self) -> BoxFuture<'_, (Vec<PodSandbox>, Vec<Container>)>;

    /// Changes the resources of a container. A container that does not exist is no error.
    ///
    /// Updates are applied one after the other. The implementation may wait for events to end, but not for other updates.
    fn update(&self, update: ContainerUpdate) -> BoxFuture<'_, Result<(), String>>;

    /// Stops a container at once. A container that does not exist is no error.
    fn evict(&self, eviction: ContainerEviction) -> BoxFuture<'_, Result<(), String>>;
}
