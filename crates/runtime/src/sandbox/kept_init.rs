//! The process that a sandbox has only for cAdvisor, which reads the counters of a pod's network through a process in it:
//! `runtime.containerd_socket`. It is the confined init of pods with a shared PID namespace, with a namespace that nothing joins.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::pid_namespace::shares_pid_namespace;
use crate::Runtime;
use crate::error::{Error, Result, shown};
use crate::store::{Sandbox, SandboxRecord, SandboxState};

/// Bounds how many are made at a time: the first start with the setting makes one for each pod of the node.
static MAKING: Semaphore = Semaphore::const_new(4);

impl Runtime {
    /// Returns whether each sandbox with a network of its own has a process, for cAdvisor.
    fn keeps_inits(&self) -> bool {
        self.settings.live.config.containerd_socket.is_some()
    }

    /// Gives the sandbox a process, in the background and unless it has one. Nothing else depends on it.
    pub(crate) fn keep_init(self: &Arc<Self>, sandbox: &Arc<Sandbox>) {
        if !self.keeps_inits() || !is_kept_for(&sandbox.record()) {
            return;
        }
        let (runtime, sandbox) = (Arc::clone(self), Arc::clone(sandbox));
        tokio::spawn(async move {
            let _turn = MAKING.acquire().await;
            // Not while the sandbox is being stopped, and not after.
            let _guard = sandbox.op_lock.read().await;
            if let Err(error) = runtime.make_kept_init(&sandbox).await {
                tracing::warn!(target: "criscope::runtime::sandbox::kept_init", event = "runtime.sandbox", criscope.sandbox.id = %sandbox.id, error.message = %shown(&error), "cAdvisor will not see the network of a pod: no process for its sandbox");
            }
        });
    }

    async fn make_kept_init(self: &Arc<Self>, sandbox: &Sandbox) -> Result<()> {
        let record = sandbox.record();
        if record.state != SandboxState::Ready {
            return Ok(());
        }
        let Some(shim) = sandbox.shim() else {
            let reason = format!("pod sandbox {} has no shim", sandbox.id);
            return Err(Error::state(reason));
        };
        if shim.state().await?.pid_namespace != 0 {
            return Ok(());
        }
        let request = self.pid_namespace_request(&record).await?;
        if request.cgroups.is_empty() {
            // In the cgroup of the shim cAdvisor would not find it.
            return Err(Error::state("the node has no cgroup for it"));
        }
        shim.pid_namespace(request).await?;
        Ok(())
    }

    /// Ends the process with its sandbox, as containerd ends a pause container. One that was made before the setting was turned
    /// off ends with its shim, when the sandbox is removed.
    pub(super) async fn end_kept_init(&self, record: &SandboxRecord) {
        if self.keeps_inits()
            && is_kept_for(record)
            && let Err(error) = self.remove_init_cgroup(&record.id).await
        {
            tracing::warn!(target: "criscope::runtime::sandbox::kept_init", event = "runtime.sandbox", criscope.sandbox.id = %record.id, error.message = %shown(&error), "the process of a sandbox was not ended");
        }
    }
}

/// True if a sandbox would have no process without the setting, and has a network of its own.
fn is_kept_for(record: &SandboxRecord) -> bool {
    !record.host_network() && !shares_pid_namespace(record) && !record.has_containerd_shim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use criscope_cri::v1::{self, NamespaceMode};

    #[test]
    fn only_pods_with_their_own_network_and_without_an_init() {
        let record = |network: NamespaceMode, pid: NamespaceMode| SandboxRecord {
            config: v1::PodSandboxConfig {
                linux: Some(v1::LinuxPodSandboxConfig {
                    security_context: Some(v1::LinuxSandboxSecurityContext {
                        namespace_options: Some(v1::NamespaceOption {
                            network: network.into(),
                            pid: pid.into(),
                            ..Default::default()
                        }),
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            },
            ..SandboxRecord::default()
        };
        use NamespaceMode::{Container, Node, Pod};
        assert!(is_kept_for(&record(Pod, Container)));
        assert!(is_kept_for(&record(Pod, Node)));
        assert!(!is_kept_for(&record(Pod, Pod)), "it has one");
        assert!(!is_kept_for(&record(Node, Container)), "nothing to see");
    }
}
