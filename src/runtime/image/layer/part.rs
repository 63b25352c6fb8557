//! A layer that is part of an archive on disk.

use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::get::Flight;
use crate::runtime::image::digest::{Digest, Hasher};
use crate::runtime::image::unpack;

/// A part of a file.
#[derive(Debug)]
pub(in crate::runtime::image) struct Part {
    pub(in crate::runtime::image) file: Arc<fs::File>,
    pub(in crate::runtime::image) path: PathBuf,
    pub(in crate::runtime::image) offset: u64,
    pub(in crate::runtime::image) size: u64,
    pub(in crate::runtime::image) digest: Option<Digest>,
}

/// Reads a part of an archive, and checks its digest at the end if it has one.
pub(super) struct PartReader<'a> {
    part: &'a Part,
    position: u64,
    consumed: &'a AtomicU64,
    flight: &'a Flight,
    hasher: Option<Hasher>,
}

impl<'a> PartReader<'a> {
    pub(super) fn new(part: &'a Part, consumed: &'a AtomicU64, flight: &'a Flight) -> Self {
        Self {
            part,
            position: 0,
            consumed,
            flight,
            hasher: part.digest.as_ref().map(Digest::hasher),
        }
    }
}

impl Read for PartReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use std::os::unix::fs::FileExt as _;

        if self.flight.cancel.is_cancelled() {
            return Err(unpack::carry(self.flight.cancelled()));
        }
        let left = self.part.size - self.position;
        let most = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        if most == 0 {
            if let (Some(hasher), Some(digest)) = (self.hasher.take(), &self.part.digest) {
                digest.compare("layer", hasher).map_err(unpack::carry)?;
            }
            return Ok(0);
        }
        let offset = self.part.offset + self.position;
        let length = self.part.file.read_at(&mut buffer[..most], offset)?;
        if length == 0 {
            let reason = format!("{} has become shorter", self.part.path.display());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..length]);
        }
        self.position += length as u64;
        self.consumed.store(self.position, Ordering::Relaxed);
        self.flight.progress.fetched(length as u64);
        Ok(length)
    }
}
