//! Unpacks a layer into a directory that overlayfs can stack: decompresses it, checks its diff ID, extracts its entries.
//!
//! Unpacking blocks, and proceeds as bytes arrive. The archive is untrusted: see `tree` for paths, `meter` for limits.

mod ahead;
mod decompress;
mod entry;
mod extract;
mod job;
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

use std::io::{self, BufRead, Read};
use std::thread;

use self::ahead::ReadAhead;
use self::extract::Extractor;
use self::meter::Meter;
use super::error::{Error, Result, carried};

pub(super) use self::decompress::decompress;
#[cfg(any(test, fuzzing))]
pub(super) use self::entry::parts;
pub(super) use self::entry::{Entry, Kind};
pub(super) use self::extract::{OPAQUE_MARK, WHITEOUT, is_allowed};
pub(super) use self::job::UnpackJob;
use self::job::UnpackSummary;
pub(super) use self::tar::TarReader;
pub(super) use self::tree::{DIR, MAX_DEPTH, MAX_LINKS, OPAQUE, is, is_whiteout, status};

/// Unpacks a layer, a large one with its decompression in another thread. The reader must only return the end if the digest of the blob is right.
/// `abandon` must make a read of the input that blocks return: it is called when the layer cannot be extracted.
pub(super) fn unpack(
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
