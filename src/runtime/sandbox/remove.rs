//! RemovePodSandbox.

use std::sync::Arc;

use crate::cri::v1::ContainerEventType;
use crate::runtime::Runtime;
use crate::runtime::error::Result;

impl Runtime {
    /// Removes a sandbox with all its containers; one that runs is stopped first. One that does not exist is fine.
    ///
    /// # Errors
    /// What could not be taken away; the next call tries again.
    pub async fn remove_pod_sandbox(self: &Arc<Self>, id: &str) -> Result<()> {
        let Some(sandbox) = self.store.sandboxes.find(id)? else {
            return Ok(());
        };
        let _turn = sandbox.turn.write().await;
        // Somebody else may have removed it while this one waited for its turn.
        if self.store.sandboxes.find(&sandbox.id)?.is_none() {
            return Ok(());
        }
        self.stop(&sandbox).await?;
        for container in self.store.containers_of(&sandbox.id) {
            self.remove_container(&container.id).await?;
        }
        sandbox.set_shim(None);
        self.end_shim(&sandbox.id).await?;
        self.remove_files(&sandbox.id).await?;
        let name = sandbox.record().name();
        self.singleflight.forget(&name);
        self.forget_usage(&sandbox.id);
        self.store.sandboxes.remove(&sandbox.id);
        self.store.sandbox_names.release(&name, &sandbox.id);
        self.tell_sandbox(ContainerEventType::ContainerDeletedEvent, &sandbox);
        Ok(())
    }
}
