//! Cleanup after the exit of a container.

use std::sync::Arc;
use std::time::Duration;

use criscope_linux::rootfs::Rootfs;

use super::super::sandbox::teardown::blocking;
use crate::Runtime;
use crate::error::{Error, Result, shown};
use crate::failpoint::{Failpoint, failpoint};
use crate::handler::Handler;
use crate::oci::OciError;
use crate::shim_client::{self, Verb};
use crate::store::{Container, Exit};
use criscope_cri::call::steps::RuntimeStep;
use criscope_cri::v1::ContainerEventType;

/// How long the cgroup of a deleted container may stay busy before it is left alone.
const EMPTYING: Duration = Duration::from_secs(1);

impl Runtime {
    /// Records the exit of a container, emits its event, and removes its cgroup and unmounts its root file system. Whatever fails
    /// is retried when the container is removed.
    pub(crate) async fn finish(self: &Arc<Self>, container: &Arc<Container>, exit: Exit, at: i64) {
        // StartContainer holds the lock until its event is emitted, so that the exit event comes after it.
        let _guard = container.op_lock.lock().await;
        if !container.ended(exit, at).await {
            return;
        }
        failpoint(Failpoint::ContainerEnded);
        self.tell_exit(container);
        self.emit_container_event(ContainerEventType::ContainerStoppedEvent, container);
        let handler = self.handler_of(container);
        self.forget_process(container, &handler).await;
        if let Err(error) = self.unmount(container).await {
            tracing::warn!(target: "criscope::runtime::container::exit", event = "runtime.unmount", container.id = %container.id, error.message = %shown(&error), "the root file system of an exited container could not be unmounted");
        }
        // Before StopContainer answers; its containerd counterpart waits for plugins as well.
        self.nri_stopped(container).await;
        container.settle();
    }

    /// Deletes a container from the OCI runtime, with all its processes: through the shim, which also drops its state, or else
    /// directly. Failures are logged.
    pub(crate) async fn forget_process(&self, container: &Container, handler: &Handler) {
        if let Err(error) = self.delete_process(container, handler).await {
            tracing::warn!(target: "criscope::runtime::container::exit", event = "runtime.delete", container.id = %container.id, error.message = %shown(&error), "an exited container could not be deleted from the OCI runtime");
        }
    }

    /// Like [`Self::forget_process`].
    ///
    /// # Errors
    /// If the OCI runtime fails.
    pub(crate) async fn delete_process(
        &self,
        container: &Container,
        handler: &Handler,
    ) -> Result<()> {
        let sandbox = self.store.sandboxes.get(&container.record().sandbox);
        let shim = sandbox.ok().and_then(|sandbox| sandbox.shim());
        let deleting = async {
            let verb = Verb {
                id: container.id.clone(),
                runtime: shim_client::Runtime {
                    args: vec!["--force".to_owned()],
                    ..handler.call()
                },
            };
            let by_shim = match shim {
                Some(shim) => shim.delete(verb).await.is_ok(),
                None => false,
            };
            if by_shim {
                Ok(false)
            } else {
                let deleted = self.delete_directly(container, handler).await;
                deleted.map(|()| handler.has_containerd_shim())
            }
        };
        // Processes may be left that are frozen: those of nested cgroups, or of a container in the node's PID namespace.
        let deleting = self.thawing(container, Box::pin(deleting));
        let may_be_left = self
            .steps
            .step(RuntimeStep::OciDelete, Some(handler.program()), deleting)
            .await?;
        container.forget();
        failpoint(Failpoint::ContainerDeleted);
        self.remove_left_cgroup(container, may_be_left).await;
        Ok(())
    }

    /// Deletes a container without its shim, and kills what still runs.
    ///
    /// # Errors
    /// If the OCI runtime or the shim of containerd fails.
    pub(crate) async fn delete_directly(
        &self,
        container: &Container,
        handler: &Handler,
    ) -> std::result::Result<(), OciError> {
        let (oci, id) = (&handler.oci, &container.id);
        if handler.has_containerd_shim() {
            oci.delete_abandoned(id, container.dir()).await
        } else {
            oci.delete(id, true).await
        }
    }

    /// Removes the cgroup of a deleted container if the OCI runtime left it: runc 1.1 drops its state even if the cgroup was
    /// busy, and a second `delete` finds nothing. A failure is logged; it does not keep the container from being removed.
    ///
    /// With `may_be_left` processes in it are killed: the `delete` of runwasi's shims ends none. Not if an NRI plugin chose the cgroup,
    /// which others may share.
    async fn remove_left_cgroup(&self, container: &Container, may_be_left: bool) {
        let record = container.record();
        let Some(cgroup) = self.cgroup_of(&record) else {
            return;
        };
        let removing = blocking(move || {
            let removed = if may_be_left && record.cgroup_path.is_none() {
                cgroup.remove(EMPTYING)
            } else {
                cgroup.remove_empty(EMPTYING)
            };
            removed.map_err(|error| Error::Internal(error.to_string()))
        });
        if let Err(error) = removing.await {
            tracing::warn!(target: "criscope::runtime::container::exit", event = "runtime.cgroup", container.id = %container.id, error.message = %shown(&error), "the cgroup of a deleted container could not be removed");
        }
    }

    /// Unmounts the root file system of a container and releases its layers.
    pub(crate) async fn unmount(&self, container: &Arc<Container>) -> Result<()> {
        let dir = container.dir().to_owned();
        let (pins, pod) = (self.pins.clone(), container.record().sandbox.clone());
        let id = container.id.clone();
        let work = blocking(move || {
            pins.unpin_target(&pod, &id)?;
            Ok(Rootfs::new(dir).unmount()?)
        });
        self.steps
            .step(RuntimeStep::RootfsUnmount, None, work)
            .await?;
        container.release_layers();
        failpoint(Failpoint::ContainerUnmounted);
        Ok(())
    }
}
