//! Memory of running pods.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::unistd::Pid;
use serde::Serialize;

use crate::daemons::Daemon;
use crate::error::{Error, Result};
use crate::ground::pids;
use crate::process::Proportional;

/// Pause before the memory of a runtime is read.
const SETTLE: Duration = Duration::from_secs(2);

/// Proportional set sizes, in bytes: shared memory is divided among its processes (proc(5), `smaps_rollup`).
#[derive(Debug, Serialize)]
pub(crate) struct Held {
    pub(crate) side: &'static str,
    /// Number of pods.
    pub(crate) pods: usize,
    /// The daemon before the pods.
    pub(crate) before: u64,
    /// The daemon with the pods.
    pub(crate) with: u64,
    /// Other processes of the runtime without the containers: shims, and with containerd the sandbox containers.
    pub(crate) beside: u64,
}

impl Held {
    /// Per pod: the growth of the daemon, and the other processes.
    pub(crate) fn per_pod(&self) -> f64 {
        (self.with as f64 - self.before as f64 + self.beside as f64) / self.pods as f64
    }
}

/// Runs pods with a container each, reads memory, and stops them.
///
/// # Errors
/// If a call fails.
pub(crate) async fn measure(
    side: &'static str,
    daemon: &mut Daemon,
    pods: usize,
    pause: bool,
) -> Result<Held> {
    tokio::time::sleep(SETTLE).await;
    let process = Pid::from_raw(daemon.process.pid().cast_signed());
    let before = pss(process)?;
    let mut running = Vec::new();
    for number in 0..pods {
        let pod = daemon.cri.run(&format!("held-{number}")).await?;
        daemon.cri.start(&pod, "main").await?;
        running.push(pod);
    }
    tokio::time::sleep(SETTLE).await;
    let with = pss(process)?;
    let mut beside = 0;
    let helpers = helpers(&daemon.state, process);
    for &helper in &helpers {
        beside += pss(helper)?;
        // Children of containerd's shim: the sandbox container was started first.
        if pause && let Some(first) = children(helper).into_iter().min() {
            beside += pss(Pid::from_raw(first))?;
        }
    }
    if helpers.len() != pods {
        let found = helpers.len();
        return Err(Error::Setup(format!(
            "{side}: {found} shims of {pods} pods"
        )));
    }
    for pod in running {
        daemon.cri.end(pod).await?;
    }
    Ok(Held {
        side,
        pods,
        before,
        with,
        beside,
    })
}

/// The shims, which have the runtime's directory in their arguments.
pub(crate) fn helpers(state: &Path, daemon: Pid) -> Vec<Pid> {
    let word = format!("{}/", state.display());
    let ours = |pid: &Pid| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        *pid != daemon && String::from_utf8_lossy(&arguments).contains(&word)
    };
    pids().filter(ours).collect()
}

/// Of all its threads.
fn children(parent: Pid) -> Vec<i32> {
    let mut all: Vec<i32> = Vec::new();
    let tasks = fs::read_dir(format!("/proc/{parent}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        all.extend(
            text.split_whitespace()
                .filter_map(|pid| pid.parse::<i32>().ok()),
        );
    }
    all
}

/// The proportional set size of a process, in bytes.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn pss(pid: Pid) -> Result<u64> {
    Ok(Proportional::of(pid.as_raw().cast_unsigned())?.total)
}
