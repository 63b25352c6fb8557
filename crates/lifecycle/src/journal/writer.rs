//! Writes the journal on a separate thread: a hanging disk blocks no other thread.
//!
//! During a handover several processes append to the same file, each whole lines with one write (`O_APPEND`). The newest process alone
//! begins new files, and reads what the others have appended.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt as _, OpenOptionsExt};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use tokio::sync::oneshot;

use super::appended::AppendedLines;
use super::{JournalFiles, JournalLine};
use criscope_telemetry::Drops;
use criscope_telemetry::drops::DropReason;

/// Length of the queue, in lines.
const QUEUE_LEN: usize = 1024;
/// Upper bound of bytes per write.
const MAX_BATCH_LEN: usize = 64 << 10;
/// Upper bound of the lines that wait for space on the disk, in bytes: some hours of a node on which little happens.
const MAX_WAITING_LEN: usize = 1 << 20;
/// Minimum interval between two warnings about a failing disk.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum interval between two attempts to open the file.
const REOPEN_INTERVAL: Duration = Duration::from_secs(1);
/// Stack of the thread, in bytes.
const STACK_LEN: usize = 128 << 10;

/// Which of the processes that write the journal this one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalRole {
    /// The newest: it begins new files, and reads what the others append after this offset in the newer file.
    Newest {
        /// How much of the file was replayed, in bytes.
        replayed: u64,
    },
    /// It hands over to a newer one, and only appends.
    HandingOver,
}

/// What the thread is asked to do.
enum JournalRequest {
    Write(Vec<u8>),
    /// Return what other processes have appended since the last request.
    ReadOthers(oneshot::Sender<Vec<u8>>),
}

/// The queue of the writing thread.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    requests: SyncSender<JournalRequest>,
    thread: JoinHandle<()>,
    drops: Arc<Drops>,
}

impl JournalWriter {
    /// Starts the thread, which creates the directory (mode 0700) and the file if they are missing.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(
        files: JournalFiles,
        role: JournalRole,
        drops: &Arc<Drops>,
    ) -> io::Result<Self> {
        Self::spawn(JournalDisk::new(files, role, Arc::clone(drops)), drops)
    }

    fn spawn(mut disk: JournalDisk, drops: &Arc<Drops>) -> io::Result<Self> {
        let (requests, waiting) = sync_channel(QUEUE_LEN);
        let thread = thread::Builder::new()
            .name("journal".to_owned())
            .stack_size(STACK_LEN)
            .spawn(move || disk.run(&waiting))?;
        Ok(Self {
            requests,
            thread,
            drops: Arc::clone(drops),
        })
    }

    /// A journal that writes to this file.
    #[cfg(test)]
    pub(crate) fn start_in(file: &std::path::Path, drops: &Arc<Drops>) -> io::Result<Self> {
        let dir = file.parent().unwrap_or(file).to_owned();
        let max_bytes = super::MAX_FILE_LEN;
        let role = JournalRole::Newest { replayed: 0 };
        let mut disk = JournalDisk::new(JournalFiles { dir, max_bytes }, role, Arc::clone(drops));
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
        if self.requests.try_send(JournalRequest::Write(text)).is_err() {
            self.drops.add(DropReason::JournalQueueFull, 1);
        }
    }

    /// Asks for the lines that other processes have appended, each once. The receiver fails if the queue is full.
    pub(crate) fn read_others(&self) -> oneshot::Receiver<Vec<u8>> {
        let (answer, answered) = oneshot::channel();
        let _ = self.requests.try_send(JournalRequest::ReadOthers(answer));
        answered
    }

    /// Waits until the queue is written. Blocks.
    pub(crate) fn close(self) {
        drop(self.requests);
        // A panic of the thread has been reported.
        let _ = self.thread.join();
    }
}

/// The current file.
struct JournalDisk {
    files: JournalFiles,
    role: JournalRole,
    drops: Arc<Drops>,
    file: Option<File>,
    size: u64,
    /// Set if the last line may be incomplete.
    torn: bool,
    opened: Option<Instant>,
    /// Time of the last warning.
    warned: Option<Instant>,
    others: AppendedLines,
    /// Whole lines that could not be written yet.
    waiting: Vec<u8>,
}

impl JournalDisk {
    fn new(files: JournalFiles, role: JournalRole, drops: Arc<Drops>) -> Self {
        let others = match role {
            JournalRole::Newest { replayed } => AppendedLines::after(replayed),
            JournalRole::HandingOver => AppendedLines::default(),
        };
        Self {
            files,
            role,
            drops,
            file: None,
            size: 0,
            torn: false,
            opened: None,
            warned: None,
            others,
            waiting: Vec::new(),
        }
    }

