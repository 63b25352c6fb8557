//! Where an archive goes: counts and hashes the output, and ends when it is cancelled.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::digest::{Digest, Hasher};
use crate::error::{Error, carry};

/// The progress of an export, and a way to end it. For threads other than the one that exports.
#[derive(Debug, Default)]
pub struct ExportWatch {
    cancelled: AtomicBool,
    is_writing: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
}

impl ExportWatch {
    /// Ends the export with [`Error::Cancelled`].
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Returns whether [`Self::cancel`] was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// True if the archive is being written (before, all layers are read once for their digests), the bytes done, and all bytes.
    #[must_use]
    pub fn progress(&self) -> (bool, u64, u64) {
        (
            self.is_writing.load(Ordering::Relaxed),
            self.done.load(Ordering::Relaxed),
            self.total.load(Ordering::Relaxed),
        )
    }

    pub(super) fn begin(&self, is_writing: bool, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.is_writing.store(is_writing, Ordering::Relaxed);
    }
}

/// Passes bytes on.
pub(super) struct Output<'a, W> {
    to: W,
    watch: &'a ExportWatch,
    pub(super) hasher: Hasher,
    length: u64,
}

impl<'a, W: Write> Output<'a, W> {
    pub(super) fn new(to: W, watch: &'a ExportWatch, hasher: Hasher) -> Self {
        Self {
            to,
            watch,
            hasher,
            length: 0,
        }
    }

    /// The digest and number of the bytes written.
    pub(super) fn finish(self) -> (Digest, u64) {
        (self.hasher.finish(), self.length)
    }
}

impl<W: Write> Write for Output<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.watch.is_cancelled() {
            return Err(carry(Error::cancelled("the archive")));
        }
        // Otherwise the error would look like one of the layer that is read.
        let written = self.to.write(bytes);
        let written = written.map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            _ => carry(Error::io("archive", error)),
        })?;
        self.hasher.update(&bytes[..written]);
        self.length += written as u64;
        self.watch.done.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.to.flush();
        flushed.map_err(|error| carry(Error::io("archive", error)))
    }
}
