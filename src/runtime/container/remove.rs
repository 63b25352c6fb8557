//! RemoveContainer.

use std::path::Path;
use std::sync::Arc;

use crate::call::steps::RuntimeStep;
use criscope_linux::rootfs::Rootfs;

use crate::cri::v1::ContainerEventType;
use crate::runtime::Runtime;
use crate::runtime::error::Result;
use crate::runtime::failpoint::{Failpoint, failpoint};
use crate::runtime::store::disk;

impl Runtime {
    /// Removes a container; one that runs is killed first. One that does not exist is fine.
    ///
    /// # Errors
    /// What could not be taken away; the next call tries again.
    pub async fn remove_container(self: &Arc<Self>, id: &str) -> Result<()> {
        let Some(container) = self.store.containers.find(id)? else {
            return Ok(());
        };
        let _turn = loop {
            self.end_container(&container).await?;
            let turn = container.turn.lock().await;
            // Somebody else may have started it in between.
            if !container.is_running() {
                break turn;
            }
        };
        // Somebody else may have removed it while this one waited for its turn.
        if self.store.containers.find(&container.id)?.is_none() {
            return Ok(());
        }
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
        self.tell_container(ContainerEventType::ContainerDeletedEvent, &container);
        Ok(())
    }
}

/// Unmounts what a container has mounted and removes its directory and the copy of its record. Half of it, or nothing, is fine.
pub(in crate::runtime) fn remove_dir(dir: &Path, copy: &Path) -> Result<()> {
    disk::remove_copy(copy)?;
    Ok(Rootfs::new(dir).remove()?)
}
