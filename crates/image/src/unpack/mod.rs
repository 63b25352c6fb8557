//! Unpacks a layer into a directory that overlayfs can stack: decompresses it, checks its diff ID, extracts its entries.
//!
//! Unpacking blocks, and proceeds as bytes arrive. The archive is untrusted: see `tree` for paths, `meter` for limits.

mod ahead;
mod decompress;
mod entry;
mod extract;
mod meter;
mod number;
mod pax;
mod sparse;
#[cfg(test)]
mod sparse_tests;
mod tar;
#[cfg(test)]
mod tests;
mod tree;

use std::any::Any;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use self::ahead::{BUFFER, ReadAhead};
use self::extract::Extractor;
use self::meter::Meter;
use super::config::Limits;
use super::digest::Digest;
use super::error::{Error, Result};

pub(super) use self::decompress::decompress;
#[cfg(any(test, fuzzing))]
pub(super) use self::entry::parts;
pub(super) use self::entry::{Entry, Kind};
pub(super) use self::extract::{OPAQUE_MARK, WHITEOUT, is_allowed};
pub(super) use self::tar::TarReader;
pub(super) use self::tree::is_whiteout;

/// An unpacked layer.
#[derive(Clone, Debug, Default)]
pub struct UnpackSummary {
    /// Approximate bytes on disk: files in whole blocks.
    pub bytes: u64,
    /// Approximate inodes on disk.
    pub inodes: u64,
    /// Directories that the archive has no entries for, relative to its root. They are created with owner root and mode 0755,
    /// which may hide those of the layers below.
    pub implied: Vec<String>,
}

/// Unpacks layers outside of a store. It needs root: files get the owners of the archive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unpacker {
    limits: Limits,
}

impl Unpacker {
    /// Creates an unpacker with these limits.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits }
    }

    /// Unpacks a layer, which may be compressed with gzip or zstd, into `fs` in the empty directory `dir`. Whiteouts become
    /// those of overlayfs. Blocks. After an error the contents of `dir` are undefined, and the caller should remove them.
    ///
    /// # Errors
    ///
    /// [`Error::Unpack`] for an archive that is damaged or contains paths outside the layer; [`Error::TooLarge`],
    /// [`Error::NoSpace`], [`Error::NoInodes`], [`Error::WrongDigest`], [`Error::Io`].
    pub fn unpack(&self, layer: impl Read, diff_id: &Digest, dir: &Path) -> Result<UnpackSummary> {
        let consumed = AtomicU64::new(0);
        let job = UnpackJob {
            diff_id,
            staging: dir,
            limits: &self.limits,
            consumed: &consumed,
            unpacked: &|_| {},
            large_window: &|| Ok(Box::new(())),
        };
        unpack(Counted(layer, &consumed), &job)
    }
}

/// Counts the bytes read.
struct Counted<'a, R>(R, &'a AtomicU64);

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.0.read(buffer)?;
        self.1.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

/// The parameters of [`unpack`].
pub(super) struct UnpackJob<'a> {
    /// The digest of the uncompressed archive.
    pub(super) diff_id: &'a Digest,
    /// An empty directory. The layer is unpacked into `fs` below it.
    pub(super) staging: &'a Path,
    pub(super) limits: &'a Limits,
    /// Bytes of the input read so far, counted by the reader.
    pub(super) consumed: &'a AtomicU64,
    /// Called with the number of bytes unpacked.
    pub(super) unpacked: &'a (dyn Fn(u64) + Sync),
    /// Waits for a permit to use a large window: see `decompress`.
    pub(super) large_window: &'a (dyn Fn() -> io::Result<Box<dyn Any + Send>> + Sync),
}

/// Unpacks a layer. The reader must only return the end if the digest of the blob is right.
pub(super) fn unpack(input: impl Read, job: &UnpackJob<'_>) -> Result<UnpackSummary> {
    let mut meter = meter(input, job)?;
    let unpacked = extract(BufReader::with_capacity(BUFFER, &mut meter), job)?;
    job.diff_id.compare("unpacked layer", meter.into_hasher())?;
    Ok(unpacked)
}

/// Unpacks like [`unpack`], with a large layer decompressed in another thread. `abandon` must make a read of the input that blocks return: it is
/// called when the layer cannot be extracted.
pub(super) fn unpack_ahead(
    input: impl Read + Send,
    job: &UnpackJob<'_>,
    abandon: &dyn Fn(),
) -> Result<UnpackSummary> {
    let mut meter = meter(input, job)?;
    let archive = &mut meter;
    let unpacked = thread::scope(|scope| extract(ReadAhead::new(scope, archive, abandon), job))?;
    job.diff_id.compare("unpacked layer", meter.into_hasher())?;
    Ok(unpacked)
}

fn meter<'a, R: Read>(
    input: R,
    job: &'a UnpackJob<'_>,
) -> Result<Meter<'a, impl Read + use<'a, R>>> {
    let plain = decompress(input, job.large_window).map_err(|error| whole(job, error))?;
    Ok(Meter::new(plain, job))
}

/// Extracts an archive, and reads the bytes after its end, which the diff ID includes.
fn extract(mut plain: impl BufRead, job: &UnpackJob<'_>) -> Result<UnpackSummary> {
    let mut extractor = Extractor::new(job)?;
    let mut archive = TarReader::new(&mut plain);
    while let Some(entry) = archive.next_entry().map_err(|error| whole(job, error))? {
        let applied = extractor.apply(&entry, &mut archive);
        applied.map_err(|error| failed(job, &entry.shown(), error))?;
    }
    let unpacked = extractor.finish().map_err(|error| whole(job, error))?;
    io::copy(&mut plain, &mut io::sink()).map_err(|error| whole(job, error))?;
    Ok(unpacked)
}

/// The error of an archive as a whole.
fn whole(job: &UnpackJob<'_>, error: io::Error) -> Error {
    failed(job, "archive", error)
}

fn failed(job: &UnpackJob<'_>, entry: &str, error: io::Error) -> Error {
    carried(error).unwrap_or_else(|error| Error::Unpack {
        layer: job.diff_id.clone(),
        entry: entry.to_owned(),
        reason: error.to_string(),
    })
}

/// Wraps an error of this crate for readers, which return [`io::Error`].
pub(super) fn carry(error: Error) -> io::Error {
    io::Error::other(error)
}

/// The inverse of [`carry`].
pub(super) fn carried(error: io::Error) -> std::result::Result<Error, io::Error> {
    error.downcast::<Error>()
}
