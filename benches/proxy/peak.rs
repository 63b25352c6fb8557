//! The largest that a child was in memory.

use std::fs;

use crate::error::{IoContext, Result};
use crate::process::Process;

impl Process {
    /// Largest resident memory since the start or the last [`Process::reset_peak`], bytes (`VmHWM`).
    ///
    /// # Errors
    /// When `/proc` cannot be read, as when the child has ended.
    pub(crate) fn peak_rss(&self) -> Result<u64> {
        self.status("VmHWM:")
    }

    /// Sets the peak to the present value (proc(5), `clear_refs`).
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn reset_peak(&self) -> Result<()> {
        let file = format!("/proc/{}/clear_refs", self.pid());
        fs::write(&file, "5").during(|| format!("writing {file}"))
    }

    /// A size in `/proc/PID/status`, bytes.
    ///
    /// # Errors
    /// When it is not there, as when the child has ended.
    pub(crate) fn status(&self, key: &str) -> Result<u64> {
        let file = format!("/proc/{}/status", self.pid());
        let text = fs::read_to_string(&file).during(|| format!("reading {file}"))?;
        text.lines()
            .find_map(|line| line.strip_prefix(key))
            .and_then(|value| value.trim().strip_suffix(" kB"))
            .and_then(|value| value.trim().parse::<u64>().ok())
            .map(|kib| kib * 1024)
            .ok_or_else(|| self.problem(format!("has no {key} in {file}")))
    }
}
