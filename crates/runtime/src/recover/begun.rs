//! CNI plugins and shims that the previous daemon started and did not wait for. They survive a kill of the daemon, and anything
//! that they create after their pod is removed would leak.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use criscope_linux::untrusted;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::Runtime;
use crate::error::Result;
use crate::sandbox::teardown::blocking;
use crate::shim_client::{self, Shim};

/// How long a plugin may run before it is killed, and a shim may take to listen.
const PROCESS_END_TIMEOUT: Duration = Duration::from_secs(10);

const PAUSE: Duration = Duration::from_millis(20);

impl Runtime {
    /// Waits until no plugin and no starting shim of a pod is left.
    pub(super) async fn let_end(&self, id: &str) -> Result<()> {
        let dir = self.settings.paths.pod(id);
        let variable = format!("CNI_CONTAINERID={id}");
        let until = Instant::now() + PROCESS_END_TIMEOUT;
        loop {
            let (variable, own) = (variable.clone(), dir.clone());
            let late = Instant::now() > until;
            let left = blocking(move || Ok(plugins(&variable, late) + shims(&own, late))).await?;
            let listens = matches!(
                Shim::connect(&dir).await,
                Ok(_) | Err(shim_client::Error::Silent { .. })
            );
            // A shim that listens is shut down by the normal teardown.
            if late || left == 0 || (listens && left == 1) {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Counts the CNI plugins of a pod, recognised by their environment.
fn plugins(variable: &str, end: bool) -> usize {
    ended(|process| has_variable(process, variable), end)
}

fn has_variable(process: &Path, variable: &str) -> bool {
    // The environment of a plugin is the daemon's and a few variables.
    let environment =
        untrusted::read_start(&process.join("environ"), 256 << 10).unwrap_or_default();
    let mut all = environment.split(|byte| *byte == 0);
    all.any(|one| one == variable.as_bytes())
}

/// Counts the shims of a directory, recognised by their arguments.
fn shims(dir: &Path, end: bool) -> usize {
    ended(|process| shim_client::is_called_for(process, dir), end)
}

/// Counts the matching processes; with `end` they are also killed.
pub(super) fn ended(mine: impl Fn(&Path) -> bool, end: bool) -> usize {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = all.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // The pidfd is opened before the process is inspected, because the pid may be reused before the kill.
        let held = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        mine(&entry.path()).then_some(held)
    });
    let found: Vec<_> = found.collect();
    for process in found.iter().filter(|_| end) {
        let _ended_meanwhile = pidfd_send_signal(process, Signal::KILL);
    }
    found.len()
}
