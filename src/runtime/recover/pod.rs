//! A sandbox of the last run: undone if it was half made, else found again.

use std::sync::Arc;

use criscope_linux::namespace::{self, Kind};

use crate::cri::v1::NamespaceMode;
use crate::runtime::Runtime;
use crate::runtime::error::{Error, Result};
use crate::runtime::sandbox::pid_namespace::shares_processes;
use crate::runtime::sandbox::teardown::blocking;
use crate::runtime::shim_client::{self, Kill, Shim, State, Target, Verb};
use crate::runtime::store::{Reservation, Sandbox, SandboxState};

const SIGKILL: i32 = 9;

/// A sandbox that has a record.
pub(super) struct Pod {
    pub(super) sandbox: Arc<Sandbox>,
    /// Of one that is to be undone: free again when that is done.
    pub(super) name: Option<Reservation>,
}

impl Runtime {
    pub(super) async fn recover_pod(self: Arc<Self>, pod: Pod) {
        let Pod { sandbox, name } = pod;
        let _turn = sandbox.turn.write().await;
        let record = sandbox.record();
        if record.state == SandboxState::Making {
            return self.undo_half_made(&sandbox, name).await;
        }
        if self.handlers.get(&record.handler).is_err() {
            tracing::warn!(event = "runtime.handler", sandbox.id = %sandbox.id, handler = %record.handler, "the runtime handler of a pod is not configured any more: it runs on, and can only be stopped and removed");
        }
        if record.boot == self.boot {
            self.find_shim(&sandbox).await;
            self.check_namespaces(&sandbox).await;
        } else {
            self.rebooted(&sandbox).await;
        }
        self.settle_all(&sandbox).await;
        self.offer_pod(&sandbox);
    }

    /// It never was, for all that anybody knows. What cannot be taken away stays visible, so that somebody removes it.
    async fn undo_half_made(&self, sandbox: &Arc<Sandbox>, name: Option<Reservation>) {
        let undone = match self.let_end(&sandbox.id).await {
            Ok(()) => self.undo_sandbox(sandbox).await,
            Err(error) => Err(error),
        };
        let Err(error) = undone else { return };
        self.problem("pod sandbox", sandbox.dir(), &error);
        let stopped = sandbox.update(|record| record.state = SandboxState::Stopped);
        match stopped.await {
            Ok(_) => {
                name.into_iter().for_each(Reservation::keep);
                let shown = Arc::clone(sandbox);
                self.store.sandboxes.insert(&sandbox.id, shown);
            }
            Err(error) => self.problem("pod sandbox", sandbox.dir(), &error),
        }
    }

    /// Nothing of it runs since the machine was started again. Its addresses are given back when it is stopped: at this
    /// time of a machine's life the plugins may not be there yet.
    async fn rebooted(self: &Arc<Self>, sandbox: &Arc<Sandbox>) {
        self.end_all(sandbox, "the machine was started again").await;
        self.lost(sandbox).await;
    }

    /// It can have no more containers.
    async fn lost(&self, sandbox: &Sandbox) {
        if sandbox.record().state != SandboxState::Ready {
            return;
        }
        let stopped = sandbox.update(|record| record.state = SandboxState::Stopped);
        if let Err(error) = stopped.await {
            self.problem("pod sandbox", sandbox.dir(), &error);
        }
    }

    async fn find_shim(self: &Arc<Self>, sandbox: &Arc<Sandbox>) {
        let dir = self.settings.paths.pod(&sandbox.id);
        let found = match Shim::connect(&dir).await {
            Ok(shim) => self.reconnect(sandbox, shim).await,
            Err(error) => Err(error),
        };
        match found {
            Ok(()) => {}
            Err(shim_client::Error::Gone { .. }) => self.without_shim(sandbox).await,
            // It is there and has the containers: whoever needs it next tries again.
            Err(error) => {
                sandbox.set_shim(None);
                self.problem("shim", &dir, &error);
            }
        }
    }

