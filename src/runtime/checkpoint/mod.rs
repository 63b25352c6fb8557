//! CheckpointContainer: an archive of a running container, as CRI-O, Podman and checkpointctl read it.
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

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use criscope_linux::log_file;
use criscope_linux::rootfs::{self, Rootfs};
use oci_spec::runtime::Spec;
use tokio::time::timeout;

use self::archive::{Bounds, Target};
use crate::call::steps::RuntimeStep;
use crate::cri::v1::CheckpointContainerRequest;
use crate::runtime::Runtime;
use crate::runtime::container::{SPEC, log_path, read_spec_json};
use crate::runtime::error::{Error, Result, shown};
use crate::runtime::handler::Handler;
use crate::runtime::oci::{Checkpoint, OciError};
use crate::runtime::sandbox::teardown::blocking;
use crate::runtime::steps::in_scope;
use crate::runtime::store::record::CheckpointAttempt;
use crate::runtime::store::{Container, ContainerRecord, SandboxRecord};

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
/// How much of the end of CRIU's log is searched for an error, and how long the error may be, in bytes.
const LOG_END: u64 = 64 << 10;
const ERROR_LIMIT: usize = 512;

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
        if !self.live().settings.config.enable_criu {
            return Err(Error::Unsupported(
                "checkpoints are off: see runtime.enable_criu".to_owned(),
            ));
        }
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

    async fn checkpoint(
        self: &Arc<Self>,
        container: &Arc<Container>,
        target: &Target,
        until: Instant,
    ) -> Result<()> {
        container.running()?;
        let handler = self.handler_of(container);
        let checked = target.clone();
        blocking(move || checked.check().and_then(|()| find_criu())).await?;
        if !handler.oci.can_checkpoint().await? {
            return Err(Error::Unsupported(format!(
                "{} cannot make checkpoints: it has no command checkpoint",
                handler.oci.path.display()
            )));
        }
        let attempt = CheckpointAttempt {
            draft: target.draft.clone(),
            // A container that was already paused stays paused.
            resume: !handler.oci.is_paused(&container.id).await?,
        };
        let begun = container.update(|record| record.checkpoint = Some(attempt));
        begun.await?;
        let made = self.make(container, &handler, target, until).await;
        let ended = self.end_checkpoint(container).await;
        made.and(ended)
    }

    async fn make(
        self: &Arc<Self>,
        container: &Arc<Container>,
        handler: &Handler,
        target: &Target,
        until: Instant,
    ) -> Result<()> {
        let dir = container.dir().join(DIR);
        let (made, bundle) = (dir.clone(), container.dir().join(SPEC));
        blocking(move || make_dir(&made, &bundle)).await?;
        let (steps, program) = (&self.steps, Some(handler.program()));
        let record = container.record();
        self.let_execs_end(container).await?;
        if attempt_resumes(container) {
            let pausing = handler.oci.pause(&container.id);
            steps.step(RuntimeStep::OciPause, program, pausing).await?;
        }
        self.check_execs(container).await?;
        let (oci, id, work) = (handler.oci.clone(), container.id.clone(), dir.clone());
        let dumping = blocking(move || dump(&oci, &id, work, until));
        steps
            .step(RuntimeStep::OciCheckpoint, program, dumping)
            .await?;
        let bounds = Bounds {
            until,
            min_free: self.live().images.min_free(),
        };
        let layers = self.live().images.hold(record.layers.iter().cloned())?;
        let (upper, to) = (Rootfs::new(container.dir()).upper(), dir.clone());
        let copying = blocking(move || diff::write(&upper, layers.paths(), &to, bounds));
        steps
            .step(RuntimeStep::CheckpointFiles, None, copying)
            .await?;
        let at = crate::runtime::id::now();
        let is_paused_by_us = attempt_resumes(container);
        if !self.resume(container).await? && is_paused_by_us {
            return Err(Error::state(format!(
                "container {} was thawed during its checkpoint, so that its memory and its files do not fit together",
                container.id
            )));
        }
        let sandbox = self.store.sandboxes.get(&record.sandbox)?;
        let dumps = dumps::all(&dumps::Facts {
            record: &record,
            name: record.name(&sandbox.record()),
            status: self.container_status_of(container),
            spec: read_spec_json(container).await?,
            at,
        });
        let (target, pod) = (target.clone(), sandbox.record());
        let writing = blocking(move || {
            let log = open_log(&pod, &record);
            archive::write(&target, &dir, &dumps, log, bounds)
        });
        steps
            .step(RuntimeStep::CheckpointArchive, None, writing)
            .await
    }

    /// Waits for short execs to end, such as probes.
    async fn let_execs_end(self: &Arc<Self>, container: &Container) -> Result<()> {
        let late = Instant::now() + EXECS;
        while self.execs(container).await? > 0 && Instant::now() < late {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// CRIU dumps the descendants of the init, and refuses to leave out a process of the container's cgroup. No exec can begin while
    /// the container is paused.
    async fn check_execs(self: &Arc<Self>, container: &Container) -> Result<()> {
        match self.execs(container).await? {
            0 => Ok(()),
            count => Err(Error::state(format!(
                "container {} has {count} running exec processes, which cannot be in a checkpoint",
                container.id
            ))),
        }
    }

    /// The number of running execs.
    async fn execs(self: &Arc<Self>, container: &Container) -> Result<usize> {
        let sandbox = self.store.sandboxes.get(&container.record().sandbox)?;
        let state = self.shim_of(&sandbox).await?.state().await?;
        let running = state.processes.iter().filter(|process| {
            let target = &process.target;
            target.container == container.id && !target.exec.is_empty() && process.exit.is_none()
        });
        Ok(running.count())
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
            tracing::warn!(event = "runtime.checkpoint", container.id = %container.id, "a container that was paused for a checkpoint runs again: the checkpoint has failed or was interrupted");
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

/// Makes the directories of an attempt. CRIU's code in the processes of the container writes to the log too.
fn make_dir(dir: &Path, bundle: &Path) -> Result<()> {
    rootfs::remove_tree(dir)?;
    let images = dir.join(IMAGES);
    let mut builder = fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(&images);
    made.map_err(|error| Error::io("make", &images, error))?;
    let text = fs::read(bundle).map_err(|error| Error::io("read", bundle, error))?;
    let spec: Spec =
        serde_json::from_slice(&text).map_err(|error| Error::io("read", bundle, error))?;
    let label = spec
        .linux()
        .as_ref()
        .and_then(|linux| linux.mount_label().clone());
    if let Some(label) = label.filter(|label| !label.is_empty()) {
        let log = dir.join(DUMP_LOG);
        fs::write(&log, "").map_err(|error| Error::io("write", &log, error))?;
        rootfs::relabel(&log, &label)?;
    }
    Ok(())
}

/// Opens the log of a container; `None` if there is none. The pod may have put anything in its place: that is left out.
fn open_log(pod: &SandboxRecord, container: &ContainerRecord) -> Option<fs::File> {
    let log = log_path(pod, container)?;
    log_file::read(&log).unwrap_or_else(|error| {
        let error = Error::from(error);
        tracing::warn!(event = "runtime.checkpoint", container.id = %container.id, error.message = %shown(&error), "the log of the container is not in its checkpoint");
        None
    })
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

fn dump(
    oci: &crate::runtime::oci::OciRuntime,
    id: &str,
    work: PathBuf,
    until: Instant,
) -> Result<()> {
    let options = Checkpoint {
        images: work.join(IMAGES),
        work,
        until,
    };
    oci.checkpoint(id, &options).map_err(|error| match error {
        OciError::Timeout { .. } => late(),
        OciError::Failed {
            verb,
            status,
            message,
        } => {
            let message = match criu_error(&options.work.join(DUMP_LOG)) {
                Some(why) => format!("{message}: {why}"),
                None => message,
            };
            let failed = OciError::Failed {
                verb,
                status,
                message,
            };
            failed.into()
        }
        other => other.into(),
    })
}

/// The first error in the log of CRIU: those after it are its consequences.
fn criu_error(log: &Path) -> Option<String> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut file = fs::File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_END)))
        .ok()?;
    let mut text = Vec::new();
    file.take(LOG_END).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| line.contains("Error ("))?;
    let at = line.find("Error (")?;
    let mut why = line[at..].trim().to_owned();
    why.truncate(why.floor_char_boundary(ERROR_LIMIT));
    Some(why)
}

/// The error after the time of the request.
fn late() -> Error {
    Error::Deadline("the checkpoint was not complete in time".to_owned())
}
