//! The boot of the node. A process that finds another boot than its predecessor knows that everything on the node has ended in
//! between.

use std::fs;
use std::time::{Duration, SystemTime};

use nix::time::{ClockId, clock_gettime};

use criscope_cri::units::times::UnixMicros;

/// The random id that the kernel makes at each boot.
const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

/// A boot of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeBoot {
    /// The kernel's id of the boot; empty if it cannot be read.
    pub(crate) id: String,
    /// Time of the boot; the epoch if it is unknown.
    pub(crate) at: UnixMicros,
}

impl NodeBoot {
    /// Reads the current boot. Blocks.
    pub(crate) fn read() -> Self {
        let id = fs::read_to_string(BOOT_ID_PATH).unwrap_or_default();
        let up = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from);
        let at = up.ok().and_then(|up| SystemTime::now().checked_sub(up));
        Self {
            id: id.trim().to_owned(),
            at: at.map_or(UnixMicros::EPOCH, UnixMicros::from),
        }
    }
}
