//! Noticing what happens in a pod: its shim tells of every end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;

use super::super::sandbox::teardown::blocking;
use crate::runtime::error::{Result, shown};
use crate::runtime::metrics::ShimEnd;
use crate::runtime::shim_client::{self, Event, ExitFate, Shim, Unreadable, exit_records};
use crate::runtime::store::{Container, Exit, Sandbox};
use crate::runtime::{Runtime, id};

/// What is said of an end that nobody saw, as containerd does.
const UNKNOWN: i32 = 255;

/// Before a connection that was lost is used again.
const AGAIN: Duration = Duration::from_secs(1);

/// The reason of such an end.
pub(in crate::runtime) const UNSEEN: &str = "Unknown";

impl Runtime {
    /// Takes note of everything that ends in a pod from now on, until its shim goes.
    pub(in crate::runtime) fn watch(self: &Arc<Self>, sandbox: &Arc<Sandbox>, shim: &Shim) {
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
                        runtime.look_at_init(&id);
                    }
                    Ok(Event::Oom(_)) => {}
                    Ok(Event::PidNamespaceEnded) => runtime.look_at_init(&id),
                    Ok(Event::Unreadable(what)) => {
                        runtime.steps.shim_message_unreadable(what);
                        // It may have been an end.
                        if what != Unreadable::Request {
                            runtime.catch_up(&id).await;
                        }
                    }
                    // The shim knows what was missed.
                    Err(RecvError::Lagged(_)) => runtime.catch_up(&id).await,
                    Err(RecvError::Closed) => return runtime.shim_left(&id).await,
                }
            }
        });
    }

    /// A process of a pod ended. What follows is done on a task of its own, so that no end waits for another.
    fn ended(self: &Arc<Self>, exit: &shim_client::Exit) {
        if !exit.target.exec.is_empty() {
            return;
        }
        let Ok(container) = self.store.containers.get(&exit.target.container) else {
            return;
        };
        let (runtime, how, at) = (Arc::clone(self), verdict(exit), nanoseconds(exit.at));
        tokio::spawn(async move { runtime.finish(&container, how, at).await });
    }

    /// Looks whether the processes of a pod have ended with the one that did, on a task of its own.
    fn look_at_init(self: &Arc<Self>, id: &str) {
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
            if let Err(error) = runtime.check_processes(&sandbox).await {
                tracing::warn!(event = "runtime.shim", sandbox.id = %sandbox.id, error = %shown(&error), "cannot ask whether the init of a pod has ended");
            }
        });
    }

    /// Asks a shim for all ends that are not known yet.
    pub(in crate::runtime) async fn catch_up(self: &Arc<Self>, sandbox: &str) {
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
                    self.processes_ended(&sandbox).await;
                }
            }
            // Gone is told in its own way.
            Err(shim_client::Error::Gone { .. }) => {}
            Err(error) => {
                tracing::warn!(event = "runtime.shim", sandbox.id = %sandbox.id, error = %error, "cannot ask a shim which of its containers have ended");
            }
        }
    }

    /// The shim of a pod is gone. If nobody wanted that, its containers are accounted for: what it wrote down of their ends
    /// is true, and what still runs is ended, since nobody would see its end or read its output.
    async fn shim_left(self: &Arc<Self>, id: &str) {
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
            // Only the connection ended: one of the two was sent something that it cannot read.
            Ok(shim) => {
                tracing::warn!(event = "runtime.shim", sandbox.id = %id, "the connection to a shim was lost, and made again");
                // It may be lost again and again.
                tokio::time::sleep(AGAIN).await;
                sandbox.set_shim(Some(shim.clone()));
                self.watch(&sandbox, &shim);
                return self.catch_up(id).await;
            }
            // The shim still has the containers: the next verb that needs it connects again.
            Err(error) => {
                tracing::warn!(event = "runtime.shim", sandbox.id = %id, %error, "the connection to a shim was lost");
                return;
            }
        }
        tracing::warn!(event = "runtime.shim", sandbox.id = %id, "the shim of a pod died");
        self.steps.shim_lost(ShimEnd::Died);
        self.shim_lost(&sandbox).await;
    }

    /// What follows from the end of a shim that nobody wanted.
    pub(in crate::runtime) async fn shim_lost(self: &Arc<Self>, sandbox: &Sandbox) {
        let id = &sandbox.id;
        if let Err(error) = self.account_for(sandbox).await {
            tracing::warn!(event = "runtime.shim", sandbox.id = %id, error = %shown(&error), "cannot account for the containers of a shim that died");
        }
        // Its init was the shim's, and has ended with it.
        self.processes_ended(sandbox).await;
    }

    /// What became of the containers of a pod whose shim is gone.
    ///
    /// # Errors
    /// The pod's directory cannot be read.
    pub(in crate::runtime) async fn account_for(self: &Arc<Self>, sandbox: &Sandbox) -> Result<()> {
        let dir = self.settings.paths.pod(&sandbox.id);
        // After a reboot there is no directory, and nothing in it.
        let fates = blocking(move || Ok(exit_records(&dir).unwrap_or_default())).await?;
        for container in self.store.containers_of(&sandbox.id) {
            // One that is being started is seen to by who starts it.
            if !container.is_running() {
                continue;
            }
            let (exit, at) = match fates.get(&container.id) {
                Some(ExitFate::Ended {
                    code,
                    oom_kills,
                    at,
                    ..
                }) => (judge(*code, *oom_kills), nanoseconds(*at)),
                Some(ExitFate::Abandoned { .. }) => {
                    if let Err(error) = self.kill_abandoned(&container).await {
                        tracing::warn!(event = "runtime.shim", container.id = %container.id, error = %shown(&error), "a container without a shim still runs");
                    }
                    (unknown("its shim died, and it was ended"), id::now())
                }
                Some(ExitFate::Damaged(why)) => (unknown(why), id::now()),
                Some(ExitFate::Unknown) | None => (unknown("nobody saw its end"), id::now()),
            };
            self.finish(&container, exit, at).await;
        }
        Ok(())
    }

    async fn kill_abandoned(&self, container: &Container) -> Result<()> {
        let handler = self.handler_of(container);
        Ok(handler.oci.delete(&container.id, true).await?)
    }

    /// The shim of a pod; a new one if the old one died.
    pub(in crate::runtime) async fn shim_of(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
    ) -> Result<Shim> {
        if let Some(shim) = self.live_shim(sandbox).await? {
            return Ok(shim);
        }
        let shim = self.launch_shim(&sandbox.id).await?;
        sandbox.set_shim(Some(shim.clone()));
        self.watch(sandbox, &shim);
        Ok(shim)
    }

    /// The shim of a pod, if there is one; also one that did not answer when it was asked last.
    ///
    /// # Errors
    /// It does not answer now.
    pub(in crate::runtime) async fn live_shim(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
    ) -> Result<Option<Shim>> {
        match sandbox.shim() {
            Some(shim) if !shim.is_gone() => return Ok(Some(shim)),
            // Before there is another one, which would know nothing of its containers.
            Some(_) => {
                self.shim_left(&sandbox.id).await;
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

/// How a container ended, by what its shim saw.
pub(in crate::runtime) fn verdict(exit: &shim_client::Exit) -> Exit {
    judge(exit.code, exit.oom_kills)
}

/// The process that was killed for want of memory need not be the first one: a shell tells how its child ended (137), a
/// supervisor fails in its own way. As in containerd and CRI-O all of these are `OOMKilled`, but what ended well is not.
fn judge(code: i32, oom_kills: u64) -> Exit {
    let reason = match code {
        0 => "Completed",
        _ if oom_kills > 0 => "OOMKilled",
        _ => "Error",
    };
    Exit {
        code,
        reason: reason.to_owned(),
        message: String::new(),
    }
}

/// The end of a container that nobody saw.
pub(in crate::runtime) fn unknown(why: impl Into<String>) -> Exit {
    Exit {
        code: UNKNOWN,
        reason: UNSEEN.to_owned(),
        message: why.into(),
    }
}

/// A time as records have it.
pub(in crate::runtime) fn nanoseconds(at: u64) -> i64 {
    at.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_has_the_reason_the_kubelet_knows() {
        for (code, kills, reason) in [
            (0, 0, "Completed"),
            (1, 0, "Error"),
            (137, 0, "Error"),
            (137, 1, "OOMKilled"),
            (1, 1, "OOMKilled"),
            // A child was killed, and the first process went on and ended well.
            (0, 1, "Completed"),
            (143, 0, "Error"),
        ] {
            assert_eq!(judge(code, kills).reason, reason, "{code} {kills}");
        }
    }
}
