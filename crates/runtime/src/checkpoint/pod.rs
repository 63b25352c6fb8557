//! CheckpointPod: the archives of several containers of a pod, which are frozen together.
//!
//! All containers are frozen before the first is captured and run on after the last was, so that what they say to each other is in one
//! state. Then the archives are written.
//!
//! | in the directory of the caller | what |
//! |---|---|
//! | `NAME.tar` | the archive of the container NAME, as of CheckpointContainer |
//! | `pod.json` | the sandbox and the list of its containers; written last, so that only a complete checkpoint has it |
//!
//! RestorePod is refused: see `docs/adr/0090-a-pod-is-checkpointed-and-not-restored.md`.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::timeout_at;

use super::archive::Target;
use super::late;
use crate::Runtime;
use crate::call_context::CallContext;
use crate::error::{Error, Result};
use crate::sandbox::teardown::blocking;
use crate::steps::in_scope;
use crate::store::{Container, Sandbox};
use criscope_cri::v1::CheckpointPodRequest;

/// The description of a checkpoint, in its directory.
const MANIFEST: &str = "pod.json";
/// The format of the directory.
const FORMAT_VERSION: u32 = 1;
/// The most time before the caller's deadline that is left for resuming containers and removing what was written.
const MAX_CLEANUP_TIME: Duration = Duration::from_secs(2);
/// The part of the caller's time that is left for it, if that is less.
const CLEANUP_SHARE: u32 = 10;

/// A container, and where its archive is to be.
#[derive(Debug)]
struct Part {
    container: Arc<Container>,
    name: String,
    target: Target,
    file: PathBuf,
}

impl Runtime {
    /// Writes a checkpoint of the named containers of a pod into a directory, and leaves them running.
    ///
    /// # Errors
    /// Those of [`Self::checkpoint_container`]; [`Error::Invalid`] for a call without a deadline, with options, without containers or with
    /// those of another pod, and for a directory that is not there or not empty. Nothing is left in the directory, and the containers run.
    pub async fn checkpoint_pod(
        self: &Arc<Self>,
        request: CheckpointPodRequest,
        call: &CallContext,
    ) -> Result<()> {
        self.check_checkpoints_are_on()?;
        let Some(deadline) = call.deadline() else {
            return Err(Error::invalid("the call has no deadline"));
        };
        if let Some(key) = request.options.keys().min() {
            return Err(Error::invalid(format!("unknown option {key:?}")));
        }
        let sandbox = self.store.sandboxes.get(&request.pod_sandbox_id)?;
        sandbox.ready()?;
        let dir = PathBuf::from(&request.output_path);
        let parts = self.parts(&sandbox, &request.container_ids, &dir)?;
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        let until = deadline - MAX_CLEANUP_TIME.min(left / CLEANUP_SHARE);
        let runtime = Arc::clone(self);
        // Spawned, so that the containers are resumed even if the caller cancels, or a dump that is late ends after the answer.
        let work = async move {
            let mut guards = Vec::new();
            for part in &parts {
                let turn = timeout_at(until, part.container.checkpoint_lock.lock()).await;
                guards.push(turn.map_err(|_| late())?);
            }
            let until = until.into_std();
            let made = runtime.make_pod_checkpoint(&sandbox, &parts, &dir, until);
            made.await
        };
        let done = tokio::spawn(in_scope(work));
        match timeout_at(deadline, done).await {
            Ok(done) => done?,
            Err(_) => Err(late()),
        }
    }

    /// The named containers in the order of their ids: two calls for one pod take turns.
    fn parts(&self, sandbox: &Sandbox, ids: &[String], dir: &Path) -> Result<Vec<Part>> {
        if ids.is_empty() {
            return Err(Error::invalid("no containers are named"));
        }
        let (mut parts, mut names) = (Vec::new(), BTreeSet::new());
        for id in ids {
            let container = self.store.containers.get(id)?;
            let record = container.record();
            if record.sandbox != sandbox.id {
                return Err(Error::invalid(format!(
                    "container {} is not of pod sandbox {}",
                    container.id, sandbox.id
                )));
            }
            container.running()?;
            let name = record.config.metadata.clone().unwrap_or_default().name;
            // The archives are told apart by it, as are the containers of a restore.
            if !names.insert(name.clone()) {
                return Err(Error::invalid(format!("container {name} is named twice")));
            }
            let file = dir.join(format!("{name}.tar"));
            let target = Target::new(&file.to_string_lossy(), &container.id)?;
            parts.push(Part {
                container,
                name,
                target,
                file,
            });
        }
        parts.sort_by(|a, b| a.container.id.cmp(&b.container.id));
        Ok(parts)
    }

