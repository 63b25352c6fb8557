//! The payload, and the check that it arrives unchanged.

use std::fs::File;
use std::io::{self, Read as _};

use crate::error::{IoContext, Result};

/// The kernel's source of random bytes.
const RANDOM: &str = "/dev/urandom";

/// Length of the payload whose throughput is measured, in bytes.
pub(crate) const LENGTH: usize = 100_000_000;

/// Size of a write of the client: the copy buffer of kubectl and crictl.
pub(super) const PIECE: usize = 32 << 10;

/// Random bytes: lost, duplicated or reordered parts cannot go unnoticed.
pub(crate) struct Payload(Vec<u8>);

impl Payload {
    /// Different in each run.
    ///
    /// # Errors
    /// If the kernel returns an error.
    pub(crate) fn make(length: usize) -> Result<Self> {
        let mut bytes = vec![0; length];
        File::open(RANDOM)
            .and_then(|mut random| random.read_exact(&mut bytes))
            .during(|| format!("reading {RANDOM}"))?;
        Ok(Self(bytes))
    }

    pub(super) fn all(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.0.chunks(PIECE)
    }

    /// Returns the checker of a receiver.
    pub(super) fn check(&self) -> Check<'_> {
        Check {
            all: self.0.len(),
            left: &self.0,
        }
    }
}

/// Compares received data with the payload.
pub(super) struct Check<'a> {
    all: usize,
    left: &'a [u8],
}

impl Check<'_> {
    /// Checks the next bytes. Returns whether they were the last.
    ///
    /// # Errors
    /// If they differ, or there are too many.
    pub(super) fn next(&mut self, got: &[u8]) -> io::Result<bool> {
        let at = self.all - self.left.len();
        match self.left.split_at_checked(got.len()) {
            Some((sent, left)) if sent == got => self.left = left,
            Some(_) => {
                let len = got.len();
                let what = format!("the {len} bytes at offset {at} differ from those sent");
                return Err(io::Error::other(what));
            }
            None => return Err(io::Error::other("more bytes arrived than were sent")),
        }
        Ok(self.left.is_empty())
    }

    /// Checks that all bytes have arrived.
    ///
    /// # Errors
    /// If some are missing.
    pub(super) fn finish(&self) -> io::Result<()> {
        match self.left.len() {
            0 => Ok(()),
            left => Err(io::Error::other(format!("{left} bytes did not arrive"))),
        }
    }
}
