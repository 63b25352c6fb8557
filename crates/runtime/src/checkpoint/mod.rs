//! CheckpointContainer: an archive of a running container, as CRI-O, Podman and checkpointctl read it. CheckpointPod makes several at
//! once; see [`pod`].
//!
//! CRIU dumps the processes, called by the OCI runtime. The container is paused from before the dump until its changed files are copied, so
//! that memory and files fit together, and runs on while the archive is written. Its record names the steps to undo if the
//! daemon ends in between.
//!
//! | in the archive | what |
//! |---|---|
//! | `checkpoint/` | CRIU's images |
//! | `dump.log`, `stats-dump` | CRIU's log and statistics |
//! | `config.dump`, `spec.dump`, `status.dump`, `status` | see [`dumps`] |
//! | `container.log` | the log of the container |
//! | `rootfs-diff.tar`, `deleted.files` | changes of its root file system; see [`diff`] |

mod archive;
mod diff;
mod dumps;
mod network;
mod pod;
mod steps;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criscope_linux::rootfs;
use tokio::time::timeout;

use self::archive::Target;
use crate::Runtime;
use crate::error::{Error, Result};
use crate::oci::OciError;
use crate::sandbox::teardown::blocking;
use crate::steps::in_scope;
use crate::store::Container;
use crate::store::record::CheckpointAttempt;
use criscope_cri::call::steps::RuntimeStep;
use criscope_cri::v1::CheckpointContainerRequest;

/// The time for a checkpoint whose request gives none.
const MAX_DUMP_TIME: Duration = Duration::from_secs(300);
/// The directory of an attempt, in the container's.
const DIR: &str = "checkpoint";
/// CRIU's images, in the directory of an attempt and in the archive.
const IMAGES: &str = "checkpoint";
/// CRIU's log.
const DUMP_LOG: &str = "dump.log";
/// How long to wait for execs to end.
const EXECS: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);
/// How long a call whose time is over waits for the rest to be removed. A dump may need longer, and is not waited for.
const ANSWER: Duration = Duration::from_secs(1);

/// Where CRIU writes the images of a container: an argument of the OCI runtime, by which recovery finds a dump that still runs.
pub(crate) fn images_of(container: &Container) -> PathBuf {
    container.dir().join(DIR).join(IMAGES)
}

impl Runtime {
    /// Writes a checkpoint of a running container to a file, and leaves it running.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if checkpoints are off or the OCI runtime cannot make them; [`Error::State`] if the container is not
    /// running, has a running exec, or there is no CRIU; [`Error::Deadline`] after the time of the request; the error of CRIU. No
    /// file is left, and the container runs.
    pub async fn checkpoint_container(
        self: &Arc<Self>,
        request: CheckpointContainerRequest,
    ) -> Result<()> {
        self.check_checkpoints_are_on()?;
        let container = self.store.containers.get(&request.container_id)?;
        let target = Target::new(&request.location, &container.id)?;
        let limit = match u64::try_from(request.timeout) {
            Ok(0) => MAX_DUMP_TIME,
            Ok(seconds) => Duration::from_secs(seconds),
            Err(_) => return Err(Error::invalid("the timeout is negative")),
        };
        let until = Instant::now()
            .checked_add(limit)
            .ok_or_else(|| Error::invalid("the timeout is too long"))?;
        let runtime = Arc::clone(self);
        // Spawned, so that the container is resumed even if the caller cancels, or a dump that is late ends after the answer.
        let work = async move {
            // Not `op_lock`, for which StopContainer would wait.
            let turn = timeout(limit, container.checkpoint_lock.lock()).await;
            let _guard = turn.map_err(|_| late())?;
            runtime.checkpoint(&container, &target, until).await
        };
        match timeout(limit + ANSWER, tokio::spawn(in_scope(work))).await {
            Ok(done) => done?,
            Err(_) => Err(late()),
        }
    }

    fn check_checkpoints_are_on(&self) -> Result<()> {
        if self.live().settings.config.enable_criu {
            return Ok(());
        }
        Err(Error::Unsupported(
            "checkpoints are off: see runtime.enable_criu".to_owned(),
        ))
    }

    async fn checkpoint(
        self: &Arc<Self>,
        container: &Arc<Container>,
        target: &Target,
        until: Instant,
    ) -> Result<()> {
        container.running()?;
        let checked = target.clone();
        blocking(move || checked.check()).await?;
        self.check_programs(container).await?;
        self.begin_checkpoint(container, target).await?;
        let made = self.make(container, target, until).await;
        let ended = self.end_checkpoint(container).await;
        made.and(ended)
    }

    /// Checks that there are CRIU and an OCI runtime which calls it.
    async fn check_programs(&self, container: &Container) -> Result<()> {
        blocking(find_criu).await?;
        let handler = self.handler_of(container);
        if handler.oci.can_checkpoint().await? {
            return Ok(());
        }
        Err(Error::Unsupported(format!(
            "{} cannot make checkpoints: it has no command checkpoint",
            handler.oci.path.display()
        )))
    }

