//! What unpacking needs, and its result.

use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use crate::config::Limits;
use crate::digest::Digest;

/// An unpacked layer.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnpackSummary {
    /// Approximate bytes on disk: files in whole blocks.
    pub(crate) bytes: u64,
    /// Approximate inodes on disk.
    pub(crate) inodes: u64,
    /// Directories that the archive has no entries for, relative to its root. They are created with owner root and mode 0755,
    /// which may hide those of the layers below.
    pub(crate) implied: Vec<String>,
}

/// The parameters of [`unpack`](super::unpack).
pub(crate) struct UnpackJob<'a> {
    /// The digest of the uncompressed archive.
    pub(crate) diff_id: &'a Digest,
    /// An empty directory. The layer is unpacked into `fs` below it.
    pub(crate) staging: &'a Path,
    pub(crate) limits: &'a Limits,
    /// Bytes of the input read so far, counted by the reader.
    pub(crate) consumed: &'a AtomicU64,
    /// Called with the number of bytes unpacked.
    pub(crate) unpacked: &'a (dyn Fn(u64) + Sync),
    /// Waits for a permit to use a large window: see `decompress`.
    pub(crate) large_window: &'a (dyn Fn() -> io::Result<Box<dyn Any + Send>> + Sync),
}
