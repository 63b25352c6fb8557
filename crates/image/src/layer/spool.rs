//! The spool of a blob: one thread writes it to a file and hashes it, another one reads and unpacks it concurrently. So the
//! network does not wait for unpacking, memory use stays small, and an interrupted download resumes from the file. The
//! reader only reaches the end of the blob if its digest is right.
//!
//! Bytes that arrive over further connections are written ahead of the rest. An interrupted download resumes where the first of
//! them are missing: where the file has its first hole, if the process has no time to cut it off.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use bytes::Bytes;
use criscope_linux::free_space::MinFree;
use rustix::fs::{FlockOperation, SeekFrom, flock, seek};
use rustix::io::Errno;
use tokio::sync::mpsc::Receiver;

use crate::blocking::lock;
use crate::digest::{Digest, Hasher};
use crate::error::{At as _, Error, Result, carry, check_space};

/// Free space is checked after this many bytes, because other downloads consume it as well.
const SPACE_EVERY: u64 = 16 << 20;

/// The spool of one blob.
#[derive(Debug)]
pub(super) struct Spool {
    file: File,
    size: u64,
    min_free: MinFree,
    state: Mutex<State>,
    changed: Condvar,
    /// Bytes read by the reader.
    pub(super) consumed: AtomicU64,
}

#[derive(Debug)]
struct State {
    available: u64,
    /// True if the reader wants no more.
    abandoned: bool,
    end: Option<Result<()>>,
}

impl Spool {
    /// Opens the file, with the part that an earlier pull left. `None` if it is locked by a flight of the same blob from
    /// another registry. The disk keeps `min_free`.
    pub(super) fn open(path: &Path, size: u64, min_free: MinFree) -> Result<Option<Self>> {
        let mut options = OpenOptions::new();
        options.create(true).read(true).write(true).mode(0o600);
        let file = options.open(path).at(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(Error::io(path, error)),
        }
        let length = file.metadata().at(path)?.len();
        let available = if length > size {
            0
        } else {
            before_hole(&file).at(path)?
        };
        if available < length {
            file.set_len(available).at(path)?;
        }
        Ok(Some(Self {
            file,
            size,
            min_free,
            state: Mutex::new(State {
                available,
                abandoned: false,
                end: None,
            }),
            changed: Condvar::new(),
            consumed: AtomicU64::new(0),
        }))
    }

    /// Bytes in the file.
    pub(super) fn available(&self) -> u64 {
        lock(&self.state).available
    }

