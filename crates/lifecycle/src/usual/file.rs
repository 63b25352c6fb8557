//! The file `usual.json` in the directory of the journal. It is replaced atomically, and ignored if it is damaged.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, spawn_blocking};

use super::UsualDurations;
use crate::Stories;

/// Largest file that is read, in bytes: ten times the size with all keys.
const MAX_FILE_BYTES: u64 = 1 << 20;

const FILE_NAME: &str = "usual.json";

/// Reads the memory from this directory. Blocks.
///
/// # Errors
/// If the file cannot be read or is damaged; a missing file is an empty memory.
pub(crate) fn load(dir: &Path) -> io::Result<UsualDurations> {
    let file = match File::open(dir.join(FILE_NAME)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(UsualDurations::default());
        }
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Writes the memory into this directory (mode 0700), which is created if it is missing. Blocks.
///
/// # Errors
/// If it cannot be written.
pub(super) fn save(dir: &Path, usual: &UsualDurations) -> io::Result<()> {
    let text = serde_json::to_vec(usual)?;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)?;
    let new = dir.join("usual.json.new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(&new)?.write_all(&text)?;
    fs::rename(new, dir.join(FILE_NAME))
}

/// Shortest time between two writes.
const WRITE_INTERVAL: Duration = Duration::from_secs(60);

/// Writes the memory now and then, in the background. Unwritten samples are learned again.
#[derive(Debug)]
pub(crate) struct UsualFile {
    dir: PathBuf,
    written: Instant,
    writes: Option<JoinHandle<()>>,
}

impl UsualFile {
    /// Reads the file in this directory into the store of `stories`.
    pub(crate) async fn load(dir: &Path, stories: &Stories) -> Self {
        let read = spawn_blocking({
            let dir = dir.to_owned();
            move || load(&dir)
        });
        match read.await {
            Ok(Ok(usual)) => stories.store().usual.restore(usual),
            Ok(Err(error)) => tracing::warn!(
                target: "criscope::lifecycle",
                event = "story.usual",
                file.directory = %dir.display(),
                error.message = %error,
                "what is usual on this node cannot be read: it is learned anew"
            ),
            Err(_) => {}
        }
        Self {
            dir: dir.to_owned(),
            written: Instant::now(),
            writes: None,
        }
    }

    /// Writes the memory if it has changed and the last write is a while ago. A write that hangs is not repeated.
    pub(crate) fn tick(&mut self, stories: &Stories) {
        let busy = self
            .writes
            .as_ref()
            .is_some_and(|write| !write.is_finished());
        if busy || self.written.elapsed() < WRITE_INTERVAL {
            return;
        }
        if let Some(usual) = stories.store().usual.take_changed() {
            self.written = Instant::now();
            self.writes = Some(self.write(usual));
        }
    }

    /// Waits for a write in progress, and writes later changes.
    pub(crate) async fn close(mut self, stories: &Stories) {
        if let Some(writes) = self.writes.take() {
            let _ = writes.await;
        }
        let changed = stories.store().usual.take_changed();
        if let Some(usual) = changed {
            let _ = self.write(usual).await;
        }
    }

    fn write(&self, usual: UsualDurations) -> JoinHandle<()> {
        let dir = self.dir.clone();
        spawn_blocking(move || {
            if let Err(error) = save(&dir, &usual) {
                tracing::warn!(
                    target: "criscope::lifecycle",
                    event = "story.usual",
                    file.directory = %dir.display(),
                    error.message = %error,
                    "what is usual on this node cannot be written"
                );
            }
        })
    }
}