    /// What was begun is ended or taken back first; then the events tell what happens from now on, and the state what
    /// happened before.
    async fn reconnect(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        shim: Shim,
    ) -> std::result::Result<(), shim_client::Error> {
        sandbox.set_shim(Some(shim.clone()));
        self.settle_starts(sandbox, &shim).await?;
        self.watch(sandbox, &shim);
        let state = shim.state().await?;
        self.clear_shim(&shim, &state).await;
        self.settle_ends(sandbox, &state).await;
        if let Err(error) = self
            .find_processes(sandbox, &shim, state.pid_namespace)
            .await
        {
            self.problem("pod sandbox", sandbox.dir(), &error);
            self.processes_ended(sandbox).await;
        }
        Ok(())
    }

    /// Its shared PID namespace, which an older version did not pin.
    async fn find_processes(&self, sandbox: &Sandbox, shim: &Shim, init: u32) -> Result<()> {
        let record = sandbox.record();
        if record.state != SandboxState::Ready || !shares_processes(&record) {
            return Ok(());
        }
        if init != record.pid_namespace {
            return Err(Error::state("its PID namespace is gone"));
        }
        match self.pins.state(&sandbox.id, Kind::Pid)? {
            namespace::State::Pinned => Ok(()),
            _ => self.pin_processes(&sandbox.id, shim, init).await,
        }
    }

    /// Ends execs, since whoever waited for them went with the last daemon, and containers that nobody knows.
    async fn clear_shim(&self, shim: &Shim, state: &State) {
        for process in &state.processes {
            let Target { container, exec } = &process.target;
            let done = if !exec.is_empty() {
                if process.exit.is_none() {
                    let kill = Kill {
                        target: process.target.clone(),
                        signal: SIGKILL,
                        all: false,
                    };
                    match shim.kill(kill).await {
                        // Ended meanwhile.
                        Ok(()) | Err(shim_client::Error::NotFound(_)) => {
                            shim.forget(process.target.clone()).await
                        }
                        failed => failed,
                    }
                } else {
                    shim.forget(process.target.clone()).await
                }
            } else if self
                .store
                .containers
                .get(container)
                .is_err_and(|e| e.is_not_found())
            {
                shim.delete(forced(container)).await
            } else {
                Ok(())
            };
            match done {
                Ok(()) | Err(shim_client::Error::NotFound(_)) => {}
                Err(error) => self.problem("process", shim.dir(), &error),
            }
        }
    }

    /// Its shim died while nobody looked.
    async fn without_shim(self: &Arc<Self>, sandbox: &Arc<Sandbox>) {
        sandbox.set_shim(None);
        self.settle_starts_alone(sandbox).await;
        if let Err(error) = self.account_for(sandbox).await {
            self.problem("pod sandbox", sandbox.dir(), &error);
        }
        self.processes_ended(sandbox).await;
    }

    /// A pod without its namespaces can have no more containers. Those that run stay in them.
    async fn check_namespaces(&self, sandbox: &Sandbox) {
        let record = sandbox.record();
        if record.state != SandboxState::Ready {
            return;
        }
        let options = record.namespaces();
        let own = |mode: i32| mode != NamespaceMode::Node as i32;
        let mut kinds = Vec::new();
        if own(options.network) {
            kinds.extend([Kind::Net, Kind::Uts]);
        }
        if own(options.ipc) {
            kinds.push(Kind::Ipc);
        }
        let (pins, id) = (self.pins.clone(), sandbox.id.clone());
        let missing = blocking(move || {
            let pinned = |kind| matches!(pins.state(&id, kind), Ok(namespace::State::Pinned));
            Ok(kinds.into_iter().find(|kind| !pinned(*kind)))
        });
        if let Ok(Some(kind)) = missing.await {
            let path = self.pins.path(&sandbox.id, kind);
            self.problem("namespace", &path, &"it is not pinned any more");
            self.lost(sandbox).await;
        }
    }
}

/// How a container is deleted by a shim, which knows its OCI runtime.
pub(super) fn forced(container: &str) -> Verb {
    Verb {
        id: container.to_owned(),
        runtime: crate::runtime::shim_client::Runtime {
            args: vec!["--force".to_owned()],
            timeout_ms: 30_000,
            ..Default::default()
        },
    }
}
