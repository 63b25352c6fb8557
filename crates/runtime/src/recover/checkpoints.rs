//! Checkpoints that the previous daemon was making.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criscope_linux::untrusted;
use opentelemetry_semantic_conventions::attribute as key;

use super::begun::ended;
use crate::Runtime;
use crate::checkpoint::images_of;
use crate::error::{Result, shown};
use crate::sandbox::teardown::blocking;
use crate::store::{Container, Sandbox};
use criscope_telemetry::BackgroundJob;

/// How long a dump may still run before it is killed.
const DUMP_END_TIMEOUT: Duration = Duration::from_secs(300);

const PAUSE: Duration = Duration::from_millis(100);

impl Runtime {
    /// Ends the checkpoints of a pod in the background: their containers run on, and no part of an archive is left.
    pub(super) fn end_checkpoints(self: &Arc<Self>, sandbox: &Sandbox) {
        for container in self.store.containers_of(&sandbox.id) {
            if container.record().checkpoint.is_none() {
                continue;
            }
            let runtime = Arc::clone(self);
            tokio::spawn(async move {
                let job = BackgroundJob::RuntimeCheckpointEnd.begin();
                job.set(key::CONTAINER_ID, container.id.to_string());
                let _guard = container.checkpoint_lock.lock().await;
                let done = match let_end(&container).await {
                    Ok(()) => runtime.end_checkpoint(&container).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = done {
                    job.failed("checkpoint", &shown(&error));
                    runtime.problem("checkpoint", container.dir(), &error);
                }
            });
        }
    }
}

/// Waits for the dump: CRIU must take its code out of the processes again, before they continue.
async fn let_end(container: &Container) -> Result<()> {
    let images = images_of(container);
    let until = Instant::now() + DUMP_END_TIMEOUT;
    loop {
        let (images, late) = (images.clone(), Instant::now() > until);
        let left = blocking(move || Ok(ended(|process| has_argument(process, &images), late)));
        if left.await? == 0 || late {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn has_argument(process: &Path, wanted: &Path) -> bool {
    let arguments = untrusted::read_start(&process.join("cmdline"), 16 << 10).unwrap_or_default();
    let mut all = arguments.split(|byte| *byte == 0);
    all.any(|one| one == wanted.as_os_str().as_bytes())
}
