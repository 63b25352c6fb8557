//! Reads the archive of a large layer ahead of its extraction, in a thread of its own: decompression then costs the time of another
//! core, and the layer takes as long as the slower of the two.

use std::io::{self, BufRead, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::error::{Error, carry};

/// Bytes of one buffer.
pub(super) const BUFFER: usize = 256 << 10;
/// Buffers of one layer, the one being extracted included: 1 MiB.
const BUFFERS: usize = 4;
/// Bytes after which a thread is started. Smaller layers have little to gain, and several of them at once keep all cores busy.
const BUFFER_BYTES: u64 = if cfg!(test) { 1 << 20 } else { 8 << 20 };

/// Reads an archive: the beginning itself, the rest through a thread.
pub(super) struct ReadAhead<'scope, 'env, R> {
    scope: &'scope Scope<'scope, 'env>,
    abandon: &'env dyn Fn(),
    source: Source<'scope, R>,
    chunk: Chunk,
    /// Bytes of the chunk that were read.
    position: usize,
    /// Bytes of all chunks.
    bytes: u64,
}

enum Source<'scope, R> {
    Here(&'scope mut R),
    There(Ahead<'scope>),
    Ended,
}

/// The thread, its results, and the buffers it may use next.
struct Ahead<'scope> {
    filled: Receiver<io::Result<Chunk>>,
    emptied: SyncSender<Vec<u8>>,
    thread: ScopedJoinHandle<'scope, ()>,
}

/// A part of the archive; the end, if it is empty.
#[derive(Default)]
struct Chunk {
    buffer: Vec<u8>,
    length: usize,
}

impl<'scope, 'env, R: Read + Send> ReadAhead<'scope, 'env, R> {
    /// `abandon` makes a read that blocks return: it is called if the rest of the archive is not wanted.
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'env>,
        source: &'scope mut R,
        abandon: &'env dyn Fn(),
    ) -> Self {
        let buffer = vec![0; BUFFER];
        Self {
            scope,
            abandon,
            source: Source::Here(source),
            chunk: Chunk { buffer, length: 0 },
            position: 0,
            bytes: 0,
        }
    }

    fn next_chunk(&mut self) -> io::Result<()> {
        (self.position, self.chunk.length) = (0, 0);
        if self.bytes >= BUFFER_BYTES {
            self.start()?;
        }
        match &mut self.source {
            Source::Here(source) => {
                self.chunk.length = read(*source, &mut self.chunk.buffer)?;
                self.bytes += self.chunk.length as u64;
            }
            Source::There(ahead) => {
                // Fails once the thread has ended, which has sent the last chunk.
                let _ = ahead.emptied.send(std::mem::take(&mut self.chunk.buffer));
                self.chunk = ahead
                    .filled
                    .recv()
                    .map_err(|_| carry(Error::internal("unpacking has ended early")))??;
                if self.chunk.length == 0 {
                    self.source = Source::Ended;
                }
            }
            Source::Ended => {}
        }
        Ok(())
    }

    /// Starts the thread, unless it runs.
    fn start(&mut self) -> io::Result<()> {
        let source = match std::mem::replace(&mut self.source, Source::Ended) {
            Source::Here(source) => source,
            other => {
                self.source = other;
                return Ok(());
            }
        };
        // Neither ever holds more than all buffers.
        let (sender, filled) = sync_channel(BUFFERS);
        let (emptied, buffers) = sync_channel(BUFFERS);
        for _ in 1..BUFFERS {
            // Cannot fail: the receiver is in scope.
            let _ = emptied.send(vec![0; BUFFER]);
        }
        let thread = Builder::new()
            .name("decompress".to_owned())
            .spawn_scoped(self.scope, move || fill_all(source, buffers, &sender))
            .map_err(|error| {
                carry(Error::internal(format!(
                    "unpacking needs a thread: {error}"
                )))
            })?;
        self.source = Source::There(Ahead {
            filled,
            emptied,
            thread,
        });
        Ok(())
    }
}

impl<R: Read + Send> BufRead for ReadAhead<'_, '_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.position >= self.chunk.length {
            self.next_chunk()?;
        }
        Ok(&self.chunk.buffer[self.position..self.chunk.length])
    }

    fn consume(&mut self, bytes: usize) {
        self.position += bytes;
    }
}

impl<R: Read + Send> Read for ReadAhead<'_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.fill_buf()?.read(buffer)?;
        self.consume(length);
        Ok(length)
    }
}

/// Ends the thread.
impl<R> Drop for ReadAhead<'_, '_, R> {
    fn drop(&mut self) {
        let Source::There(ahead) = std::mem::replace(&mut self.source, Source::Ended) else {
            return;
        };
        let Ahead {
            filled,
            emptied,
            thread,
        } = ahead;
        drop((filled, emptied));
        (self.abandon)();
        // A panic has been reported by the channel.
        let _ = thread.join();
    }
}

