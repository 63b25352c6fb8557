//! RemoveContainer.

use std::path::Path;
use std::sync::Arc;

use criscope_cri::call::steps::RuntimeStep;
use criscope_linux::rootfs::Rootfs;

use crate::Runtime;
use crate::error::Result;
use crate::failpoint::{Failpoint, failpoint};
use crate::store::disk;
use criscope_cri::v1::ContainerEventType;

impl Runtime {
    /// Kills and removes a container. Succeeds if it does not exist.
    ///
    /// # Errors
    /// The first failure to remove a part of the container; the next call retries.
    pub async fn remove_container(self: &Arc<Self>, id: &str) -> Result<()> {
        let Some(container) = self.store.containers.find(id)? else {
            return Ok(());
        };
        let _guard = loop {
            self.end_container(&container).await?;
            let guard = container.op_lock.lock().await;
            // A concurrent StartContainer may have started it in the meantime.
            if !container.is_running() {
                break guard;
            }
        };
        // A concurrent call may have removed it while this one waited for the lock.
        if self.store.containers.find(&container.id)?.is_none() {
            return Ok(());
        }
        let _checkpoint_guard = container.checkpoint_lock.lock().await;
        // Read before its files are removed.
        let removed = self.nri_removing(&container).await;
        let record = container.record();
        if record.pid != 0 && !container.is_forgotten() {
            let handler = self.handler_of(&container);
            self.delete_process(&container, &handler).await?;
        }
        let dir = container.dir().to_owned();
        let copy = self.settings.paths.copy(&container.id);
        let (pins, pod) = (self.pins.clone(), record.sandbox.clone());
        let id = container.id.clone();
        let work = container.work(move || {
            pins.unpin_target(&pod, &id)?;
            remove_dir(&dir, &copy)
        });
        self.steps
            .step(RuntimeStep::ContainerRemove, None, work)
            .await?;
        container.release_layers();
        self.forget_usage(&container.id);
        failpoint(Failpoint::ContainerRemoved);
        if let Ok(sandbox) = self.store.sandboxes.get(&record.sandbox) {
            let name = record.name(&sandbox.record());
            self.singleflight.forget(&name);
            self.store.container_names.release(&name, &container.id);
        }
        self.store.containers.remove(&container.id);
        self.emit_container_event(ContainerEventType::ContainerDeletedEvent, &container);
        if let Some(removed) = removed {
            self.nri_removed(removed).await;
        }
        Ok(())
    }
}

/// Removes the mounts of a container, its directory and the copy of its record. Tolerates missing parts.
pub(crate) fn remove_dir(dir: &Path, copy: &Path) -> Result<()> {
    disk::remove_copy(copy)?;
    Ok(Rootfs::new(dir).remove()?)
}
