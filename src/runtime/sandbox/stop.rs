//! StopPodSandbox.

use std::sync::Arc;

use crate::cri::v1::ContainerEventType;
use crate::runtime::Runtime;
use crate::runtime::error::Result;
use crate::runtime::failpoint::{Failpoint, failpoint};
use crate::runtime::steps::in_scope;
use crate::runtime::store::{Sandbox, SandboxState};

impl Runtime {
    /// Ends all containers of a sandbox and gives back its network. One that does not exist, or is stopped, is fine. A shim
    /// that does not answer for ten seconds is killed first.
    ///
    /// # Errors
    /// What could not be taken away; the next call tries again.
    pub async fn stop_pod_sandbox(self: &Arc<Self>, id: &str) -> Result<()> {
        let Some(sandbox) = self.store.sandboxes.find(id)? else {
            return Ok(());
        };
        let _turn = sandbox.turn.write().await;
        self.stop(&sandbox).await
    }

    /// The caller has the sandbox to itself.
    pub(super) async fn stop(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> Result<()> {
        if sandbox.record().network_freed {
            return Ok(());
        }
        self.end_hanging_shim(sandbox).await?;
        self.kill_all(&sandbox.id).await?;
        failpoint(Failpoint::SandboxKilled);
        // From here on nothing may be started in it, also if the rest fails.
        let stopped = sandbox.note(|record| record.state = SandboxState::Stopped);
        stopped.await;
        self.free_network(&sandbox.record()).await?;
        sandbox.note(|record| record.network_freed = true).await;
        failpoint(Failpoint::SandboxStopped);
        // Once: who comes later finds its network freed.
        self.tell_sandbox(ContainerEventType::ContainerStoppedEvent, sandbox);
        Ok(())
    }

    /// Kills the containers of a sandbox, all at the same time, and waits for their end.
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
