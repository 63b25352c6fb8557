//! The lists of sandboxes and containers reduced to identity, for filling the pod index.

use std::sync::Arc;

use prost::Message;

use super::peek::{ContainerMetadata, PodMetadata};
use super::subject::{ContainerIdentity, PodIdentity};

/// The identity fields of `PodSandbox`.
#[derive(Clone, PartialEq, Message)]
pub struct Sandbox {
    /// The id.
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(message, optional, tag = "2")]
    metadata: Option<PodMetadata>,
}

impl Sandbox {
    /// The pod.
    pub fn pod(&self) -> Arc<PodIdentity> {
        self.metadata.clone().unwrap_or_default().identity()
    }
}

/// The identity fields of `Container`.
#[derive(Clone, PartialEq, Message)]
pub struct Container {
    /// The id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The id of its sandbox.
    #[prost(string, tag = "2")]
    pub pod_sandbox_id: String,
    #[prost(message, optional, tag = "3")]
    metadata: Option<ContainerMetadata>,
}

impl Container {
    /// The container's identity within its pod.
    pub fn identity(&self) -> Arc<ContainerIdentity> {
        self.metadata.clone().unwrap_or_default().identity()
    }
}
