//! The boot of the node: a process that finds another boot than the one before it knows that everything on the node has ended meanwhile.

use std::fs;
use std::time::{Duration, SystemTime};

use nix::time::{ClockId, clock_gettime};

use crate::call::times::unix_micros;

/// The kernel makes a random id at each boot.
const ID: &str = "/proc/sys/kernel/random/boot_id";

/// A boot of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Boot {
    /// The kernel's id of it; empty if it cannot be read.
    pub(crate) id: String,
    /// When it began, in microseconds since 1970; 0 if that is not known.
    pub(crate) at: u64,
}

impl Boot {
    /// The current one. Blocks.
    pub(crate) fn read() -> Self {
        let id = fs::read_to_string(ID).unwrap_or_default();
        let up = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from);
        let at = up.ok().and_then(|up| SystemTime::now().checked_sub(up));
        Self {
            id: id.trim().to_owned(),
            at: at.map_or(0, unix_micros),
        }
    }
}