    fn run(&mut self, requests: &Receiver<JournalRequest>) {
        while let Ok(mut request) = self.next(requests) {
            let mut batch = Vec::new();
            // Lines that wait are written together, up to a request of another kind.
            let other = loop {
                match request {
                    JournalRequest::Write(line) => batch.extend_from_slice(&line),
                    JournalRequest::ReadOthers(answer) => break Some(answer),
                }
                match requests.try_recv() {
                    Ok(next) if batch.len() < MAX_BATCH_LEN => request = next,
                    Ok(JournalRequest::Write(line)) => {
                        batch.extend_from_slice(&line);
                        break None;
                    }
                    Ok(JournalRequest::ReadOthers(answer)) => break Some(answer),
                    Err(_) => break None,
                }
            };
            if !batch.is_empty() {
                self.write_batch(&batch);
            }
            if let Some(answer) = other {
                let _ = answer.send(self.read_others());
            }
        }
        self.write_batch(&[]);
        let lost = std::mem::take(&mut self.waiting);
        self.drops
            .add(DropReason::JournalFailed, count_lines(&lost));
        self.drops.set_journal_waiting(0);
    }

    /// Waits for the next request. Meanwhile lines that wait for space are tried again.
    fn next(&mut self, requests: &Receiver<JournalRequest>) -> Result<JournalRequest, RecvError> {
        while !self.waiting.is_empty() {
            match requests.recv_timeout(REOPEN_INTERVAL) {
                Ok(request) => return Ok(request),
                Err(RecvTimeoutError::Timeout) => self.write_batch(&[]),
                Err(RecvTimeoutError::Disconnected) => return Err(RecvError),
            }
        }
        requests.recv()
    }

    /// Writes the lines that wait, and then these. Those that cannot be written wait; the newest are dropped if they are too many.
    fn write_batch(&mut self, batch: &[u8]) {
        let mut lines = std::mem::take(&mut self.waiting);
        lines.extend_from_slice(batch);
        if lines.is_empty() {
            return;
        }
        let mut written = 0;
        if let Err(error) = self.write(&lines, &mut written) {
            // An incomplete line is written again as a whole.
            lines.drain(..lines_on_disk(&lines, written));
            if lines.len() > MAX_WAITING_LEN {
                let lost = lines.split_off(end_of_lines(&lines[..MAX_WAITING_LEN]));
                self.drops
                    .add(DropReason::JournalFailed, count_lines(&lost));
            }
            self.waiting = lines;
            self.warn(&error);
        }
        self.drops.set_journal_waiting(count_lines(&self.waiting));
    }

    /// Writes a batch. Adds the number of bytes written to `written`, also on errors.
    fn write(&mut self, batch: &[u8], written: &mut usize) -> io::Result<()> {
        let is_newest = self.role != JournalRole::HandingOver;
        if !is_newest && self.is_replaced() {
            self.file = None;
            self.opened = None;
        }
        if self.file.is_none() {
            self.open()?;
        }
        if is_newest && self.size > 0 && self.size + batch.len() as u64 > self.files.max_bytes {
            self.rotate()?;
            self.open()?;
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        if self.torn {
            write_counted(file, b"\n", &mut 0)?;
            self.others.skip_own(file, 1);
            self.torn = false;
        }
        let result = write_counted(file, batch, written);
        self.others.skip_own(file, *written as u64);
        self.torn = result.is_err();
        if self.torn {
            self.file = None;
        }
        // With what others have written.
        self.size = (self.size + *written as u64).max(self.others.known());
        result
    }

    /// Returns whether a newer process has begun a new file. A file that was removed is not made anew.
    fn is_replaced(&self) -> bool {
        let ours = self.file.as_ref().map(File::metadata);
        let (Some(Ok(ours)), Ok(current)) = (ours, fs::metadata(self.files.newer())) else {
            return false;
        };
        (ours.dev(), ours.ino()) != (current.dev(), current.ino())
    }

    fn open(&mut self) -> io::Result<()> {
        if self.opened.is_some_and(|at| at.elapsed() < REOPEN_INTERVAL) {
            return Err(io::Error::other("it failed a moment ago"));
        }
        self.opened = Some(Instant::now());
        let dir = &self.files.dir;
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let file = OpenOptions::new()
            .read(true)
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

    /// Begins a new file. Other processes append to the old one until they notice.
    fn rotate(&mut self) -> io::Result<()> {
        self.opened = None;
        let full = self.file.take();
        match fs::rename(self.files.newer(), self.files.older()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => {
                self.size = 0;
                self.others.begin_file(full);
                Ok(())
            }
        }
    }

    fn read_others(&mut self) -> Vec<u8> {
        if self.file.is_none()
            && let Err(error) = self.open()
        {
            self.warn(&error);
        }
        self.others.take(self.file.as_ref())
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
            "the journal cannot be written: its lines wait for space, and are lost in a restart"
        );
    }
}

fn count_lines(lines: &[u8]) -> usize {
    lines.iter().filter(|byte| **byte == b'\n').count()
}

/// The length of the lines that are on the disk once the first `written` bytes are. A line that lacks only its end gets it before the next
/// write.
pub(super) fn lines_on_disk(lines: &[u8], written: usize) -> usize {
    if lines.get(written) == Some(&b'\n') {
        return written + 1;
    }
    end_of_lines(&lines[..written])
}

/// The length of the lines that are complete.
fn end_of_lines(lines: &[u8]) -> usize {
    let last = lines.iter().rposition(|byte| *byte == b'\n');
    last.map_or(0, |last| last + 1)
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
