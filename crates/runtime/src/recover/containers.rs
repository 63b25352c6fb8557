//! Reconciles the containers of a recovered sandbox with its shim.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::container::watch;
use crate::sandbox::teardown::blocking;
use crate::shim_client::{Error, Process, Shim, State, exit_records};
use crate::store::{Container, ContainerState, Exit, Sandbox};
use crate::{Runtime, id};

/// An OCI runtime call of the previous daemon ends within this time or its own timeout.
const UNDER_WAY: Duration = Duration::from_secs(90);

/// How long to wait for a start that was requested just before the daemon exited: `runc start` takes 20 ms.
const STARTED: Duration = Duration::from_secs(1);

const PAUSE: Duration = Duration::from_millis(20);

impl Runtime {
    fn in_state(&self, sandbox: &Sandbox, state: ContainerState) -> Vec<Arc<Container>> {
        let mut all = self.store.containers_of(&sandbox.id);
        all.retain(|container| container.record().state == state);
        all
    }

    /// Records an unknown exit for all containers that were running.
    pub(super) async fn end_all(self: &Arc<Self>, sandbox: &Sandbox, why: &str) {
        for state in [ContainerState::Starting, ContainerState::Running] {
            for container in self.in_state(sandbox, state) {
                container.ended(watch::unknown(why), id::now()).await;
            }
        }
    }

    /// Reconciles containers that were being started: the ones that are running become running, the others created again, so that
    /// the caller, which never received a response, can retry.
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

    /// Reconciles containers that were being started when their shim died: those without an exit record become created again, the
    /// others are accounted for like running ones.
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

    /// Records the exits that the shim observed in the meantime.
    pub(super) async fn settle_ends(self: &Arc<Self>, sandbox: &Sandbox, state: &State) {
        for container in self.in_state(sandbox, ContainerState::Running) {
            let process = find(state, &container.id);
            match process.map(|process| process.exit.as_ref()) {
                // The response to its StartContainer may have been lost.
                Some(None) => container.allow_repeated_start(),
                Some(Some(exit)) => {
                    let at = watch::nanoseconds(exit.at);
                    self.finish(&container, watch::container_exit(exit), at)
                        .await;
                }
                None => {
                    let exit: Exit = watch::unknown("its shim does not know it");
                    self.finish(&container, exit, id::now()).await;
                }
            }
        }
    }

    /// Cleans up what the OCI runtime and the kernel still hold for containers that have exited.
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

    /// The directory in which the OCI runtime keeps the state of a container.
    fn oci_state_of(&self, container: &Container) -> std::path::PathBuf {
        self.handler_of(container)
            .oci
            .state_dir()
            .join(&container.id)
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
) -> crate::error::Result<Arc<crate::store::ContainerRecord>> {
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

/// Returns the container's process, as the shim reports it once the previous daemon's calls have ended; `None` if it was not
/// created.
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
