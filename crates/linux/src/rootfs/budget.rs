//! Limits of the copies that are made of an image's volumes for one container.
//!
//! An image chooses how much is copied: its volumes may be links to one directory, or contain each other. Copies are
//! counted while they are written, because sizes in a file system say nothing about what a copy takes.

use std::fmt;
use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::free_space::{CHECK_EVERY_BYTES, ENTRY_BYTES, MinFree, Shortage, mebibytes};

/// Limits of the volumes of one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeLimits {
    /// Number of volumes.
    pub max_volumes: usize,
    /// Bytes of all copies, with files in whole blocks. Holes of sparse files stay holes, and do not count.
    pub max_bytes: u64,
    /// Files and directories of all copies.
    pub max_files: u64,
    /// Space that stays free on the disk.
    pub min_free: MinFree,
}

/// An exceeded limit of the copies of all volumes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyLimit {
    /// [`VolumeLimits::max_bytes`].
    Bytes(u64),
    /// [`VolumeLimits::max_files`].
    Files(u64),
}

impl fmt::Display for CopyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(most) => f.write_str(&mebibytes(*most)),
            Self::Files(most) => write!(f, "{most} files"),
        }
    }
}

/// Why copying has stopped.
#[derive(Debug)]
pub(super) enum CopyError {
    Io(io::Error),
    OverBudget { limit: CopyLimit },
    NoSpace(Shortage),
}

impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for CopyError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// Running totals of the copies of one container.
#[derive(Debug)]
pub(super) struct CopyBudget<'a> {
    limits: &'a VolumeLimits,
    bytes: u64,
    files: u64,
    unchecked: u64,
}

impl<'a> CopyBudget<'a> {
    /// Checks the free space at the first file, and not before: an empty volume needs none.
    pub(super) fn new(limits: &'a VolumeLimits) -> Self {
        Self {
            limits,
            bytes: 0,
            files: 0,
            unchecked: CHECK_EVERY_BYTES,
        }
    }

    /// Counts a file or directory that is about to be created in `dir`.
    pub(super) fn take_file(&mut self, dir: impl AsFd) -> Result<(), CopyError> {
        self.files += 1;
        let most = self.limits.max_files;
        if self.files > most {
            let limit = CopyLimit::Files(most);
            return Err(CopyError::OverBudget { limit });
        }
        self.check_space(dir, ENTRY_BYTES)
    }

    /// Counts content that is about to be written to a file in the same file system as `target`.
    pub(super) fn take_bytes(&mut self, target: impl AsFd, bytes: u64) -> Result<(), CopyError> {
        self.bytes = self.bytes.saturating_add(bytes);
        let most = self.limits.max_bytes;
        if self.bytes > most {
            let limit = CopyLimit::Bytes(most);
            return Err(CopyError::OverBudget { limit });
        }
        self.check_space(target, bytes)
    }

    fn check_space(&mut self, target: impl AsFd, bytes: u64) -> Result<(), CopyError> {
        self.unchecked = self.unchecked.saturating_add(bytes);
        if self.unchecked < CHECK_EVERY_BYTES {
            return Ok(());
        }
        self.unchecked = 0;
        match self.limits.min_free.shortage(target, CHECK_EVERY_BYTES)? {
            Some(shortage) => Err(CopyError::NoSpace(shortage)),
            None => Ok(()),
        }
    }
}