    /// Notes in the record of a container the steps to undo.
    async fn begin_checkpoint(&self, container: &Arc<Container>, target: &Target) -> Result<()> {
        let handler = self.handler_of(container);
        let attempt = CheckpointAttempt {
            draft: target.draft.clone(),
            // A container that was already paused stays paused.
            resume: !handler.oci.is_paused(&container.id).await?,
        };
        let begun = container.update(|record| record.checkpoint = Some(attempt));
        begun.await.map(drop)
    }

    async fn make(
        self: &Arc<Self>,
        container: &Arc<Container>,
        target: &Target,
        until: Instant,
    ) -> Result<()> {
        self.freeze(container).await?;
        self.capture(container, until).await?;
        let at = crate::id::now();
        self.thaw_captured(container).await?;
        self.archive(container, target, at, until).await
    }

    /// Resumes a container that was paused for a checkpoint; returns whether it was still paused.
    async fn resume(&self, container: &Container) -> Result<bool> {
        if !attempt_resumes(container) {
            return Ok(false);
        }
        let handler = self.handler_of(container);
        let was_paused = match handler.oci.is_paused(&container.id).await {
            Ok(true) => {
                let resuming = handler.oci.resume(&container.id);
                let steps = &self.steps;
                let step = steps.step(RuntimeStep::OciResume, Some(handler.program()), resuming);
                // The OCI runtime cannot resume it if CRIU was killed while it froze it.
                match step.await {
                    Err(error) if !self.thaw_itself(container).await => return Err(error.into()),
                    _ => true,
                }
            }
            Ok(false) | Err(OciError::NotFound { .. }) => self.thaw_itself(container).await,
            Err(error) if !self.thaw_itself(container).await => return Err(error.into()),
            Err(_) => true,
        };
        let resumed = container.update(|record| {
            if let Some(attempt) = &mut record.checkpoint {
                attempt.resume = false;
            }
        });
        resumed.await.map(|_| was_paused)
    }

    /// Ends an attempt, whether it has succeeded, failed, or was interrupted: the container runs and can be reached, and only a
    /// complete archive is left. The caller holds the container's `checkpoint_lock`.
    pub(crate) async fn end_checkpoint(&self, container: &Arc<Container>) -> Result<()> {
        let Some(attempt) = container.record().checkpoint.clone() else {
            return Ok(());
        };
        let resumed = self.resume(container).await;
        if matches!(resumed, Ok(true)) {
            tracing::warn!(target: "criscope::runtime::checkpoint", event = "runtime.checkpoint", container.id = %container.id, "a container that was paused for a checkpoint runs again: the checkpoint has failed or was interrupted");
        }
        let unlocked = self.unlock_network(container).await;
        let dir = container.dir().join(DIR);
        let removed = blocking(move || {
            let tree = rootfs::remove_tree(&dir);
            match fs::remove_file(&attempt.draft) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(Error::io("remove", &attempt.draft, error))
                }
                _ => Ok(tree?),
            }
        });
        let removed = removed.await;
        // Kept in the record for the next start of the daemon.
        resumed.map(drop).and(unlocked).and(removed)?;
        let over = container.update(|record| record.checkpoint = None);
        over.await.map(drop)
    }
}

impl Runtime {
    /// Removes what a CRIU that was killed has left in the network of the pod; a dump that ended by itself has left nothing. While
    /// another container of the pod is dumped, the rules are those of that dump too, and its end removes them.
    async fn unlock_network(&self, container: &Container) -> Result<()> {
        let id = container.record().sandbox.clone();
        let Ok(sandbox) = self.store.sandboxes.get(&id) else {
            return Ok(());
        };
        if sandbox.record().host_network() {
            let log = container.dir().join(DIR).join(DUMP_LOG);
            return blocking(move || network::unlock_node(&log)).await;
        }
        let others = self.store.containers_of(&id).into_iter();
        let mut others = others.filter(|other| other.id != container.id);
        if others.any(|other| other.record().checkpoint.is_some()) {
            return Ok(());
        }
        network::unlock(&self.pins, &id).await
    }
}

/// Returns whether a container was paused for its checkpoint, and is to be resumed.
fn attempt_resumes(container: &Container) -> bool {
    let record = container.record();
    record
        .checkpoint
        .as_ref()
        .is_some_and(|attempt| attempt.resume)
}

/// runc calls CRIU by name.
fn find_criu() -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs = std::env::split_paths(&path);
    if dirs.any(|dir| dir.join("criu").is_file()) {
        Ok(())
    } else {
        Err(Error::state("criu is not installed: it is not on PATH"))
    }
}

/// The error after the time of the request.
fn late() -> Error {
    Error::Deadline("the checkpoint was not complete in time".to_owned())
}