    /// Ends the spool for the reader, unless it has already ended.
    pub(super) fn end(&self, result: Result<()>) {
        let mut state = lock(&self.state);
        if state.end.is_none() {
            state.end = Some(result);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The error that it ended with.
    pub(super) fn failure(&self) -> Option<Error> {
        let state = lock(&self.state);
        state.end.as_ref()?.as_ref().err().cloned()
    }

    /// Writes chunks until the sender is dropped, then checks the digest. Blocks.
    pub(super) fn write(&self, path: &Path, digest: &Digest, mut chunks: Receiver<(u64, Bytes)>) {
        let mut written = self.try_write(path, digest, &mut chunks);
        if written.is_err() {
            // What was written ahead of the rest.
            let cut = self.file.set_len(self.available()).at(path);
            written = written.and(cut);
        }
        self.end(written);
    }

    fn try_write(
        &self,
        path: &Path,
        digest: &Digest,
        chunks: &mut Receiver<(u64, Bytes)>,
    ) -> Result<()> {
        let mut hasher = digest.hasher();
        let mut length = self.available();
        self.hash(0..length, &mut hasher).at(path)?;
        let mut ahead = Ahead::default();
        let mut unchecked = 0;
        while let Some((position, chunk)) = chunks.blocking_recv() {
            unchecked += chunk.len() as u64;
            if self.min_free.bytes > 0 && unchecked >= SPACE_EVERY {
                unchecked = 0;
                check_space(self.min_free, &self.file, path, SPACE_EVERY)?;
            }
            self.file.write_all_at(&chunk, position).at(path)?;
            let end = position + chunk.len() as u64;
            if position != length {
                ahead.add(position..end);
                continue;
            }
            hasher.update(&chunk);
            length = end;
            while let Some(end) = ahead.take(length) {
                self.hash(length..end, &mut hasher).at(path)?;
                length = end;
            }
            lock(&self.state).available = length;
            self.changed.notify_all();
        }
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        if length < self.size {
            return Err(Error::cancelled(format!("layer {digest}")));
        }
        digest.compare("layer", hasher)
    }

    /// Hashes the contents of the file.
    fn hash(&self, range: Range<u64>, hasher: &mut Hasher) -> io::Result<()> {
        let mut position = range.start;
        let mut buffer = vec![0; if range.is_empty() { 0 } else { 128 << 10 }];
        while position < range.end {
            let left = usize::try_from(range.end - position).unwrap_or(usize::MAX);
            let room = left.min(buffer.len());
            self.file.read_exact_at(&mut buffer[..room], position)?;
            hasher.update(&buffer[..room]);
            position += room as u64;
        }
        Ok(())
    }

    /// Waits until the blob is complete and its digest has been checked.
    pub(super) fn wait_for_all(&self) -> io::Result<()> {
        let state = lock(&self.state);
        let ended = self.changed.wait_while(state, |state| state.end.is_none());
        let state = ended.unwrap_or_else(PoisonError::into_inner);
        state.end.clone().unwrap_or(Ok(())).map_err(carry)
    }

    /// Makes the reader fail from now on, also one that waits. The file is not affected.
    pub(super) fn abandon(&self) {
        lock(&self.state).abandoned = true;
        self.changed.notify_all();
    }

    /// Waits for bytes after `position`, and returns how many there are; 0 at the end.
    fn wait(&self, position: u64) -> io::Result<u64> {
        // The spool is always ended: by the writer, the fetching task, or the guard of that task.
        let waited = self.changed.wait_while(lock(&self.state), |state| {
            state.end.is_none() && !state.abandoned && state.available <= position
        });
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        match &state.end {
            Some(Err(error)) => Err(carry(error.clone())),
            _ if state.abandoned => Err(carry(Error::cancelled("a layer that cannot be unpacked"))),
            _ => Ok(state.available.saturating_sub(position)),
        }
    }
}

/// The ranges that were written ahead of the rest, by their ends.
#[derive(Debug, Default)]
struct Ahead(BTreeMap<u64, u64>);

impl Ahead {
    /// Adds a range, which may continue another one.
    fn add(&mut self, range: Range<u64>) {
        let start = self.0.remove(&range.start).unwrap_or(range.start);
        self.0.insert(range.end, start);
    }

    /// Takes the range that begins here, and returns its end.
    fn take(&mut self, start: u64) -> Option<u64> {
        let found = self.0.iter().find(|(_, begin)| **begin == start);
        let end = *found?.0;
        self.0.remove(&end);
        Some(end)
    }
}

/// The offset up to which a file has no hole; its length, if it has none. Of the block before a hole a part may be missing.
fn before_hole(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    // A file system that does not know holes has none.
    let hole = seek(file, SeekFrom::Hole(0)).unwrap_or(metadata.len());
    if hole >= metadata.len() {
        return Ok(metadata.len());
    }
    let block = metadata.blksize().max(1);
    Ok((hole / block * block).saturating_sub(block))
}

/// Reads a spool from the beginning, and waits for more bytes at the end of the file.
#[derive(Debug)]
pub(super) struct SpoolReader<'a> {
    spool: &'a Spool,
    position: u64,
}

impl<'a> SpoolReader<'a> {
    pub(super) fn new(spool: &'a Spool) -> Self {
        Self { spool, position: 0 }
    }
}

impl Read for SpoolReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let available = self.spool.wait(self.position)?;
        let most = usize::try_from(available).map_or(buffer.len(), |a| a.min(buffer.len()));
        if most == 0 {
            return Ok(0);
        }
        let length = self
            .spool
            .file
            .read_at(&mut buffer[..most], self.position)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.position += length as u64;
        self.spool.consumed.store(self.position, Ordering::Relaxed);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::sync::mpsc;

    use super::*;

