//! From the bytes of a layer to a folder that overlayfs can stack: decompress, check the diff id, extract.
//!
//! All of it happens on a blocking thread, as the bytes come in. What is made lies under a temporary name until all is
//! checked. The archive is not trusted: see `tree` for paths and `meter` for amounts.

mod decompress;
mod entry;
mod extract;
mod meter;
mod pax;
mod tar;
mod tree;

use std::any::Any;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::AtomicU64;

use self::extract::Extractor;
use self::meter::Meter;
use super::config::Limits;
use super::digest::Digest;
use super::error::{Error, Result};

pub(super) use self::decompress::decompress;
#[cfg(any(test, fuzzing))]
pub(super) use self::entry::parts;
pub(super) use self::entry::{Entry, Kind};
pub(super) use self::tar::TarReader;

/// What a layer takes on the disk, about.
#[derive(Clone, Debug, Default)]
pub(super) struct Unpacked {
    /// Bytes of files in whole blocks.
    pub(super) bytes: u64,
    /// Files, folders, links and so on.
    pub(super) inodes: u64,
    /// Folders that the archive takes for granted, relative to the root: see `rebase`.
    pub(super) implied: Vec<String>,
}

/// What `unpack` is told.
pub(super) struct Job<'a> {
    /// What the unpacked archive must hash to.
    pub(super) diff_id: &'a Digest,
    /// An empty folder; the layer is made in `fs` in it.
    pub(super) staging: &'a Path,
    pub(super) limits: &'a Limits,
    /// Bytes that were read of the input so far, counted by who reads them.
    pub(super) consumed: &'a AtomicU64,
    /// Told how many bytes were unpacked.
    pub(super) unpacked: &'a dyn Fn(u64),
    /// Waits for a turn with much memory: see `decompress`.
    pub(super) wide: &'a dyn Fn() -> io::Result<Box<dyn Any>>,
}

/// Unpacks a layer. The input ends only when its own digest has been checked.
pub(super) fn unpack(input: impl Read, job: &Job<'_>) -> Result<Unpacked> {
    let at = |entry: &str, reason: String| Error::Unpack {
        layer: job.diff_id.clone(),
        entry: entry.to_owned(),
        reason,
    };
    let whole = |error: io::Error| carried(error).unwrap_or_else(|e| at("archive", e.to_string()));
    let mut plain = decompress(input, job.wide).map_err(whole)?;
    let mut meter = Meter::new(&mut plain, job);
    let mut extractor = Extractor::new(job)?;
    let mut archive = TarReader::new(&mut meter);
    while let Some(entry) = archive.next_entry().map_err(whole)? {
        extractor.apply(&entry, &mut archive).map_err(|error| {
            carried(error).unwrap_or_else(|e| at(&entry.shown(), e.to_string()))
        })?;
    }
    let unpacked = extractor.finish().map_err(whole)?;
    // What stands behind the end of the archive belongs to the diff id, too.
    io::copy(&mut meter, &mut io::sink()).map_err(whole)?;
    let hasher = meter.into_hasher();
    job.diff_id.compare("unpacked layer", hasher)?;
    Ok(unpacked)
}

/// Our own error, on its way through readers that know only [`io::Error`].
pub(super) fn carry(error: Error) -> io::Error {
    io::Error::other(error)
}

/// The way back.
pub(super) fn carried(error: io::Error) -> std::result::Result<Error, io::Error> {
    error.downcast::<Error>()
}
