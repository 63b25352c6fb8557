//! StopContainer.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::call::steps::RuntimeStep;
use crate::runtime::Runtime;
use crate::runtime::error::{Error, Result};
use crate::runtime::failpoint::{Failpoint, failpoint};
use crate::runtime::shim_client::{self, Kill, Target};
use crate::runtime::store::{Container, ContainerState};

/// How long a process may take to end after SIGKILL: it may be writing to a slow disk.
const DYING: Duration = Duration::from_secs(60);

const SIGKILL: i32 = 9;

impl Runtime {
    /// Asks a container to end, with its own signal, and kills it after `grace`. Zero kills at once. One that does not run, or
    /// does not exist, is fine; one that was asked before is not asked again.
    ///
    /// # Errors
    /// It did not end even when killed.
    pub async fn stop_container(self: &Arc<Self>, id: &str, grace: Duration) -> Result<()> {
        let Some(container) = self.store.containers.find(id)? else {
            return Ok(());
        };
        // One that is being started is stopped when that is done.
        let starting = container.turn.lock().await;
        drop(starting);
        let record = container.record();
        if record.state != ContainerState::Running {
            return Ok(());
        }
        if !grace.is_zero() {
            if container.ask_once() {
                let asked = self.signal(&container, record.stop_signal).await;
                // Who tries again must not wait out the grace of one that was never asked.
                asked.inspect_err(|_| container.not_asked())?;
                failpoint(Failpoint::ContainerSignalled);
            }
            let exited = timeout(grace, container.exited());
            let waited = self.steps.step(RuntimeStep::GraceWait, None, exited);
            if waited.await.is_ok() {
                return settled(&container).await;
            }
        }
        self.end_container(&container).await
    }

    /// Kills a container, and waits for its end and what follows from it.
    pub(in crate::runtime) async fn end_container(
        self: &Arc<Self>,
        container: &Arc<Container>,
    ) -> Result<()> {
        let starting = container.turn.lock().await;
        drop(starting);
        if container.record().state != ContainerState::Running {
            return Ok(());
        }
        self.signal(container, SIGKILL).await?;
        let steps = &self.steps;
        steps
            .step(RuntimeStep::KillWait, None, settled(container))
            .await
    }

    /// Sends a signal to the first process of a container. One that has ended meanwhile is fine.
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
            // It is being accounted for, which ends what still runs.
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

/// Waits for the end of a container and what follows from it: the caller may count on its cgroup being gone.
async fn settled(container: &Container) -> Result<()> {
    match timeout(DYING, container.is_settled()).await {
        Ok(()) => Ok(()),
        Err(_) => Err(Error::Deadline(format!(
            "container {} did not end within {DYING:?} after it was killed",
            container.id
        ))),
    }
}