    fn run(
        kept: &[u8],
        chunks: &[(u64, &'static [u8])],
        whole: &[u8],
    ) -> (Result<()>, io::Result<Vec<u8>>) {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("partial");
        std::fs::write(&path, kept).expect("write");
        let spool = Spool::open(&path, whole.len() as u64, MinFree::default())
            .expect("open")
            .expect("not locked by another flight");
        let (sender, receiver) = mpsc::channel(1);
        let digest = Digest::sha256(whole);
        thread::scope(|scope| {
            scope.spawn(|| spool.write(&path, &digest, receiver));
            let reader = scope.spawn(|| {
                let mut all = Vec::new();
                SpoolReader::new(&spool).read_to_end(&mut all).map(|_| all)
            });
            for (at, chunk) in chunks {
                sender
                    .blocking_send((*at, Bytes::from_static(chunk)))
                    .expect("send");
            }
            drop(sender);
            let read = reader.join().expect("reader");
            (spool.failure().map_or(Ok(()), Err), read)
        })
    }

    #[test]
    fn a_partial_blob_is_resumed() {
        let (end, read) = run(b"one ", &[(4, b"two "), (8, b"three")], b"one two three");
        assert!(end.is_ok());
        assert_eq!(read.expect("read"), b"one two three");
        let (end, read) = run(b"all", &[], b"all");
        assert!(end.is_ok());
        assert_eq!(read.expect("read"), b"all");
    }

    #[test]
    fn the_reader_receives_every_failure() {
        let (end, read) = run(b"", &[(0, b"other")], b"right");
        assert!(matches!(end, Err(Error::WrongDigest { .. })));
        assert!(read.is_err());
        let (end, read) = run(b"", &[(0, b"on")], b"one");
        assert!(matches!(end, Err(Error::Cancelled { .. })));
        assert!(read.is_err());
    }

    #[test]
    fn bytes_may_arrive_ahead_of_others() {
        let chunks: [(u64, &[u8]); 5] = [
            (8, b"th"),
            (4, b"tw"),
            (10, b"ree"),
            (6, b"o "),
            (0, b"one "),
        ];
        let (end, read) = run(b"", &chunks, b"one two three");
        assert!(end.is_ok(), "{end:?}");
        assert_eq!(read.expect("read"), b"one two three");
        let (end, _) = run(b"", &chunks, b"one two thr33");
        assert!(matches!(end, Err(Error::WrongDigest { .. })));
    }

    #[test]
    fn an_abandoned_spool_fails_its_reader_alone() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("partial");
        let spool = Spool::open(&path, 3, MinFree::default())
            .expect("open")
            .expect("not locked");
        let (sender, receiver) = mpsc::channel(4);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| SpoolReader::new(&spool).read(&mut [0; 9]));
            spool.abandon();
            assert!(reader.join().expect("reader").is_err());
        });
        let chunk = (0, Bytes::from_static(b"one"));
        sender.blocking_send(chunk).expect("send");
        drop(sender);
        spool.write(&path, &Digest::sha256(b"one"), receiver);
        assert!(spool.failure().is_none());
    }

    /// The part after a hole was written ahead. The block before it may be incomplete.
    #[test]
    fn a_file_with_a_hole_is_resumed_before_it() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("directory");
        let path = dir.path().join("partial");
        let file = File::create(&path).expect("create");
        let block = file.metadata().expect("metadata").blksize();
        file.write_all_at(&vec![1; 2 * block as usize + 5], 0)
            .expect("write");
        file.write_all_at(b"ahead", 9 * block).expect("write");
        let spool = Spool::open(&path, 20 * block, MinFree::default()).expect("open");
        let spool = spool.expect("not locked");
        // Two whole blocks, and one whose end is missing.
        assert_eq!(spool.available(), 2 * block);
        assert_eq!(file.metadata().expect("metadata").len(), 2 * block);
        drop(spool);
        let again = Spool::open(&path, 20 * block, MinFree::default()).expect("open");
        assert_eq!(again.expect("not locked").available(), 2 * block);
    }

    #[test]
    fn an_interrupted_download_keeps_what_is_in_order() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("partial");
        let spool = Spool::open(&path, 9, MinFree::default())
            .expect("open")
            .expect("not locked");
        let (sender, receiver) = mpsc::channel(4);
        for (at, chunk) in [(0, "one"), (6, "ahe")] {
            let chunk = Bytes::from_static(chunk.as_bytes());
            sender.blocking_send((at, chunk)).expect("send");
        }
        drop(sender);
        spool.write(&path, &Digest::sha256(b"x"), receiver);
        assert!(spool.failure().is_some());
        assert_eq!(std::fs::read(&path).expect("read"), b"one");
    }
}
