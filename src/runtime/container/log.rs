//! ReopenContainerLog, and the directory of a log.

use std::path::Path;
use std::sync::Arc;

use crate::runtime::Runtime;
use crate::runtime::error::{Error, Result};
use crate::runtime::shim_client::Target;

impl Runtime {
    /// Reopens the log of a running container after the kubelet has rotated it.
    ///
    /// # Errors
    /// If the container is not running, or the log cannot be opened; then output continues to the old file.
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

/// Creates the directory of a log. The kubelet creates it beforehand, but other callers may not.
pub(super) fn make_dir(log: &Path) -> Result<()> {
    match log.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => {
            std::fs::create_dir_all(dir).map_err(|e| Error::io("make", dir, e))
        }
        _ => Ok(()),
    }
}
