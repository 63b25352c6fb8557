//! What is sent, and whether it is what arrives.

use std::fs::File;
use std::io::{self, Read as _};

use crate::error::{IoContext, Result};

/// Where the kernel gives out random bytes.
const RANDOM: &str = "/dev/urandom";

/// Length of what is sent, in bytes.
pub(crate) const LENGTH: usize = 100_000_000;

/// What a client writes at once: the copy buffer of kubectl and crictl.
pub(super) const PIECE: usize = 32 << 10;

/// Random bytes: nothing in them comes twice, so that nothing can be lost, doubled or exchanged unseen.
pub(super) struct Payload(Vec<u8>);

impl Payload {
    /// Others in each run.
    ///
    /// # Errors
    /// When the kernel has none.
    pub(super) fn make() -> Result<Self> {
        let mut bytes = vec![0; LENGTH];
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

    /// For a receiver.
    pub(super) fn check(&self) -> Check<'_> {
        Check { left: &self.0 }
    }
}

/// Compares what arrives, as it arrives.
pub(super) struct Check<'a> {
    left: &'a [u8],
}

impl Check<'_> {
    /// The next bytes that arrived. Gives whether they were the last.
    ///
    /// # Errors
    /// They are others than were sent, or too many.
    pub(super) fn next(&mut self, got: &[u8]) -> io::Result<bool> {
        let at = LENGTH - self.left.len();
        match self.left.split_at_checked(got.len()) {
            Some((sent, left)) if sent == got => self.left = left,
            Some(_) => {
                let len = got.len();
                let what =
                    format!("the {len} bytes that arrived at {at} are others than were sent");
                return Err(io::Error::other(what));
            }
            None => return Err(io::Error::other("more arrived than was sent")),
        }
        Ok(self.left.is_empty())
    }

    /// Makes sure that all have arrived.
    ///
    /// # Errors
    /// Some have not.
    pub(super) fn finish(&self) -> io::Result<()> {
        match self.left.len() {
            0 => Ok(()),
            left => Err(io::Error::other(format!("{left} bytes did not arrive"))),
        }
    }
}
