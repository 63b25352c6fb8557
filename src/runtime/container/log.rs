//! ReopenContainerLog, and the directory of a log.

use std::path::Path;
use std::sync::Arc;

use crate::runtime::Runtime;
use crate::runtime::error::Result;
use crate::runtime::shim_client::Target;
use crate::runtime::store::disk;

/// Mode of directories of logs, as that of the kubelet: agents that ship logs need not run as root.
const DIR_MODE: u32 = 0o755;

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

/// Creates the directory of a log, with a mode that does not depend on the umask. The kubelet creates it beforehand, but other
/// callers may not.
pub(super) fn make_dir(log: &Path) -> Result<()> {
    match log.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => disk::make_dir_with(dir, DIR_MODE),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::testing::with_umask;

    #[test]
    fn the_mode_of_the_directory_does_not_depend_on_the_umask() {
        for umask in [0o000, 0o777] {
            let root = tempfile::tempdir().expect("a directory");
            let log = root.path().join("pod/app/0.log");
            with_umask(umask, || make_dir(&log)).expect("made");
            for dir in ["pod", "pod/app"] {
                let mode = fs::metadata(root.path().join(dir)).expect("made");
                assert_eq!(mode.permissions().mode() & 0o7777, 0o755, "{umask:o}");
            }
        }
        make_dir(Path::new("0.log")).expect("nothing to make");
    }
}
