//! PodSandboxStatus.

use std::collections::HashMap;

use criscope_linux::namespace::Kind;
use serde_json::json;

use super::teardown::blocking;
use crate::cri::v1;
use crate::runtime::Runtime;
use crate::runtime::error::Result;
use crate::runtime::id;
use crate::runtime::store::{Sandbox, SandboxRecord, SandboxState};

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
        Ok(v1::PodSandboxStatusResponse {
            status: Some(self.sandbox_status_of(&sandbox)),
            info,
            containers_statuses: self.statuses_in(&sandbox.id),
            timestamp: id::now(),
        })
    }

    pub(in crate::runtime) fn sandbox_status_of(&self, sandbox: &Sandbox) -> v1::PodSandboxStatus {
        let record = sandbox.record();
        let ip = |ip: &std::net::IpAddr| ip.to_string();
        v1::PodSandboxStatus {
            id: record.id.clone(),
            metadata: record.config.metadata.clone(),
            state: state_of(&record) as i32,
            created_at: record.created_at,
            network: Some(v1::PodSandboxNetworkStatus {
                ip: record.ip.as_ref().map(ip).unwrap_or_default(),
                additional_ips: record
                    .additional_ips
                    .iter()
                    .map(|address| v1::PodIp { ip: ip(address) })
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

    /// The verbose info shown by `crictl inspectp`.
    async fn sandbox_info(&self, sandbox: &Sandbox) -> Result<String> {
        let record = sandbox.record();
        let pins = Kind::ALL.map(|kind| (kind.name(), self.pins.path(&record.id, kind)));
        let existing = blocking(move || {
            let existing = pins.into_iter().filter(|(_, path)| path.exists());
            Ok(existing.collect::<HashMap<_, _>>())
        });
        let pins = existing.await?;
        let info = json!({
            "pid": record.pid_namespace,
            "runtimeHandler": record.handler,
            "config": record.config,
            "namespaces": pins,
            "shim": self.settings.paths.pod(&record.id),
        });
        Ok(info.to_string())
    }
}

/// The state as a value of the CRI's enum.
pub(in crate::runtime) fn state_of(record: &SandboxRecord) -> v1::PodSandboxState {
    match record.state {
        SandboxState::Ready => v1::PodSandboxState::SandboxReady,
        SandboxState::Making | SandboxState::Stopped => v1::PodSandboxState::SandboxNotready,
    }
}
