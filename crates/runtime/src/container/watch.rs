//! Handles the events of a pod's shim: exits of its processes, and the loss of the shim itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;

use super::super::sandbox::teardown::blocking;
use crate::error::{Result, shown};
use crate::metrics::ShimEnd;
use crate::shim_client::{self, Event, ExitFate, Shim, Unreadable, exit_records};
use crate::store::{Container, Exit, Sandbox};
use crate::{Runtime, id};

/// The exit code if the actual one is unknown, as in containerd.
const UNKNOWN: i32 = 255;

/// The pause before reconnecting, because the connection may be lost repeatedly.
const AGAIN: Duration = Duration::from_secs(1);

/// The exit reason if the exit code is unknown.
const UNSEEN: &str = "Unknown";

/// Returns whether the shim observed the exit of the container, and has therefore sent all output of its processes.
pub(crate) fn was_seen_to_end(container: &Container) -> bool {
    let record = container.record();
    let exit = record.exit.as_ref();
    exit.is_some_and(|exit| exit.reason != UNSEEN)
}

impl Runtime {
    /// Handles the events of a shim until its connection is lost.
    pub(crate) fn watch(self: &Arc<Self>, sandbox: &Arc<Sandbox>, shim: &Shim) {
        let runtime = Arc::downgrade(self);
        let (id, mut events) = (sandbox.id.clone(), shim.events());
        tokio::spawn(async move {
            loop {
                let event = events.recv().await;
                let Some(runtime) = runtime.upgrade() else {
                    return;
                };
                match event {
                    Ok(Event::Exit(exit)) => {
                        runtime.ended(&exit);
                        runtime.spawn_init_check(&id);
                    }
                    Ok(Event::Oom(oom)) => runtime.tell_oom(&oom.id, oom.kills),
                    Ok(Event::PidNamespaceEnded) => runtime.spawn_init_check(&id),
                    Ok(Event::Unreadable(what)) => {
                        runtime.steps.shim_message_unreadable(what);
                        // The unreadable message may have been an exit.
                        if what != Unreadable::Request {
                            runtime.catch_up(&id).await;
                        }
                    }
                    // The shim keeps the exits that were missed.
                    Err(RecvError::Lagged(_)) => runtime.catch_up(&id).await,
                    Err(RecvError::Closed) => return runtime.shim_disconnected(&id).await,
                }
            }
        });
    }

    /// Handles the exit of a process. The cleanup runs in its own task, so that exits do not wait for each other.
    fn ended(self: &Arc<Self>, exit: &shim_client::Exit) {
        if !exit.target.exec.is_empty() {
            return;
        }
        let Ok(container) = self.store.containers.get(&exit.target.container) else {
            return;
        };
        let (runtime, how, at) = (Arc::clone(self), container_exit(exit), nanoseconds(exit.at));
        tokio::spawn(async move { runtime.finish(&container, how, at).await });
    }

