//! The steps of a checkpoint of one container: freeze, capture, thaw, archive. Its record has the attempt meanwhile.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use criscope_linux::log_file;
use criscope_linux::rootfs::{self, Rootfs};
use oci_spec::runtime::Spec;

use super::archive::{self, Bounds, Target};
use super::{DIR, DUMP_LOG, EXECS, IMAGES, PAUSE, attempt_resumes, diff, dumps, late};
use crate::Runtime;
use crate::container::{SPEC, log_path, read_spec_json};
use crate::error::{Error, Result, shown};
use crate::oci::{Checkpoint, OciError, OciRuntime};
use crate::sandbox::teardown::blocking;
use crate::store::{Container, ContainerRecord, SandboxRecord};
use criscope_cri::call::steps::RuntimeStep;

/// How much of the end of CRIU's log is searched for an error, and how long the error may be, in bytes.
const LOG_END: u64 = 64 << 10;
const ERROR_LIMIT: usize = 512;

impl Runtime {
    /// Makes the directories of the attempt and pauses the container, unless it is paused already.
    pub(super) async fn freeze(self: &Arc<Self>, container: &Arc<Container>) -> Result<()> {
        let (dir, bundle) = (container.dir().join(DIR), container.dir().join(SPEC));
        blocking(move || make_dir(&dir, &bundle)).await?;
        self.let_execs_end(container).await?;
        if attempt_resumes(container) {
            let handler = self.handler_of(container);
            let pausing = handler.oci.pause(&container.id);
            let program = Some(handler.program());
            let step = RuntimeStep::OciPause;
            self.steps.step(step, program, pausing).await?;
        }
        self.check_execs(container).await
    }

    /// Writes the processes and the changed files of a frozen container into the directory of the attempt.
    pub(super) async fn capture(
        self: &Arc<Self>,
        container: &Arc<Container>,
        until: Instant,
    ) -> Result<()> {
        let handler = self.handler_of(container);
        let dir = container.dir().join(DIR);
        let (oci, id, work) = (handler.oci.clone(), container.id.clone(), dir.clone());
        let dumping = blocking(move || dump(&oci, &id, work, until));
        let program = Some(handler.program());
        let step = RuntimeStep::OciCheckpoint;
        self.steps.step(step, program, dumping).await?;
        let bounds = self.checkpoint_bounds(until);
        let layers = container.record().layers.clone();
        let layers = self.live().images.hold(layers)?;
        let upper = Rootfs::new(container.dir()).upper();
        let copying = blocking(move || diff::write(&upper, layers.paths(), &dir, bounds));
        let step = RuntimeStep::CheckpointFiles;
        self.steps.step(step, None, copying).await
    }

    /// Resumes a container that was captured.
    ///
    /// # Errors
    /// [`Error::State`] if it ran meanwhile.
    pub(super) async fn thaw_captured(&self, container: &Arc<Container>) -> Result<()> {
        let is_paused_by_us = attempt_resumes(container);
        if self.resume(container).await? || !is_paused_by_us {
            return Ok(());
        }
        Err(Error::state(format!(
            "container {} was thawed during its checkpoint, so that its memory and its files do not fit together",
            container.id
        )))
    }

    /// Writes the archive of a container that was captured at this time, in nanoseconds since 1970.
    pub(super) async fn archive(
        self: &Arc<Self>,
        container: &Arc<Container>,
        target: &Target,
        at: i64,
        until: Instant,
    ) -> Result<()> {
        let record = container.record();
        let sandbox = self.store.sandboxes.get(&record.sandbox)?;
        let dumps = dumps::all(&dumps::Facts {
            record: &record,
            name: record.name(&sandbox.record()),
            status: self.container_status_of(container),
            spec: read_spec_json(container).await?,
            at,
        });
        let (target, pod) = (target.clone(), sandbox.record());
        let (dir, bounds) = (container.dir().join(DIR), self.checkpoint_bounds(until));
        let writing = blocking(move || {
            let log = open_log(&pod, &record);
            archive::write(&target, &dir, &dumps, log, bounds)
        });
        let step = RuntimeStep::CheckpointArchive;
        self.steps.step(step, None, writing).await
    }

    pub(super) fn checkpoint_bounds(&self, until: Instant) -> Bounds {
        Bounds {
            until,
            min_free: self.live().images.min_free(),
        }
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
        tracing::warn!(target: "criscope::runtime::checkpoint", event = "runtime.checkpoint", container.id = %container.id, error.message = %shown(&error), "the log of the container is not in its checkpoint");
        None
    })
}

fn dump(oci: &OciRuntime, id: &str, work: PathBuf, until: Instant) -> Result<()> {
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
