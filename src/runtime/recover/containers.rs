//! The containers of a sandbox that is found again: how far each of them came.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::runtime::container::watch;
use crate::runtime::sandbox::teardown::blocking;
use crate::runtime::shim_client::{Error, Process, Shim, State, exit_records};
use crate::runtime::store::{Container, ContainerState, Exit, Sandbox};
use crate::runtime::{Runtime, id};

/// A call of the OCI runtime that the last daemon began ends within this, or its own limit.
const UNDER_WAY: Duration = Duration::from_secs(90);

/// A start that was asked for just before the daemon ended is through after this: `runc start` takes 20 ms.
const STARTED: Duration = Duration::from_secs(1);

const PAUSE: Duration = Duration::from_millis(20);

impl Runtime {
    fn in_state(&self, sandbox: &Sandbox, state: ContainerState) -> Vec<Arc<Container>> {
        let mut all = self.store.containers_of(&sandbox.id);
        all.retain(|container| container.record().state == state);
        all
    }

    /// Ends what cannot run any more.
    pub(super) async fn end_all(self: &Arc<Self>, sandbox: &Sandbox, why: &str) {
        for state in [ContainerState::Starting, ContainerState::Running] {
            for container in self.in_state(sandbox, state) {
                container.ended(watch::unknown(why), id::now()).await;
            }
        }
    }

    /// Containers that were being started: those that run, run; the others are created again, as if nobody had asked. So
    /// the caller, who never had an answer, can ask again.
    pub(super) async fn settle_starts(
        self: &Arc<Self>,
        sandbox: &Sandbox,
        shim: &Shim,
    ) -> Result<(), Error> {
        for container in self.in_state(sandbox, ContainerState::Starting) {
            let process = made(shim, &container.id).await?;
            let done = match process.filter(|process| process.started_at != 0) {
                Some(process) => {
                    let runs = container.update(|record| {
                        record.state = ContainerState::Running;
                        record.pid = process.pid;
                        record.started_at = watch::nanoseconds(process.started_at);
                    });
                    runs.await
                }
                None => {
                    self.forget(&container).await;
                    take_back(&container).await
                }
            };
            if let Err(error) = done {
                self.problem("container", container.dir(), &error);
            }
        }
        Ok(())
    }

    /// Containers that were being started when their shim died: those that the OCI runtime had not made are created again,
    /// the others are accounted for like those that ran.
    pub(super) async fn settle_starts_alone(self: &Arc<Self>, sandbox: &Sandbox) {
        let dir = self.settings.paths.pod(&sandbox.id);
        let fates = blocking(move || Ok(exit_records(&dir).unwrap_or_default())).await;
        let fates = fates.unwrap_or_default();
        for container in self.in_state(sandbox, ContainerState::Starting) {
            let done = if fates.contains_key(&container.id) {
                let runs = container.update(|record| record.state = ContainerState::Running);
                runs.await
            } else {
                self.forget(&container).await;
                take_back(&container).await
            };
            if let Err(error) = done {
                self.problem("container", container.dir(), &error);
            }
        }
    }

    /// Takes note of the ends that the shim saw meanwhile.
    pub(super) async fn settle_ends(self: &Arc<Self>, sandbox: &Sandbox, state: &State) {
        for container in self.in_state(sandbox, ContainerState::Running) {
            let process = find(state, &container.id);
            match process.map(|process| process.exit.as_ref()) {
                // The answer to whoever started it may have been lost.
                Some(None) => container.offer_start(),
                Some(Some(exit)) => {
                    let at = watch::nanoseconds(exit.at);
                    self.finish(&container, watch::verdict(exit), at).await;
                }
                None => {
                    let exit: Exit = watch::unknown("the shim does not know it");
                    self.finish(&container, exit, id::now()).await;
                }
            }
        }
    }

    /// Takes away what the OCI runtime and the kernel still hold for containers that have ended.
    pub(super) async fn settle_all(self: &Arc<Self>, sandbox: &Sandbox) {
        let known = match sandbox.shim() {
            Some(shim) => shim.state().await.ok(),
            None => None,
        };
        for container in self.in_state(sandbox, ContainerState::Exited) {
            let by_shim = known
                .as_ref()
                .is_some_and(|state| find(state, &container.id).is_some());
            let oci = self.oci_state_of(&container);
            let by_oci = blocking(move || Ok(oci.exists())).await.unwrap_or(true);
            if by_shim || by_oci {
                self.forget(&container).await;
            }
            if let Err(error) = self.unmount(&container).await {
                self.problem("mount", container.dir(), &error);
            }
            container.settle();
        }
    }

    /// Where the OCI runtime keeps what it knows of a container.
    fn oci_state_of(&self, container: &Container) -> std::path::PathBuf {
        self.handler_of(container).oci.root.join(&container.id)
    }

    async fn forget(&self, container: &Container) {
        let handler = self.handler_of(container);
        if let Err(error) = self.delete_process(container, &handler).await {
            self.problem("container", container.dir(), &error);
        }
    }
}

async fn take_back(
    container: &Container,
) -> crate::runtime::error::Result<Arc<crate::runtime::store::ContainerRecord>> {
    let change = container.update(|record| {
        record.state = ContainerState::Created;
        record.pid = 0;
        record.started_at = 0;
    });
    change.await
}

fn find<'a>(state: &'a State, container: &str) -> Option<&'a Process> {
    let mut processes = state.processes.iter();
    processes
        .find(|process| process.target.exec.is_empty() && process.target.container == container)
}

/// What the shim says of a container once the calls that the last daemon began have ended: whether it was made, and
/// started.
async fn made(shim: &Shim, container: &str) -> Result<Option<Process>, Error> {
    let begun = Instant::now();
    let mut since = None;
    loop {
        let state = shim.state().await?;
        let Some(process) = find(&state, container) else {
            return Ok(None);
        };
        let waited = match process {
            Process { pid: 0, .. } => begun.elapsed() > UNDER_WAY,
            Process {
                started_at: 0,
                exit: None,
                ..
            } => since.get_or_insert_with(Instant::now).elapsed() > STARTED,
            _ => true,
        };
        if waited {
            return Ok(Some(process.clone()));
        }
        sleep(PAUSE).await;
    }
}
