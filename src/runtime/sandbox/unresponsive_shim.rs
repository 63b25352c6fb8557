//! A shim that hangs, stopped by somebody or stuck in the kernel: its pod can be stopped and removed all the same.

use std::sync::Arc;

use crate::runtime::Runtime;
use crate::runtime::error::{Error, Result};
use crate::runtime::metrics::ShimEnd;
use crate::runtime::shim_client;
use crate::runtime::store::Sandbox;

impl Runtime {
    /// Asks the shim of a pod that is to be stopped whether it is well. One that does not answer is killed, and its
    /// containers are accounted for and ended as if it had died by itself: nothing of them could be done by way of it.
    ///
    /// # Errors
    /// It cannot be connected to for another reason, or does not end.
    pub(super) async fn end_hanging_shim(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> Result<()> {
        let answer = match self.live_shim(sandbox).await {
            Ok(Some(shim)) => shim.state().await.map(drop).map_err(Error::from),
            other => other.map(drop),
        };
        match answer {
            Err(Error::Process(error)) if error.is_unusable() => {}
            // It died just now: whoever watches it sees to what follows.
            Err(Error::Process(error)) if matches!(*error, shim_client::Error::Gone { .. }) => {
                return Ok(());
            }
            other => return other,
        }
        // Not for whoever watches it: what follows is done here, and waited for.
        sandbox.set_shim(None);
        self.kill_shim(&sandbox.id).await?;
        self.shim_lost(sandbox).await;
        Ok(())
    }

    /// Kills a shim that does not answer.
    pub(super) async fn kill_shim(&self, sandbox: &str) -> Result<()> {
        tracing::warn!(event = "runtime.shim", sandbox.id = %sandbox, "the shim of a pod does not answer, or not so that it can be understood, and is killed");
        shim_client::end(&self.settings.paths.pod(sandbox)).await?;
        self.steps.shim_lost(ShimEnd::Killed);
        Ok(())
    }
}
