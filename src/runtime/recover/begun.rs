//! What the last daemon began and did not see end: plugins and shims that were just being started. A kill of the daemon
//! does not end them, and what they make after their pod was cleared nobody would find.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use criscope_linux::untrusted;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::runtime::Runtime;
use crate::runtime::error::Result;
use crate::runtime::sandbox::teardown::blocking;
use crate::runtime::shim_client::{self, Shim};

/// How long a plugin may go on before it is killed, and a shim until it listens.
const PATIENCE: Duration = Duration::from_secs(10);

const PAUSE: Duration = Duration::from_millis(20);

impl Runtime {
    /// Waits until nothing makes anything for a pod any more.
    pub(super) async fn let_end(&self, id: &str) -> Result<()> {
        let dir = self.settings.paths.pod(id);
        let variable = format!("CNI_CONTAINERID={id}");
        let until = Instant::now() + PATIENCE;
        loop {
            let (variable, own) = (variable.clone(), dir.clone());
            let late = Instant::now() > until;
            let left = blocking(move || Ok(plugins(&variable, late) + shims(&own, late))).await?;
            let listens = matches!(
                Shim::connect(&dir).await,
                Ok(_) | Err(shim_client::Error::Silent { .. })
            );
            // One that listens is ended like any other.
            if late || left == 0 || (listens && left == 1) {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The plugins of a pod, told by their environment.
fn plugins(variable: &str, end: bool) -> usize {
    let mine = |process: &Path| {
        // A plugin has that of the daemon and a few variables.
        let environment =
            untrusted::read_start(&process.join("environ"), 256 << 10).unwrap_or_default();
        let mut all = environment.split(|byte| *byte == 0);
        all.any(|one| one == variable.as_bytes())
    };
    ended(mine, end)
}

/// The shim of a directory, told by its arguments.
fn shims(dir: &Path, end: bool) -> usize {
    ended(|process| shim_client::is_called_for(process, dir), end)
}

/// How many processes there are of this kind; with `end` they are killed.
fn ended(mine: impl Fn(&Path) -> bool, end: bool) -> usize {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = all.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // A pidfd, opened before the process is looked at: its number may be another process by the time of the kill.
        let held = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        mine(&entry.path()).then_some(held)
    });
    let found: Vec<_> = found.collect();
    for process in found.iter().filter(|_| end) {
        let _ended_meanwhile = pidfd_send_signal(process, Signal::KILL);
    }
    found.len()
}