/// Fills buffers until the end, the first error, or until the reader is gone. No read follows an error.
fn fill_all(
    source: &mut impl Read,
    buffers: Receiver<Vec<u8>>,
    filled: &SyncSender<io::Result<Chunk>>,
) {
    for mut buffer in buffers {
        let chunk = read(source, &mut buffer).map(|length| Chunk { buffer, length });
        let is_last = chunk.as_ref().map_or(true, |chunk| chunk.length == 0);
        if filled.send(chunk).is_err() || is_last {
            return;
        }
    }
}

/// Reads once; a read that a signal interrupts is repeated.
fn read(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;
    use std::thread::{self, ThreadId};

    use super::*;
    use crate::error::carried;

    /// More than all buffers hold.
    const LARGE: usize = 3 * (BUFFER_BYTES as usize) + 5;

    /// An archive that ends in some way, and what reads it.
    struct Archive<'a, F> {
        bytes: &'a [u8],
        end: F,
        buffers: BTreeSet<usize>,
        threads: Vec<ThreadId>,
    }

    impl<F: FnMut() -> io::Result<usize>> Read for Archive<'_, F> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            // Addresses at least this far apart belong to different buffers.
            self.buffers.insert(buffer.as_ptr().addr() / BUFFER);
            self.threads.push(thread::current().id());
            if self.bytes.is_empty() {
                return (self.end)();
            }
            let most = buffer.len().min(100_003);
            self.bytes.read(&mut buffer[..most])
        }
    }

    fn archive<F>(bytes: &[u8], end: F) -> Archive<'_, F> {
        Archive {
            bytes,
            end,
            buffers: BTreeSet::new(),
            threads: Vec::new(),
        }
    }

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at / 7) as u8).collect()
    }

    /// Reads everything, and returns it with the error.
    fn read_all(source: &mut (impl Read + Send)) -> (Vec<u8>, io::Result<()>) {
        let mut all = Vec::new();
        let read =
            thread::scope(|scope| ReadAhead::new(scope, source, &|| {}).read_to_end(&mut all));
        (all, read.map(drop))
    }

    #[test]
    fn a_large_archive_is_read_in_another_thread_with_few_buffers() {
        let whole = bytes(LARGE);
        let mut source = archive(&whole, || Ok(0));
        let (all, read) = read_all(&mut source);
        assert!(
            read.is_ok() && all == whole,
            "{read:?}, {} bytes",
            all.len()
        );
        let here = thread::current().id();
        assert_eq!(source.threads.first(), Some(&here));
        assert_ne!(source.threads.last(), Some(&here));
        // A buffer may lie across two of them.
        assert!(source.buffers.len() <= 2 * BUFFERS, "{:?}", source.buffers);
    }

    #[test]
    fn a_small_archive_has_no_thread() {
        let whole = bytes(BUFFER_BYTES as usize - 1);
        let mut source = archive(&whole, || Ok(0));
        let (all, read) = read_all(&mut source);
        assert!(
            read.is_ok() && all == whole,
            "{read:?}, {} bytes",
            all.len()
        );
        let here = thread::current().id();
        assert!(source.threads.iter().all(|thread| *thread == here));
    }

    #[test]
    fn the_end_stays_the_end() {
        let whole = bytes(LARGE);
        let mut source = archive(&whole, || Ok(0));
        thread::scope(|scope| {
            let mut reader = ReadAhead::new(scope, &mut source, &|| {});
            io::copy(&mut reader, &mut io::sink()).expect("all");
            assert_eq!(reader.read(&mut [0; 9]).expect("the end"), 0);
        });
    }

    #[test]
    fn what_precedes_an_error_is_read_and_the_error_keeps_its_words() {
        let whole = bytes(LARGE);
        let mut left = [
            io::ErrorKind::Interrupted.into(),
            io::Error::other("damaged"),
        ]
        .into_iter();
        let mut source = archive(&whole, || Err(left.next().expect("no read after an error")));
        let (all, read) = read_all(&mut source);
        assert_eq!(read.expect_err("an error").to_string(), "damaged");
        assert!(all == whole, "{} bytes", all.len());
    }

    #[test]
    fn a_panic_is_an_error_and_not_the_end() {
        let whole = bytes(LARGE);
        let mut source = archive(&whole, || -> io::Result<usize> { panic!("a bug") });
        let (all, read) = read_all(&mut source);
        let error = carried(read.expect_err("an error")).expect("one of this crate");
        assert!(matches!(error, Error::Internal { .. }), "{error}");
        assert!(all.len() <= LARGE);
    }

    /// The archive ends only when it is abandoned, like an archive from a registry that sends no more.
    #[test]
    fn a_reader_that_is_dropped_ends_its_thread() {
        let whole = bytes(LARGE);
        let (sender, receiver) = sync_channel::<()>(1);
        let sender = Mutex::new(Some(sender));
        let blocked = move || {
            let _ = receiver.recv();
            Err(io::Error::other("abandoned"))
        };
        let mut source = archive(&whole, blocked);
        let abandon = || drop(sender.lock().expect("lock").take());
        thread::scope(|scope| {
            let mut reader = ReadAhead::new(scope, &mut source, &abandon);
            let mut all = vec![0; LARGE];
            reader.read_exact(&mut all).expect("what was sent");
        });
        assert!(sender.lock().expect("lock").is_none());
    }
}
