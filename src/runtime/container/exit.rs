//! What is done with a container whose process has ended.

use std::sync::Arc;

use criscope_linux::rootfs::Rootfs;

use super::super::sandbox::teardown::blocking;
use crate::call::steps::RuntimeStep;
use crate::cri::v1::ContainerEventType;
use crate::runtime::Runtime;
use crate::runtime::error::{Result, shown};
use crate::runtime::failpoint::{Failpoint, failpoint};
use crate::runtime::handler::Handler;
use crate::runtime::shim_client::{self, Verb};
use crate::runtime::store::{Container, Exit};

impl Runtime {
    /// Takes note of the end of a container, tells it, and gives back what the OCI runtime and the kernel hold for it: its
    /// cgroup and its root. What cannot be given back now is when it is removed.
    pub(in crate::runtime) async fn finish(
        self: &Arc<Self>,
        container: &Arc<Container>,
        exit: Exit,
        at: i64,
    ) {
        // Whoever starts it has the turn until it is known whether that worked, and told: no end is told before.
        let _turn = container.turn.lock().await;
        if !container.ended(exit, at).await {
            return;
        }
        failpoint(Failpoint::ContainerEnded);
        self.tell_container(ContainerEventType::ContainerStoppedEvent, container);
        let handler = self.handler_of(container);
        self.forget_process(container, &handler).await;
        if let Err(error) = self.unmount(container).await {
            tracing::warn!(event = "runtime.unmount", container.id = %container.id, error = %shown(&error), "the root of a container that ended stays mounted");
        }
        container.settle();
    }

    /// Has the OCI runtime forget a container, with all its processes. By way of the shim, which forgets it too; without one,
    /// directly.
    pub(in crate::runtime) async fn forget_process(
        &self,
        container: &Container,
        handler: &Handler,
    ) {
        if let Err(error) = self.delete_process(container, handler).await {
            tracing::warn!(event = "runtime.delete", container.id = %container.id, error = %shown(&error), "the OCI runtime keeps a container that ended");
        }
    }

    /// As [`Self::forget_process`].
    ///
    /// # Errors
    /// The OCI runtime refuses.
    pub(in crate::runtime) async fn delete_process(
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
            match by_shim {
                true => Ok(()),
                false => handler.oci.delete(&container.id, true).await,
            }
        };
        self.steps
            .step(RuntimeStep::OciDelete, Some(handler.program()), deleting)
            .await?;
        container.forget();
        failpoint(Failpoint::ContainerDeleted);
        Ok(())
    }

    /// Unmounts the root of a container, and lets its layers go.
    pub(in crate::runtime) async fn unmount(&self, container: &Arc<Container>) -> Result<()> {
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
