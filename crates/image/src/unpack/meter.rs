//! Counts and hashes uncompressed bytes, and stops decompression bombs.

use std::io::{self, Read};
use std::sync::atomic::Ordering;

use super::job::UnpackJob;
use crate::digest::Hasher;
use crate::error::{Error, carry};

/// A reader that fails beyond the limits.
pub(super) struct Meter<'a, R> {
    inner: R,
    job: &'a UnpackJob<'a>,
    hasher: Hasher,
    bytes: u64,
}

impl<'a, R: Read> Meter<'a, R> {
    pub(super) fn new(inner: R, job: &'a UnpackJob<'a>) -> Self {
        Self {
            inner,
            job,
            hasher: job.diff_id.hasher(),
            bytes: 0,
        }
    }

    pub(super) fn into_hasher(self) -> Hasher {
        self.hasher
    }

    fn check(&self) -> io::Result<()> {
        let limits = self.job.limits;
        if self.bytes > limits.max_unpacked_bytes {
            let most = limits.max_unpacked_bytes;
            return Err(self.too_large(format!("more than {most} bytes when unpacked")));
        }
        let fetched = self.job.consumed.load(Ordering::Relaxed).max(1);
        if self.bytes > limits.ratio_from_bytes && self.bytes / fetched > limits.max_ratio {
            let most = limits.max_ratio;
            return Err(self.too_large(format!("unpacks to more than {most} times its size")));
        }
        Ok(())
    }

    fn too_large(&self, reason: String) -> io::Error {
        let what = format!("layer {}", self.job.diff_id);
        carry(Error::too_large(what, reason))
    }
}

impl<R: Read> Read for Meter<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..length]);
        self.bytes += length as u64;
        (self.job.unpacked)(length as u64);
        self.check()?;
        Ok(length)
    }
}
