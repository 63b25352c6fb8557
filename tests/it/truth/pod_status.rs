//! What a [`Kubelet`](super::kubelet::Kubelet) knows of a pod: its newest sandbox, and its containers.

use crate::prelude::*;

/// What is known of the pod.
pub(super) struct PodStatus {
    pub(super) sandbox: Option<v1::PodSandboxStatus>,
    /// The newest of each name is the last.
    pub(super) containers: Vec<(String, v1::ContainerStatus)>,
}

impl PodStatus {
    pub(super) fn newest(&self, name: &str) -> Option<&(String, v1::ContainerStatus)> {
        let mut newest_first = self.containers.iter().rev();
        newest_first.find(|(_, status)| name_of(status) == name)
    }

    /// The newest one in the present sandbox.
    pub(super) fn here(&self, name: &str) -> Option<&v1::ContainerStatus> {
        let sandbox = self.sandbox.as_ref()?;
        let (own, status) = self.newest(name)?;
        (*own == sandbox.id).then_some(status)
    }
}

fn name_of(status: &v1::ContainerStatus) -> &str {
    status.metadata.as_ref().map_or("", |m| &m.name)
}

pub(super) fn is_running(status: &v1::ContainerStatus) -> bool {
    status.state() == v1::ContainerState::ContainerRunning
}

pub(super) fn has_exited(status: &v1::ContainerStatus) -> bool {
    status.state() == v1::ContainerState::ContainerExited
}
