//! StopPodSandbox.

use std::sync::Arc;

use criscope_nri::api::Event;

use crate::Runtime;
use crate::error::Result;
use crate::failpoint::{Failpoint, failpoint};
use crate::steps::in_scope;
use crate::store::{Sandbox, SandboxState};
use criscope_cri::v1::ContainerEventType;

impl Runtime {
    /// Kills all containers of a sandbox and detaches its network. Succeeds if the sandbox does not exist or is stopped. A shim
    /// that does not respond for ten seconds is killed first.
    ///
    /// # Errors
    /// The first failure; the next call retries.
    pub async fn stop_pod_sandbox(self: &Arc<Self>, id: &str) -> Result<()> {
        let Some(sandbox) = self.store.sandboxes.find(id)? else {
            return Ok(());
        };
        let _guard = sandbox.op_lock.write().await;
        self.stop(&sandbox).await
    }

    /// Like [`Self::stop_pod_sandbox`]. The caller holds the write lock of the sandbox.
    pub(super) async fn stop(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> Result<()> {
        if sandbox.record().network_freed {
            return Ok(());
        }
        self.kill_unresponsive_shim(sandbox).await?;
        self.kill_all(&sandbox.id).await?;
        failpoint(Failpoint::SandboxKilled);
        // From here on nothing may be started in it, even if the rest fails.
        let stopped = sandbox.note(|record| record.state = SandboxState::Stopped);
        stopped.await;
        if sandbox.claim_nri_stop() {
            self.nri_tell_pod(Event::StopPodSandbox, &sandbox.record())
                .await;
        }
        self.end_kept_init(&sandbox.record()).await;
        self.end_sandbox_container(sandbox).await?;
        self.free_network(&sandbox.record()).await?;
        sandbox.note(|record| record.network_freed = true).await;
        failpoint(Failpoint::SandboxStopped);
        // Emitted once: later calls return early, because the network is released.
        self.emit_sandbox_event(ContainerEventType::ContainerStoppedEvent, sandbox);
        Ok(())
    }

    /// Kills the containers of a sandbox concurrently and waits until all have exited.
    async fn kill_all(self: &Arc<Self>, sandbox: &str) -> Result<()> {
        let mut ends = tokio::task::JoinSet::new();
        for container in self.store.containers_of(sandbox) {
            let runtime = Arc::clone(self);
            ends.spawn(in_scope(
                async move { runtime.end_container(&container).await },
            ));
        }
        let mut result = Ok(());
        while let Some(end) = ends.join_next().await {
            result = result.and(end.map_err(Into::into).and_then(|end| end));
        }
        result
    }
}
