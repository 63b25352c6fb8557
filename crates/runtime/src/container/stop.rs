//! StopContainer.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::Runtime;
use crate::error::{Error, Result};
use crate::failpoint::{Failpoint, failpoint};
use crate::shim_client::{self, Kill, Target};
use crate::store::{Container, ContainerState};
use criscope_cri::call::steps::RuntimeStep;

/// How long a process may take to exit after SIGKILL, for instance while blocked in a write to a slow disk.
const DYING: Duration = Duration::from_secs(60);

const SIGKILL: i32 = 9;

impl Runtime {
    /// Sends the stop signal to a container and kills it after `grace`, or immediately if that is zero. Succeeds if the container
    /// is not running or does not exist. The stop signal is sent only once. A frozen container is thawed, so that it can end by itself.
    ///
    /// # Errors
    /// If the container does not exit even after SIGKILL.
    pub async fn stop_container(self: &Arc<Self>, id: &str, grace: Duration) -> Result<()> {
        let Some(container) = self.store.containers.find(id)? else {
            return Ok(());
        };
        // Waits for a start in progress.
        let starting = container.op_lock.lock().await;
        drop(starting);
        let record = container.record();
        if record.state != ContainerState::Running {
            return Ok(());
        }
        if !grace.is_zero() {
            if container.claim_stop_signal() {
                let sent = self.signal(&container, record.stop_signal).await;
                // A retry sends the signal again instead of merely waiting for the grace period.
                sent.inspect_err(|_| container.release_stop_signal())?;
                failpoint(Failpoint::ContainerSignalled);
            }
            self.thaw(&container).await;
            // Having to kill the container is not an error.
            let wait = async {
                let exited = timeout(grace, container.exited()).await;
                Ok::<_, Infallible>(exited.is_ok())
            };
            let Ok(exited) = self.steps.step(RuntimeStep::GraceWait, None, wait).await;
            if exited {
                return settled(&container).await;
            }
        }
        self.end_container(&container).await
    }

    /// Kills a container and waits for its exit and the cleanup after it.
    pub(crate) async fn end_container(self: &Arc<Self>, container: &Arc<Container>) -> Result<()> {
        let starting = container.op_lock.lock().await;
        drop(starting);
        if container.record().state != ContainerState::Running {
            return Ok(());
        }
        self.signal(container, SIGKILL).await?;
        // Thawed after the signal: it ends without running on.
        let ending = self.thawing(container, Box::pin(settled(container)));
        let ended = self.steps.step(RuntimeStep::KillWait, None, ending).await;
        let Err(Error::Deadline(late)) = ended else {
            return ended;
        };
        Err(Error::Deadline(match self.frozen_by(container).await {
            Some(dir) => format!("{late}: cgroup {} is frozen", dir.display()),
            None => late,
        }))
    }

    /// Sends a signal to the init process of a container. Succeeds if it has exited.
    async fn signal(self: &Arc<Self>, container: &Container, signal: i32) -> Result<()> {
        let sandbox = self.store.sandboxes.get(&container.record().sandbox)?;
        let kill = Kill {
            target: Target {
                container: container.id.clone(),
                exec: String::new(),
            },
            signal,
            all: false,
        };
        let sent = match self.live_shim(&sandbox).await? {
            Some(shim) => shim.kill(kill).await,
            // The loss of the shim is being handled, which kills the running processes.
            None => return Ok(()),
        };
        match sent {
            Ok(()) | Err(shim_client::Error::NotFound(_) | shim_client::Error::Gone { .. }) => {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Waits for the exit of a container and the cleanup after it: its cgroup is gone when this returns.
async fn settled(container: &Container) -> Result<()> {
    match timeout(DYING, container.is_settled()).await {
        Ok(()) => Ok(()),
        Err(_) => Err(Error::Deadline(format!(
            "container {} did not exit within {DYING:?} after it was killed",
            container.id
        ))),
    }
}
