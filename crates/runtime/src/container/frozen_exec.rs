//! Commands in a frozen container. The OCI runtime refuses them, or, if the cgroup is frozen that is above the container's, hangs with
//! them. A probe fails at its deadline instead, as in a program that hangs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::exec_sync::{ExecKind, Running, exceeded};
use crate::Runtime;
use crate::call_context::CallContext;
use crate::error::{Error, Result};
use crate::steps::in_scope;
use crate::store::Container;

/// How long a command without a time limit waits for a frozen container: OCI runtimes freeze one for some milliseconds to signal or
/// update it.
const THAWED_WITHIN: Duration = Duration::from_secs(1);

/// The interval at which a frozen container is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl Runtime {
    /// Starts a command without input and terminal in a container, which may be frozen for as long as the command may take.
    ///
    /// # Errors
    /// [`Error::Deadline`] if the container is frozen at the end of `limit`; a command that is being started then is killed. Those of
    /// [`Self::begin_exec`].
    pub(super) async fn begin_limited_exec(
        self: &Arc<Self>,
        container: &Arc<Container>,
        command: Vec<String>,
        limit: Duration,
        call: &CallContext,
    ) -> Result<Running> {
        let began = Instant::now();
        if let Some(error) = self.wait_for_thaw(container, limit, call).await? {
            return Err(late(&error, limit));
        }
        let (runtime, own, context) = (Arc::clone(self), Arc::clone(container), call.clone());
        let mut beginning = tokio::spawn(in_scope(async move {
            runtime
                .start_exec(&own, command, ExecKind::Sync, &context)
                .await
        }));
        loop {
            let left = limit.saturating_sub(began.elapsed()).max(LOOK_AGAIN);
            if let Ok(begun) = timeout(left, &mut beginning).await {
                return begun?;
            }
            // Frozen in the meantime. On a busy node the OCI runtime may also just be slow.
            if let Some(error) = self.frozen(container).await {
                tokio::spawn(in_scope(end_late(beginning)));
                return Err(late(&error, limit));
            }
        }
    }

    /// Checks that a command can be started in a container, which is not frozen.
    ///
    /// # Errors
    /// [`Error::State`] if it stays frozen.
    pub(super) async fn check_thawed(
        &self,
        container: &Container,
        call: &CallContext,
    ) -> Result<()> {
        match self.wait_for_thaw(container, THAWED_WITHIN, call).await? {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Waits until a container is not frozen. Returns the error that says so if it is frozen for longer than `limit`.
    async fn wait_for_thaw(
        &self,
        container: &Container,
        limit: Duration,
        call: &CallContext,
    ) -> Result<Option<Error>> {
        let began = Instant::now();
        loop {
            match self.frozen(container).await {
                None => return Ok(None),
                error if began.elapsed() >= limit => return Ok(error),
                Some(_) => {}
            }
            let pause = async {
                sleep(LOOK_AGAIN).await;
                Ok(())
            };
            call.wait(pause).await?;
        }
    }

    /// The error for a command in a frozen container; `None` if the container runs. During a checkpoint the OCI runtime refuses the
    /// command at once: a probe that fails because of a checkpoint would restart the container.
    async fn frozen(&self, container: &Container) -> Option<Error> {
        if container.record().checkpoint.is_some() {
            return None;
        }
        let by = self.frozen_by(container).await?;
        container.is_running().then(|| is_frozen(container, &by))
    }
}

fn is_frozen(container: &Container, by: &Path) -> Error {
    Error::state(format!(
        "container {} is frozen: cgroup {}",
        container.id,
        by.display()
    ))
}

fn late(frozen: &Error, limit: Duration) -> Error {
    Error::Deadline(format!("{}: {frozen}", exceeded(Some(limit))))
}

/// Ends a command whose caller has its answer already.
async fn end_late(beginning: JoinHandle<Result<Running>>) {
    if let Ok(Ok(running)) = beginning.await {
        running.kill().await;
        running.forget().await;
    }
}
