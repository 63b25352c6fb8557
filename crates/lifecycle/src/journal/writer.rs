//! Writes the journal on a separate thread: a hanging disk blocks no other thread.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;

use super::{JournalFiles, JournalLine};
use criscope_telemetry::Drops;
use criscope_telemetry::drops::DropReason;

/// Length of the queue, in lines.
const QUEUE_LEN: usize = 1024;
/// Upper bound of bytes per write.
const MAX_BATCH_LEN: usize = 64 << 10;
/// Minimum interval between two warnings about a failing disk.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum interval between two attempts to open the file.
const REOPEN_INTERVAL: Duration = Duration::from_secs(1);
/// Stack of the thread, in bytes.
const STACK_LEN: usize = 128 << 10;

/// The queue of the writing thread.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    lines: SyncSender<Vec<u8>>,
    thread: JoinHandle<()>,
    drops: Arc<Drops>,
}

impl JournalWriter {
    /// Starts the thread, which creates the directory (mode 0700) and the file if they are missing.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(files: JournalFiles, drops: &Arc<Drops>) -> io::Result<Self> {
        Self::spawn(JournalDisk::new(files, Arc::clone(drops)), drops)
    }

    fn spawn(mut disk: JournalDisk, drops: &Arc<Drops>) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(QUEUE_LEN);
        let thread = thread::Builder::new()
            .name("journal".to_owned())
            .stack_size(STACK_LEN)
            .spawn(move || disk.run(&waiting))?;
        Ok(Self {
            lines,
            thread,
            drops: Arc::clone(drops),
        })
    }

    /// A journal that writes to this file.
    #[cfg(test)]
    pub(crate) fn start_in(file: &std::path::Path, drops: &Arc<Drops>) -> io::Result<Self> {
        let dir = file.parent().unwrap_or(file).to_owned();
        let max_bytes = super::MAX_FILE_LEN;
        let mut disk = JournalDisk::new(JournalFiles { dir, max_bytes }, Arc::clone(drops));
        disk.file = Some(OpenOptions::new().append(true).open(file)?);
        disk.opened = Some(Instant::now());
        Self::spawn(disk, drops)
    }

    /// Queues a line. Never waits: if the queue is full the line is dropped and counted.
    pub(crate) fn write(&self, line: &JournalLine<'_>) {
        let Ok(mut text) = serde_json::to_vec(line) else {
            return;
        };
        text.push(b'\n');
        if self.lines.try_send(text).is_err() {
            self.drops.add(DropReason::JournalQueueFull, 1);
        }
    }

    /// Waits until the queue is written. Blocks.
    pub(crate) fn close(self) {
        drop(self.lines);
        // A panic of the thread has been reported.
        let _ = self.thread.join();
    }
}

/// The current file.
struct JournalDisk {
    files: JournalFiles,
    drops: Arc<Drops>,
    file: Option<File>,
    size: u64,
    /// Set if the last line may be incomplete.
    torn: bool,
    opened: Option<Instant>,
    /// Time of the last warning.
    warned: Option<Instant>,
}

impl JournalDisk {
    fn new(files: JournalFiles, drops: Arc<Drops>) -> Self {
        Self {
            files,
            drops,
            file: None,
            size: 0,
            torn: false,
            opened: None,
            warned: None,
        }
    }

    fn run(&mut self, lines: &Receiver<Vec<u8>>) {
        while let Ok(mut batch) = lines.recv() {
            while batch.len() < MAX_BATCH_LEN
                && let Ok(line) = lines.try_recv()
            {
                batch.extend_from_slice(&line);
            }
            let mut written = 0;
            if let Err(error) = self.write(&batch, &mut written) {
                // Lines written before the disk was full are not lost, only the incomplete one.
                let left = batch.iter().skip(written);
                let lost = left.filter(|byte| **byte == b'\n').count();
                self.drops.add(DropReason::JournalFailed, lost);
                self.warn(&error);
            }
        }
    }

    /// Writes a batch. Adds the number of bytes written to `written`, also on errors.
    fn write(&mut self, batch: &[u8], written: &mut usize) -> io::Result<()> {
        if self.file.is_none() {
            self.open()?;
        }
        if self.size > 0 && self.size + batch.len() as u64 > self.files.max_bytes {
            self.rotate()?;
            self.open()?;
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        if self.torn {
            file.write_all(b"\n")?;
            self.torn = false;
        }
        let result = write_counted(file, batch, written);
        self.torn = result.is_err();
        if self.torn {
            self.file = None;
        }
        self.size += *written as u64;
        result
    }

    fn open(&mut self) -> io::Result<()> {
        if self.opened.is_some_and(|at| at.elapsed() < REOPEN_INTERVAL) {
            return Err(io::Error::other("it failed a moment ago"));
        }
        self.opened = Some(Instant::now());
        let dir = &self.files.dir;
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC).bits())
            .open(self.files.newer())?;
        self.size = file.metadata()?.len();
        // The last line may be incomplete after a kill or on a full disk.
        self.torn = self.size > 0;
        self.file = Some(file);
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file = None;
        self.opened = None;
        match fs::rename(self.files.newer(), self.files.older()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => {
                self.size = 0;
                Ok(())
            }
        }
    }

    fn warn(&mut self, error: &io::Error) {
        if self
            .warned
            .is_some_and(|at| at.elapsed() < WARNING_INTERVAL)
        {
            return;
        }
        self.warned = Some(Instant::now());
        tracing::warn!(
            target: "criscope::lifecycle",
            event = "story.journal",
            file.path = %self.files.newer().display(),
            error.message = %error,
            "the journal cannot be written: stories will not survive a restart"
        );
    }
}

/// Writes a batch, and counts the bytes written.
fn write_counted(file: &mut File, batch: &[u8], written: &mut usize) -> io::Result<()> {
    while let Some(rest) = batch.get(*written..).filter(|rest| !rest.is_empty()) {
        match file.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => *written += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
