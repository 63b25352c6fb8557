//! RemovePodSandbox.

use std::sync::Arc;

use criscope_nri::api::Event;

use crate::Runtime;
use crate::error::Result;
use criscope_cri::v1::ContainerEventType;

impl Runtime {
    /// Stops and removes a sandbox with all its containers. Succeeds if it does not exist.
    ///
    /// # Errors
    /// The first failure to remove a part of the sandbox; the next call retries.
    pub async fn remove_pod_sandbox(self: &Arc<Self>, id: &str) -> Result<()> {
        let Some(sandbox) = self.store.sandboxes.find(id)? else {
            return Ok(());
        };
        let _guard = sandbox.op_lock.write().await;
        // A concurrent call may have removed it while this one waited for the lock.
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
        self.emit_sandbox_event(ContainerEventType::ContainerDeletedEvent, &sandbox);
        self.nri_tell_pod(Event::RemovePodSandbox, &sandbox.record())
            .await;
        Ok(())
    }
}
