//! ReopenContainerLog, and the folder of a log.

use std::path::Path;
use std::sync::Arc;

use crate::runtime::Runtime;
use crate::runtime::error::{Error, Result};
use crate::runtime::shim_client::Target;

impl Runtime {
    /// Opens the log of a running container again under its name, after the kubelet has renamed it.
    ///
    /// # Errors
    /// It does not run, or the log cannot be opened; then the old file goes on being written.
    pub async fn reopen_container_log(self: &Arc<Self>, id: &str) -> Result<()> {
        let container = self.store.containers.get(id)?;
        container.running()?;
        let sandbox = self.store.sandboxes.get(&container.record().sandbox)?;
        let shim = self.shim_of(&sandbox).await?;
        let target = Target {
            container: container.id.clone(),
            exec: String::new(),
        };
        Ok(shim.reopen_log(target).await?)
    }
}

/// Makes the folder of a log. The kubelet makes it before; other callers may not.
pub(super) fn make_dir(log: &Path) -> Result<()> {
    match log.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => {
            std::fs::create_dir_all(dir).map_err(|e| Error::io("make", dir, e))
        }
        _ => Ok(()),
    }
}
