//! Recovers a sandbox of the previous run, or removes it if it is incomplete.

use std::sync::Arc;

use criscope_linux::namespace::{self, Kind};

use crate::container::kill_exec;
use crate::error::{Error, Result};
use crate::sandbox::pid_namespace::shares_pid_namespace;
use crate::sandbox::teardown::blocking;
use crate::shim_client::{self, Shim, State, Target, Verb};
use crate::store::{Reservation, Sandbox, SandboxState};
use crate::{Runtime, id};
use criscope_cri::v1::NamespaceMode;

/// A sandbox that has a record.
pub(super) struct Pod {
    pub(super) sandbox: Arc<Sandbox>,
    /// The name of a sandbox to undo, released once that is done.
    pub(super) name: Option<Reservation>,
}

impl Runtime {
    pub(super) async fn recover_pod(self: Arc<Self>, pod: Pod) {
        let Pod { sandbox, name } = pod;
        let _guard = sandbox.op_lock.write().await;
        let record = sandbox.record();
        if record.state == SandboxState::Making {
            return self.undo_half_made(&sandbox, name).await;
        }
        if self.live().handlers.get(&record.handler).is_err() {
            tracing::warn!(target: "criscope::runtime::recover::pod", event = "runtime.handler", criscope.sandbox.id = %sandbox.id, criscope.runtime_handler = %record.handler, "the runtime handler of a pod is no longer configured: the pod keeps running, but can only be stopped and removed");
        }
        if record.boot == self.boot {
            self.find_shim(&sandbox).await;
            self.check_namespaces(&sandbox).await;
        } else {
            self.rebooted(&sandbox).await;
        }
        self.settle_all(&sandbox).await;
        self.end_checkpoints(&sandbox);
        self.offer_pod(&sandbox);
    }

    /// Removes an incomplete sandbox, which no caller knows. On failure it stays in the store, so that the kubelet removes it.
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

    /// Marks a sandbox of an earlier boot, none of whose processes are running. Its addresses are released when it is stopped: at
    /// boot the plugins may not be installed yet.
    async fn rebooted(self: &Arc<Self>, sandbox: &Arc<Sandbox>) {
        self.end_all(sandbox, "the machine was rebooted").await;
        self.lost(sandbox).await;
    }

    /// Marks a sandbox as stopped, because containers can no longer be created in it.
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
            // The shim is alive and has the containers: the next verb that needs it reconnects.
            Err(error) => {
                sandbox.set_shim(None);
                self.problem("shim", &dir, &error);
            }
        }
    }

    /// Reconciles a sandbox with its shim. Starts in progress are settled first; then the shim's state gives the earlier exits,
    /// and its events the later ones.
    async fn reconnect(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        shim: Shim,
    ) -> std::result::Result<(), shim_client::Error> {
        sandbox.set_shim(Some(shim.clone()));
        self.settle_starts(sandbox, &shim).await?;
        self.watch(sandbox, &shim);
        let state = shim.state().await?;
        self.clear_shim(&sandbox.id, &shim, &state).await;
        self.settle_ends(sandbox, &state).await;
        if let Err(error) = self
            .find_pid_namespace(sandbox, &shim, state.pid_namespace)
            .await
        {
            self.problem("pod sandbox", sandbox.dir(), &error);
            self.init_ended(sandbox, id::now()).await;
        }
        self.keep_init(sandbox);
        Ok(())
    }

    /// Checks the sandbox container and the shared PID namespace of a sandbox, and pins the namespace if it is not pinned.
    async fn find_pid_namespace(&self, sandbox: &Sandbox, shim: &Shim, init: u32) -> Result<()> {
        let record = sandbox.record();
        let shares = shares_pid_namespace(&record);
        if record.state != SandboxState::Ready || !(shares || record.has_containerd_shim()) {
            return Ok(());
        }
        if init != record.pid_namespace {
            return Err(Error::state("its init is gone"));
        }
        if !shares {
            return Ok(());
        }
        match self.pins.state(&sandbox.id, Kind::Pid)? {
            namespace::State::Pinned => Ok(()),
            _ => self.pin_pid_namespace(&sandbox.id, shim, init).await,
        }
    }

    /// Kills execs, whose callers lost the connection with the previous daemon, and deletes containers that are not in the store.
    async fn clear_shim(&self, sandbox: &str, shim: &Shim, state: &State) {
        for process in &state.processes {
            let Target { container, exec } = &process.target;
            let done = if !exec.is_empty() {
                if process.exit.is_none() {
                    match kill_exec(shim, process.target.clone()).await {
                        // The process has exited in the meantime.
                        Ok(()) | Err(shim_client::Error::NotFound(_)) => {
                            shim.forget(process.target.clone()).await
                        }
                        failed => failed,
                    }
                } else {
                    shim.forget(process.target.clone()).await
                }
            } else if container != sandbox
                && self
                    .store
                    .containers
                    .get(container)
                    .is_err_and(|e| e.is_not_found())
            {
                self.delete_orphan(shim, container).await
            } else {
                Ok(())
            };
            match done {
                Ok(()) | Err(shim_client::Error::NotFound(_)) => {}
                Err(error) => self.problem("process", shim.dir(), &error),
            }
        }
    }

    /// Handles a shim that died while no daemon was running.
    async fn without_shim(self: &Arc<Self>, sandbox: &Arc<Sandbox>) {
        sandbox.set_shim(None);
        self.settle_starts_alone(sandbox).await;
        if let Err(error) = self.account_for(sandbox).await {
            self.problem("pod sandbox", sandbox.dir(), &error);
        }
        self.init_ended(sandbox, id::now()).await;
    }

    /// Marks a pod as stopped if one of its namespaces is no longer pinned. Its containers keep running.
    async fn check_namespaces(&self, sandbox: &Sandbox) {
        let record = sandbox.record();
        if record.state != SandboxState::Ready {
            return;
        }
        let options = record.namespaces();
        let mut kinds = Vec::new();
        if options.network != NamespaceMode::Node as i32 {
            kinds.extend([Kind::Net, Kind::Uts]);
        }
        if options.ipc != NamespaceMode::Node as i32 {
            kinds.push(Kind::Ipc);
        }
        let (pins, id) = (self.pins.clone(), sandbox.id.clone());
        let missing = blocking(move || {
            Ok(kinds.into_iter().find(|kind| {
                let state = pins.state(&id, *kind);
                !matches!(state, Ok(namespace::State::Pinned))
            }))
        });
        if let Ok(Some(kind)) = missing.await {
            let path = self.pins.path(&sandbox.id, kind);
            self.problem("namespace", &path, &"it is not pinned any more");
            self.lost(sandbox).await;
        }
    }
}

/// A forced delete by the shim, which knows the container's OCI runtime.
pub(super) fn forced(container: &str) -> Verb {
    Verb {
        id: container.to_owned(),
        runtime: crate::shim_client::Runtime {
            args: vec!["--force".to_owned()],
            timeout_ms: 30_000,
            ..Default::default()
        },
    }
}
