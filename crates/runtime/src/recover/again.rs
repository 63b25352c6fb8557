//! Retries records that could not be read at start, with exponential backoff, until they can be read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Known, records};
use crate::Runtime;
use crate::container::watch;
use crate::error::{Error, Result};
use crate::sandbox::teardown::blocking;
use crate::store::{ContainerState, Sandbox};
use criscope_telemetry::BackgroundJob;

/// The initial and the maximum pause between retries.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Objects whose records cannot be read.
#[derive(Clone, Debug, Default)]
pub(super) struct Unread {
    pub(super) sandboxes: BTreeSet<String>,
    pub(super) containers: BTreeSet<String>,
}

impl Unread {
    fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }
}

impl Runtime {
    /// Starts the retries in the background.
    pub(super) fn read_later(self: &Arc<Self>, mut unread: Unread) {
        if unread.is_empty() {
            return;
        }
        let runtime = Arc::downgrade(self);
        let job = BackgroundJob::RuntimeReread.begin();
        tokio::spawn(async move {
            let (mut pause, most) = PAUSE;
            let mut attempts = 0;
            while !unread.is_empty() {
                tokio::time::sleep(pause).await;
                attempts += 1;
                pause = (2 * pause).min(most);
                let Some(runtime) = runtime.upgrade() else {
                    return;
                };
                match runtime.read_again(unread.clone()).await {
                    Ok(left) => unread = left,
                    Err(error) => {
                        tracing::debug!(target: "criscope::runtime::recover::again", event = "runtime.recover", error.message = %error, "retry of unreadable records failed");
                    }
                }
            }
            job.count("criscope.attempts", attempts);
        });
    }

    /// Recovers the objects whose records have become readable; returns the others.
    async fn read_again(self: &Arc<Self>, unread: Unread) -> Result<Unread> {
        let paths = self.settings.paths.clone();
        let (sandboxes, containers) = (unread.sandboxes.clone(), unread.containers.clone());
        let mut found =
            blocking(move || records::read_again(&paths, &sandboxes, &containers)).await?;
        found.sandboxes.retain(|entry| entry.record.is_ok());
        found.containers.retain(|entry| entry.record.is_ok());
        let mut left = unread;
        for entry in &found.sandboxes {
            left.sandboxes.remove(&entry.id);
        }
        found.containers.retain(|entry| {
            let pod = entry.record.as_ref().map(|record| record.sandbox.as_str());
            !pod.is_ok_and(|pod| left.sandboxes.contains(pod))
        });
        // Reserves their names before new objects can take them.
        let known = Known::new(&found, |pod| self.store.sandboxes.get(pod).is_ok());
        let mut late = BTreeSet::new();
        let ids: Vec<_> = found
            .sandboxes
            .iter()
            .map(|entry| (true, entry.id.clone(), entry.dir.clone()))
            .chain(
                found
                    .containers
                    .iter()
                    .map(|entry| (false, entry.id.clone(), entry.dir.clone())),
            )
            .collect();
        for entry in &found.containers {
            left.containers.remove(&entry.id);
            if let Ok(record) = &entry.record {
                late.insert(record.sandbox.clone());
            }
        }
        let pods = self.take_up(found, &known, &mut left);
        for (is_sandbox, id, dir) in ids {
            if is_sandbox {
                self.store.sandboxes.set_read(&id);
                self.store.sandbox_names.set_known(&id);
            } else {
                self.store.containers.set_read(&id);
                self.store.container_names.set_known(&id);
            }
            self.solved(&dir);
            tracing::info!(target: "criscope::runtime::recover::again", event = "runtime.recover", file.path = %dir.display(), "a record that was unreadable has been read");
        }
        for pod in pods {
            late.remove(&pod.sandbox.id);
            Arc::clone(self).recover_pod(pod).await;
        }
        for pod in late {
            if let Ok(sandbox) = self.store.sandboxes.get(&pod)
                && let Err(error) = self.settle_late(&sandbox).await
            {
                self.problem("pod sandbox", sandbox.dir(), &error);
            }
        }
        Ok(left)
    }

    /// Reconciles late containers of a pod that is already in use.
    async fn settle_late(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> Result<()> {
        let _guard = sandbox.op_lock.write().await;
        match sandbox.shim() {
            Some(shim) => {
                self.settle_starts(sandbox, &shim).await?;
                let state = shim.state().await.map_err(Error::from)?;
                self.settle_ends(sandbox, &state).await;
            }
            None if sandbox.record().boot == self.boot => {
                self.settle_starts_alone(sandbox).await;
                self.account_for(sandbox).await?;
            }
            None => {
                for container in self.store.containers_of(&sandbox.id) {
                    let state = container.record().state;
                    if matches!(state, ContainerState::Starting | ContainerState::Running) {
                        let why = "the machine was rebooted";
                        container.ended(watch::unknown(why), crate::id::now()).await;
                    }
                }
            }
        }
        self.settle_all(sandbox).await;
        Ok(())
    }
}