    async fn make_pod_checkpoint(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        parts: &[Part],
        dir: &Path,
        until: Instant,
    ) -> Result<()> {
        let checked = dir.to_owned();
        blocking(move || check_empty(&checked)).await?;
        for part in parts {
            part.container.running()?;
            self.check_programs(&part.container).await?;
        }
        let made = self.capture_pod(sandbox, parts, dir, until).await;
        let mut ended = Ok(());
        for part in parts {
            ended = self.end_checkpoint(&part.container).await.and(ended);
        }
        let done = made.and(ended);
        if done.is_ok() {
            return done;
        }
        let files = parts.iter().map(|part| part.file.clone());
        let files: Vec<_> = files.chain([dir.join(MANIFEST)]).collect();
        done.and(blocking(move || remove_files(&files)).await)
    }

    async fn capture_pod(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        parts: &[Part],
        dir: &Path,
        until: Instant,
    ) -> Result<()> {
        for part in parts {
            self.begin_checkpoint(&part.container, &part.target).await?;
        }
        for part in parts {
            self.freeze(&part.container).await?;
        }
        for part in parts {
            self.capture(&part.container, until).await?;
        }
        let at = crate::id::now();
        for part in parts {
            self.thaw_captured(&part.container).await?;
        }
        for part in parts {
            let (container, target) = (&part.container, &part.target);
            self.archive(container, target, at, until).await?;
        }
        let (text, dir) = (manifest(sandbox, parts, at), dir.to_owned());
        blocking(move || write_manifest(&dir, &text)).await
    }
}

fn manifest(sandbox: &Sandbox, parts: &[Part], at: i64) -> Vec<u8> {
    let record = sandbox.record();
    let containers = parts.iter().map(|part| {
        json!({
            "name": part.name,
            "id": part.container.id,
            "archive": part.file.file_name().map(|name| name.to_string_lossy()),
        })
    });
    let manifest = json!({
        "formatVersion": FORMAT_VERSION,
        "sandboxId": sandbox.id,
        "runtimeHandler": record.handler,
        "checkpointedAt": at,
        "config": record.config,
        "containers": containers.collect::<Vec<_>>(),
    });
    manifest.to_string().into_bytes()
}

/// Checks the directory of the caller, before anything is paused.
fn check_empty(dir: &Path) -> Result<()> {
    let path = dir.display();
    if !dir.is_absolute() || !dir.is_dir() {
        return Err(Error::invalid(format!(
            "the output path {path} is no absolute path of a directory"
        )));
    }
    let mut entries = fs::read_dir(dir).map_err(|error| Error::io("read", dir, error))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(Error::invalid(format!(
            "the output path {path} is not empty"
        ))),
    }
}

/// Writes the description next to its place and renames it.
fn write_manifest(dir: &Path, text: &[u8]) -> Result<()> {
    let (path, draft) = (dir.join(MANIFEST), dir.join(".pod.json"));
    let written = (|| {
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&draft, &path)?;
        File::open(dir)?.sync_all()
    })();
    written.map_err(|error| {
        let _not_there_yet = fs::remove_file(&draft);
        Error::io("write", &path, error)
    })
}

fn remove_files(files: &[PathBuf]) -> Result<()> {
    for file in files {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io("remove", file, error));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_exists_and_is_empty() {
        let dir = tempfile::tempdir().expect("dir");
        check_empty(dir.path()).expect("empty");
        let missing = dir.path().join("missing");
        for path in [Path::new("relative"), Path::new(""), missing.as_path()] {
            let error = check_empty(path).expect_err("no directory").to_string();
            assert!(error.contains("no absolute path of a directory"), "{error}");
        }
        write_manifest(dir.path(), b"{}").expect("written");
        let error = check_empty(dir.path()).expect_err("a file").to_string();
        assert!(error.ends_with("is not empty"), "{error}");
        write_manifest(dir.path(), b"{}").expect("replaced");
        remove_files(&[dir.path().join(MANIFEST), missing]).expect("removed");
        check_empty(dir.path()).expect("empty again");
    }
}
