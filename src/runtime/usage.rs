//! ContainerStats, PodSandboxStats, their lists, and pod metrics.

use super::Runtime;
use super::error::{Error, Result};
use crate::cri::v1;

impl Runtime {
    /// The use of a container.
    ///
    /// # Errors
    /// Not served yet.
    pub async fn container_stats(&self, _id: &str) -> Result<v1::ContainerStats> {
        Err(not_yet())
    }

    /// The use of the containers that pass a filter.
    ///
    /// # Errors
    /// Not served yet.
    pub async fn list_container_stats(
        &self,
        _filter: Option<&v1::ContainerStatsFilter>,
    ) -> Result<Vec<v1::ContainerStats>> {
        Err(not_yet())
    }

    /// The use of a pod.
    ///
    /// # Errors
    /// Not served yet.
    pub async fn pod_sandbox_stats(&self, _id: &str) -> Result<v1::PodSandboxStats> {
        Err(not_yet())
    }

    /// The use of the pods that pass a filter.
    ///
    /// # Errors
    /// Not served yet.
    pub async fn list_pod_sandbox_stats(
        &self,
        _filter: Option<&v1::PodSandboxStatsFilter>,
    ) -> Result<Vec<v1::PodSandboxStats>> {
        Err(not_yet())
    }

    /// What pod metrics there are.
    pub fn metric_descriptors(&self) -> Vec<v1::MetricDescriptor> {
        Vec::new()
    }

    /// The metrics of all pods.
    ///
    /// # Errors
    /// Not served yet.
    pub async fn pod_sandbox_metrics(&self) -> Result<Vec<v1::PodSandboxMetrics>> {
        Err(not_yet())
    }
}

fn not_yet() -> Error {
    Error::Unavailable("stats are not served yet".to_owned())
}
