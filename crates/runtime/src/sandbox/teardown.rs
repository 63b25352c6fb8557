//! Removal of the parts of a sandbox. Every step is idempotent and tolerates missing parts, so that it can be repeated
//! after a failure, a crash or a reboot.

use criscope_cri::call::steps::RuntimeStep;
use criscope_linux::rootfs;

use crate::Runtime;
use crate::error::Result;
use crate::failpoint::{Failpoint, failpoint};
use crate::shim_client::{self, Shim};
use crate::steps::in_scope_blocking;
use crate::store::{Sandbox, SandboxRecord, disk};

impl Runtime {
    /// Detaches a sandbox from its networks, within the plugins' timeout, and removes its namespaces.
    pub(crate) async fn free_network(&self, record: &SandboxRecord) -> Result<()> {
        let (detached, loosened) = tokio::join!(self.detach(record), self.pins.loosen(&record.id));
        detached?;
        failpoint(Failpoint::SandboxDetached);
        loosened?;
        self.unpin(record).await?;
        failpoint(Failpoint::SandboxUnpinned);
        Ok(())
    }

    async fn detach(&self, record: &SandboxRecord) -> Result<()> {
        if record.host_network() {
            return Ok(());
        }
        let handler = self.handler_of_pod(record);
        let pod = self.pod_of(record).await?;
        let deleting = handler.cni.del_recorded(&pod, &record.networks);
        let step = self.steps.step(RuntimeStep::NetworkDetach, None, deleting);
        Ok(step.await?)
    }

    async fn unpin(&self, record: &SandboxRecord) -> Result<()> {
        let freeing = self.pins.remove(&record.id);
        let step = self
            .steps
            .step(RuntimeStep::NamespacesRemove, None, freeing);
        Ok(step.await?)
    }

    /// Shuts down the shim of a pod. Its containers must have exited: the log of a running one would be cut off.
    pub(crate) async fn end_shim(&self, id: &str) -> Result<()> {
        let ending = self.end_shim_of(id);
        self.steps.step(RuntimeStep::ShimEnd, None, ending).await
    }

    async fn end_shim_of(&self, id: &str) -> Result<()> {
        let dir = self.settings.paths.pod(id);
        let ended = match Shim::connect(&dir).await {
            Ok(shim) => shim.shutdown(true).await,
            Err(error) => Err(error),
        };
        match ended {
            // The shim may close the connection before its response arrives.
            Ok(()) | Err(shim_client::Error::Gone { .. }) => {}
            Err(error) if error.is_unusable() => self.kill_shim(id).await?,
            Err(error) => return Err(error.into()),
        }
        self.remove_init_cgroup(id).await?;
        failpoint(Failpoint::SandboxShimGone);
        Ok(())
    }

    /// Unmounts the shared memory of a sandbox and removes its directories, the one with the record last.
    pub(crate) async fn remove_files(&self, id: &str) -> Result<()> {
        let paths = self.settings.paths.clone();
        let id = id.to_owned();
        let work = blocking(move || {
            rootfs::unmount(&paths.shm(&id))?;
            disk::remove_copy(&paths.copy(&id))?;
            disk::remove(&paths.pod(&id))?;
            disk::remove(&paths.sandbox(&id))
        });
        self.steps
            .step(RuntimeStep::SandboxRemove, None, work)
            .await?;
        failpoint(Failpoint::SandboxRemoved);
        Ok(())
    }

    /// Removes all parts of a sandbox that never became ready.
    pub(crate) async fn undo_sandbox(&self, sandbox: &Sandbox) -> Result<()> {
        sandbox.set_shim(None);
        let record = sandbox.record();
        let (network, shim) = tokio::join!(self.free_network(&record), self.end_shim(&sandbox.id));
        network.and(shim)?;
        self.end_containerd_shims(&record).await?;
        self.delete_abandoned_sandbox(&record).await;
        self.remove_files(&sandbox.id).await
    }
}

/// Runs work on files and mounts on the pool of blocking threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(in_scope_blocking(work)).await?
}
