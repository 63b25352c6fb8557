//! ReopenContainerLog, and the path of a log.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use criscope_linux::log_file::{self, LogFileError};

use crate::Runtime;
use crate::error::{Error, Result};
use crate::sandbox::teardown::blocking;
use crate::shim_client::Target;
use crate::store::{ContainerRecord, SandboxRecord};

impl Runtime {
    /// Reopens the log of a running container after the kubelet has rotated it.
    ///
    /// # Errors
    /// If the container is not running, or the log cannot be opened; then output continues to the old file.
    pub async fn reopen_container_log(self: &Arc<Self>, id: &str) -> Result<()> {
        let container = self.store.containers.get(id)?;
        container.running()?;
        let sandbox = self.store.sandboxes.get(&container.record().sandbox)?;
        let log = path_of(&sandbox.record(), &container.record());
        // The shim checks the log too, and its error would not say that the caller has to change something.
        blocking(move || {
            if let Some(log) = log {
                log_file::read(&log)?;
            }
            Ok(())
        })
        .await?;
        let shim = self.shim_of(&sandbox).await?;
        let target = Target {
            container: container.id.clone(),
            exec: String::new(),
        };
        Ok(shim.reopen_log(target).await?)
    }
}

/// The path of a container's log, in which no link is followed; `None` without a log.
pub(crate) fn path_of(pod: &SandboxRecord, container: &ContainerRecord) -> Option<PathBuf> {
    let log = &container.config.log_path;
    let directory = pod.log_directory.as_ref().filter(|_| !log.is_empty())?;
    // Without `.`, which is no name of a file.
    Some(directory.join(Path::new(log).components().collect::<PathBuf>()))
}

/// Creates the directory of a log, which the kubelet does beforehand and other callers may not. Checks the file in the place of
/// the log; the shim, which opens it, does so again.
pub(super) fn prepare(log: &Path) -> Result<()> {
    log_file::make_directory(log)?;
    Ok(log_file::read(log).map(drop)?)
}

impl From<LogFileError> for Error {
    fn from(error: LogFileError) -> Self {
        match error {
            LogFileError::Io {
                action,
                path,
                source,
            } => Self::io(action, &path, source),
            refused => Self::state(refused.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::testing::with_umask;
    use criscope_cri::v1;

    #[test]
    fn the_mode_of_the_directory_does_not_depend_on_the_umask() {
        for umask in [0o000, 0o777] {
            let root = tempfile::tempdir().expect("a directory");
            let log = root.path().join("pod/app/0.log");
            with_umask(umask, || prepare(&log)).expect("made");
            for dir in ["pod", "pod/app"] {
                let mode = fs::metadata(root.path().join(dir)).expect("made");
                assert_eq!(mode.permissions().mode() & 0o7777, 0o755, "{umask:o}");
            }
        }
    }

    #[test]
    fn the_log_is_below_the_directory_that_was_found_when_the_sandbox_was_made() {
        let given = v1::PodSandboxConfig {
            log_directory: "/nowhere/pod".to_owned(),
            ..Default::default()
        };
        let mut pod = SandboxRecord {
            config: given,
            log_directory: Some("/disk/pod".into()),
            ..SandboxRecord::default()
        };
        let mut container = ContainerRecord {
            log: "/nowhere/pod/./app/0.log".into(),
            ..ContainerRecord::default()
        };
        container.config.log_path = "./app/./0.log".to_owned();
        let log = path_of(&pod, &container);
        assert_eq!(log, Some("/disk/pod/app/0.log".into()));
        pod.log_directory = None;
        assert_eq!(path_of(&pod, &container), None);
        pod.log_directory = Some("/disk/pod".into());
        container.config.log_path = String::new();
        assert_eq!(path_of(&pod, &container), None);
    }
}
