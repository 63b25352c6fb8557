//! PodSandboxStatus.

use std::collections::HashMap;

use criscope_linux::namespace::Kind;
use serde_json::json;

use super::cni_result;
use super::teardown::blocking;
use crate::Runtime;
use crate::error::Result;
use crate::events::dated;
use crate::store::{ContainerState, Sandbox, SandboxRecord, SandboxState};
use criscope_cri::v1;

impl Runtime {
    /// Returns the status of a sandbox and those of its containers.
    ///
    /// # Errors
    /// If the sandbox does not exist.
    pub async fn pod_sandbox_status(
        &self,
        request: &v1::PodSandboxStatusRequest,
    ) -> Result<v1::PodSandboxStatusResponse> {
        let sandbox = self.store.sandboxes.get(&request.pod_sandbox_id)?;
        let mut info = HashMap::new();
        if request.verbose {
            info.insert("info".to_owned(), self.sandbox_info(&sandbox).await?);
        }
        let (timestamp, (status, containers_statuses)) = dated(|| self.pod_status(&sandbox));
        Ok(v1::PodSandboxStatusResponse {
            status: Some(status),
            info,
            containers_statuses,
            timestamp,
        })
    }

    pub(crate) fn sandbox_status_of(&self, sandbox: &Sandbox) -> v1::PodSandboxStatus {
        let record = sandbox.record();
        v1::PodSandboxStatus {
            id: record.id.clone(),
            metadata: record.config.metadata.clone(),
            state: state_of(&record) as i32,
            created_at: record.created_at,
            network: Some(v1::PodSandboxNetworkStatus {
                ip: record.ip.map(|ip| ip.to_string()).unwrap_or_default(),
                additional_ips: record
                    .additional_ips
                    .iter()
                    .map(|ip| v1::PodIp { ip: ip.to_string() })
                    .collect(),
            }),
            linux: Some(v1::LinuxPodSandboxStatus {
                namespaces: Some(v1::Namespace {
                    options: Some(record.namespaces()),
                }),
            }),
            labels: record.config.labels.clone(),
            annotations: record.config.annotations.clone(),
            runtime_handler: record.asked_handler.clone(),
        }
    }

    /// The verbose info shown by `crictl inspectp`. Tools that look for the network of a pod read `pid` and
    /// `runtimeSpec.linux.namespaces` as containerd has them, of the pause container.
    async fn sandbox_info(&self, sandbox: &Sandbox) -> Result<String> {
        let record = sandbox.record();
        let pins = Kind::ALL.map(|kind| (kind.name(), self.pins.path(&record.id, kind)));
        let existing = blocking(move || {
            let existing = pins.into_iter().filter(|(_, path)| path.exists());
            Ok(existing.collect::<HashMap<_, _>>())
        });
        let pins = existing.await?;
        let paths = Kind::ALL.into_iter().filter_map(|kind| {
            let path = pins.get(kind.name())?;
            Some(json!({"type": specified(kind), "path": path}))
        });
        let cni = &self.handler_of_pod(&record).cni;
        // The plugins' results are only shown: the status does not fail without it.
        let attached = cni.interfaces(&record.id).await.unwrap_or_default();
        let info = json!({
            "pid": self.process_in(&record),
            "netNamespaceClosed": !record.host_network() && !pins.contains_key(Kind::Net.name()),
            "runtimeSpec": {"linux": {"namespaces": paths.collect::<Vec<_>>()}},
            "cniResult": cni_result::shown(&attached),
            "runtimeHandler": record.handler,
            "config": record.config,
            "overhead": record.overhead,
            "resources": record.resources,
            "namespaces": pins,
            "shim": self.settings.paths.pod(&record.id),
        });
        Ok(info.to_string())
    }

    /// A process in the namespaces of the pod: the init of a shared PID namespace, else the process of the container that was started
    /// first. 0 if there is none, since there is no pause container, and once the pod is stopped.
    fn process_in(&self, record: &SandboxRecord) -> u32 {
        if record.state != SandboxState::Ready {
            return 0;
        }
        if record.pid_namespace != 0 {
            return record.pid_namespace;
        }
        let containers = self.store.containers_of(&record.id).into_iter();
        let running = containers.filter_map(|container| {
            let record = container.record();
            (record.state == ContainerState::Running).then_some((record.started_at, record.pid))
        });
        running.min().map_or(0, |(_, pid)| pid)
    }
}

/// The name of a namespace in the OCI runtime specification.
fn specified(kind: Kind) -> &'static str {
    match kind {
        Kind::Net => "network",
        other => other.name(),
    }
}

/// The state as a value of the CRI's enum.
pub(crate) fn state_of(record: &SandboxRecord) -> v1::PodSandboxState {
    match record.state {
        SandboxState::Ready => v1::PodSandboxState::SandboxReady,
        SandboxState::Making | SandboxState::Stopped => v1::PodSandboxState::SandboxNotready,
    }
}