    /// Checks in its own task whether the init of a shared PID namespace has exited.
    fn spawn_init_check(self: &Arc<Self>, id: &str) {
        let Ok(sandbox) = self.store.sandboxes.get(id) else {
            return;
        };
        if !sandbox
            .ready()
            .is_ok_and(|()| sandbox.record().pid_namespace != 0)
        {
            return;
        }
        let runtime = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(error) = runtime.check_init(&sandbox).await {
                tracing::warn!(target: "criscope::runtime::container::watch", event = "runtime.shim", criscope.sandbox.id = %sandbox.id, error.message = %shown(&error), "cannot check whether the init of a pod has exited");
            }
        });
    }

    /// Queries a shim for exits that are not recorded yet.
    pub(crate) async fn catch_up(self: &Arc<Self>, sandbox: &str) {
        let Ok(sandbox) = self.store.sandboxes.get(sandbox) else {
            return;
        };
        let Some(shim) = sandbox.shim() else { return };
        match shim.state().await {
            Ok(state) => {
                for exit in state.processes.iter().filter_map(|p| p.exit.as_ref()) {
                    self.ended(exit);
                }
                if state.pid_namespace == 0 {
                    self.init_ended(&sandbox, id::now()).await;
                }
            }
            // The loss of the shim has its own event.
            Err(shim_client::Error::Gone { .. }) => {}
            Err(error) => {
                tracing::warn!(target: "criscope::runtime::container::watch", event = "runtime.shim", criscope.sandbox.id = %sandbox.id, error.message = %error, "cannot query a shim for exits of its containers");
            }
        }
    }

    /// Handles the loss of the connection to a shim. If the shim is alive, reconnects. If it died unexpectedly, its containers
    /// are accounted for: exits that it recorded are valid, and containers that are still running are killed, since their exits
    /// and output would be lost.
    async fn shim_disconnected(self: &Arc<Self>, id: &str) {
        let Ok(sandbox) = self.store.sandboxes.get(id) else {
            return;
        };
        let Some(lost) = sandbox.shim() else { return };
        if !lost.is_gone() {
            return;
        }
        sandbox.set_shim(None);
        match Shim::connect(&self.settings.paths.pod(id)).await {
            Err(shim_client::Error::Gone { .. }) => {}
            // Only the connection was closed: one side received a message that it could not decode.
            Ok(shim) => {
                tracing::warn!(target: "criscope::runtime::container::watch", event = "runtime.shim", criscope.sandbox.id = %id, "the connection to a shim was lost and reestablished");
                tokio::time::sleep(AGAIN).await;
                sandbox.set_shim(Some(shim.clone()));
                self.watch(&sandbox, &shim);
                return self.catch_up(id).await;
            }
            // The shim still holds the containers: the next verb that needs it reconnects.
            Err(error) => {
                tracing::warn!(target: "criscope::runtime::container::watch", event = "runtime.shim", criscope.sandbox.id = %id, error.message = %error, "the connection to a shim was lost");
                return;
            }
        }
        tracing::warn!(target: "criscope::runtime::container::watch", event = "runtime.shim", criscope.sandbox.id = %id, "the shim of a pod died");
        self.steps.shim_lost(ShimEnd::Died);
        self.shim_lost(&sandbox).await;
    }

    /// Handles the unexpected death of a shim.
    pub(crate) async fn shim_lost(self: &Arc<Self>, sandbox: &Sandbox) {
        let (id, at) = (&sandbox.id, id::now());
        if let Err(error) = self.account_for(sandbox).await {
            tracing::warn!(target: "criscope::runtime::container::watch", event = "runtime.shim", criscope.sandbox.id = %id, error.message = %shown(&error), "cannot account for the containers of a shim that died");
        }
        // The init was a child of the shim and died with it, before the other processes were killed.
        self.init_ended(sandbox, at).await;
    }

    /// Determines and records the exits of the containers of a pod whose shim is gone.
    ///
    /// # Errors
    /// If the pod's directory cannot be read.
    pub(crate) async fn account_for(self: &Arc<Self>, sandbox: &Sandbox) -> Result<()> {
        let dir = self.settings.paths.pod(&sandbox.id);
        // After a reboot the directory does not exist.
        let fates = blocking(move || Ok(exit_records(&dir).unwrap_or_default())).await?;
        // First, because it would restart nothing but hold objects that are deleted below.
        self.end_containerd_shims(&sandbox.record()).await?;
        for container in self.store.containers_of(&sandbox.id) {
            // A start in progress handles its own container.
            if !container.is_running() {
                continue;
            }
            let (exit, at) = match fates.get(&container.id) {
                Some(ExitFate::Ended {
                    code,
                    signal,
                    oom_kills,
                    at,
                }) => (exit_of(*code, *signal, *oom_kills), nanoseconds(*at)),
                Some(ExitFate::Abandoned { .. }) => {
                    if let Err(error) = self.kill_abandoned(&container).await {
                        tracing::warn!(target: "criscope::runtime::container::watch", event = "runtime.shim", container.id = %container.id, error.message = %shown(&error), "a container without a shim could not be killed");
                    }
                    (unknown("killed because its shim died"), id::now())
                }
                Some(ExitFate::Damaged(why)) => (unknown(why), id::now()),
                Some(ExitFate::Unknown) | None => (unknown("its exit was not observed"), id::now()),
            };
            self.finish(&container, exit, at).await;
        }
        self.delete_abandoned_sandbox(&sandbox.record()).await;
        Ok(())
    }

    async fn kill_abandoned(&self, container: &Container) -> Result<()> {
        let handler = self.handler_of(container);
        let deleting = self.delete_directly(container, &handler);
        Ok(self.thawing(container, Box::pin(deleting)).await?)
    }

    /// Returns the shim of a pod, and restarts it if it died.
    pub(crate) async fn shim_of(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> Result<Shim> {
        if let Some(shim) = self.live_shim(sandbox).await? {
            return Ok(shim);
        }
        let shim = self.launch_shim(&sandbox.id).await?;
        sandbox.set_shim(Some(shim.clone()));
        self.watch(sandbox, &shim);
        Ok(shim)
    }

    /// Returns the shim of a pod, if it has one, even if it did not respond to the last request.
    ///
    /// # Errors
    /// If the connection fails for any reason other than a missing shim.
    pub(crate) async fn live_shim(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
    ) -> Result<Option<Shim>> {
        match sandbox.shim() {
            Some(shim) if !shim.is_gone() => return Ok(Some(shim)),
            // Handled before a new shim is started, which would not know the containers.
            Some(_) => {
                // Boxed: almost every verb gets here, and almost none waits for it.
                Box::pin(self.shim_disconnected(&sandbox.id)).await;
                if let Some(shim) = sandbox.shim() {
                    return Ok(Some(shim));
                }
            }
            None => {}
        }
        match Shim::connect(&self.settings.paths.pod(&sandbox.id)).await {
            Ok(shim) => {
                sandbox.set_shim(Some(shim.clone()));
                self.watch(sandbox, &shim);
                self.catch_up(&sandbox.id).await;
                Ok(Some(shim))
            }
            Err(shim_client::Error::Gone { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Converts the exit that a shim reported.
pub(crate) fn container_exit(exit: &shim_client::Exit) -> Exit {
    match exit.unobserved.as_str() {
        "" => exit_of(exit.code, exit.signal, exit.oom_kills),
        why => unknown(why),
    }
}

/// The OOM killer's victim need not be the init: a shell exits with the code of its child (137), a supervisor with its own. As in
/// containerd and CRI-O all of these are `OOMKilled`, except an exit code of 0.
fn exit_of(code: i32, signal: i32, oom_kills: u64) -> Exit {
    let reason = match code {
        0 => "Completed",
        _ if oom_kills > 0 => "OOMKilled",
        _ => "Error",
    };
    Exit {
        code,
        reason: reason.to_owned(),
        message: String::new(),
        signal: Some(signal),
    }
}

/// An exit with unknown code.
pub(crate) fn unknown(why: impl Into<String>) -> Exit {
    Exit {
        code: UNKNOWN,
        reason: UNSEEN.to_owned(),
        message: why.into(),
        signal: None,
    }
}

/// Converts a time of the shim to the format of records.
pub(crate) fn nanoseconds(at: u64) -> i64 {
    at.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_an_unobserved_exit_says_nothing() {
        let mut exit = shim_client::Exit {
            code: 137,
            ..shim_client::Exit::default()
        };
        assert_eq!(container_exit(&exit).reason, "Error");
        exit.unobserved = "the containerd shim ended".to_owned();
        let recorded = container_exit(&exit);
        assert_eq!((recorded.code, recorded.reason.as_str()), (UNKNOWN, UNSEEN));
        assert_eq!(recorded.message, "the containerd shim ended");
    }

    #[test]
    fn exits_have_the_reasons_that_the_kubelet_knows() {
        for (code, kills, reason) in [
            (0, 0, "Completed"),
            (1, 0, "Error"),
            (137, 0, "Error"),
            (137, 1, "OOMKilled"),
            (1, 1, "OOMKilled"),
            // A child was killed, and the init process continued and exited successfully.
            (0, 1, "Completed"),
            (143, 0, "Error"),
        ] {
            assert_eq!(exit_of(code, 0, kills).reason, reason, "{code} {kills}");
        }
    }
}
