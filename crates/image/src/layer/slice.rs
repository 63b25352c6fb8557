//! Part of an archive on disk that is a layer.

use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};

use super::source::ArchiveSlice;
use super::task::LayerTask;
use crate::digest::{Digest, Hasher};
use crate::error::carry;

/// Reads a slice of an archive, and checks its digest at the end if it has one.
pub(super) struct SliceReader<'a> {
    slice: &'a ArchiveSlice,
    position: u64,
    consumed: &'a AtomicU64,
    task: &'a LayerTask,
    hasher: Option<Hasher>,
}

impl<'a> SliceReader<'a> {
    pub(super) fn new(
        slice: &'a ArchiveSlice,
        consumed: &'a AtomicU64,
        task: &'a LayerTask,
    ) -> Self {
        Self {
            slice,
            position: 0,
            consumed,
            task,
            hasher: slice.digest.as_ref().map(Digest::hasher),
        }
    }
}

impl Read for SliceReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use std::os::unix::fs::FileExt as _;

        if self.task.cancel.is_cancelled() {
            return Err(carry(self.task.cancelled()));
        }
        let left = self.slice.size - self.position;
        let most = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        if most == 0 {
            if let (Some(hasher), Some(digest)) = (self.hasher.take(), &self.slice.digest) {
                digest.compare("layer", hasher).map_err(carry)?;
            }
            return Ok(0);
        }
        let offset = self.slice.offset + self.position;
        let length = self.slice.file.read_at(&mut buffer[..most], offset)?;
        if length == 0 {
            let reason = format!("{} has become shorter", self.slice.path.display());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..length]);
        }
        self.position += length as u64;
        self.consumed.store(self.position, Ordering::Relaxed);
        self.task.progress.fetched(length as u64);
        Ok(length)
    }
}
