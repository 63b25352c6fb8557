//! Kills hanging shims, stopped by a signal or stuck in the kernel, so that their pods can be stopped and removed.

use std::sync::Arc;

use crate::Runtime;
use crate::error::{Error, Result};
use crate::metrics::ShimEnd;
use crate::shim_client;
use crate::store::Sandbox;

impl Runtime {
    /// Probes the shim of a pod before the pod is stopped. A shim that does not respond is killed, and its containers are
    /// accounted for and killed as if it had died unexpectedly, because it could not stop them.
    ///
    /// # Errors
    /// If the connection fails for another reason, or the shim survives the kill.
    pub(super) async fn kill_unresponsive_shim(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
    ) -> Result<()> {
        let answer = match self.live_shim(sandbox).await {
            Ok(Some(shim)) => shim.state().await.map(drop).map_err(Error::from),
            other => other.map(drop),
        };
        match answer {
            Err(Error::Process(error)) if error.is_unusable() => {}
            // The shim has just died: the watcher of its events handles that.
            Err(Error::Process(error)) if matches!(*error, shim_client::Error::Gone { .. }) => {
                return Ok(());
            }
            other => return other,
        }
        // Hidden from the watcher of its events: the loss is handled here, synchronously.
        sandbox.set_shim(None);
        self.kill_shim(&sandbox.id).await?;
        self.shim_lost(sandbox).await;
        Ok(())
    }

    /// Kills a shim that does not respond.
    pub(super) async fn kill_shim(&self, sandbox: &str) -> Result<()> {
        tracing::warn!(target: "criscope::runtime::sandbox::unresponsive_shim", event = "runtime.shim", criscope.sandbox.id = %sandbox, "killing the shim of a pod: no answer, or none that can be decoded");
        shim_client::end(&self.settings.paths.pod(sandbox)).await?;
        self.steps.shim_lost(ShimEnd::Killed);
        Ok(())
    }
}
