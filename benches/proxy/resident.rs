//! What a child holds in memory, and whose child it is.

use std::io;

use nix::sys::prctl::set_child_subreaper;

use crate::error::{IoContext, Result};
use crate::process::Process;

/// Makes this process the parent of what its children leave behind, as nginx and socat do when they are ended, so that
/// it can be waited for.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn adopt_orphans() -> Result<()> {
    set_child_subreaper(true)
        .map_err(io::Error::from)
        .during(|| "becoming a subreaper".to_owned())
}

impl Process {
    /// Resident memory now, bytes (`VmRSS`).
    ///
    /// # Errors
    /// When `/proc` cannot be read, as when the child has ended.
    pub(crate) fn rss(&self) -> Result<u64> {
        self.status("VmRSS:")
    }
}
