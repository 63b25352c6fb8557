//! What an installer does on its node: runs `criscope install` or `uninstall` there, and looks whether criscope is ready.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use super::EnterArgs;
use super::enter::remove_stage;
use crate::daemon::{DaemonAddress, DaemonClient};
use crate::rollout::NodeState;
use crate::rollout::local_state::InstallStateFile;
use crate::rollout::participant::NodeWork;

/// How long the daemon must be ready without interruption.
const READY_FOR: Duration = Duration::from_secs(10);

/// How long the daemon may take to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// How often a daemon is asked during the soak time before it counts as not ready: a restart of it is no failure.
const SOAK_TRIES: u32 = 10;

/// Beginning of the line with which a command of criscope says why it failed.
const ERROR_PREFIX: &str = "error: ";

/// The work of an installer.
#[derive(Debug)]
pub(super) struct InstallWork {
    what: EnterArgs,
    daemon: DaemonClient,
    state: Option<InstallStateFile>,
    /// The process that changes the node; 0 if there is none.
    process: AtomicI32,
}

/// The reason why a node is not as wanted.
#[derive(Debug, thiserror::Error)]
enum WorkError {
    #[error("/proc/self/exe: {0}")]
    Start(#[from] io::Error),
    #[error("{0}")]
    Said(String),
    #[error("criscope on the node ended with {0}")]
    Command(ExitStatus),
    #[error("criscope is not ready after {} s", READY_TIMEOUT.as_secs())]
    Unready,
}

impl InstallWork {
    pub(super) fn new(what: &EnterArgs, daemon: &DaemonAddress) -> Self {
        // The directory is mounted read-only, since the daemon's socket is in it.
        let state = match daemon {
            DaemonAddress::Socket(path) => path
                .parent()
                .map(|directory| InstallStateFile::at(&on_node(what.pid, directory))),
            DaemonAddress::Port(_) => None,
        };
        Self {
            what: what.clone(),
            daemon: DaemonClient::new(daemon.clone()),
            state,
            process: AtomicI32::new(0),
        }
    }

    async fn run(&self) -> Result<(), WorkError> {
        let (status, said) = self.command().await?;
        if !status.success() {
            return Err(said.map_or(WorkError::Command(status), WorkError::Said));
        }
        if self.what.uninstall {
            return Ok(());
        }
        self.ready().await
    }

    /// Runs a process of one thread, since entering a mount namespace requires one. Returns also why it failed, if it said so.
    async fn command(&self) -> io::Result<(ExitStatus, Option<String>)> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("enter").arg("--from").arg(&self.what.from);
        command.arg("--pid").arg(self.what.pid.to_string());
        if self.what.uninstall {
            command.arg("--uninstall");
        }
        command.arg("--").args(&self.what.more);
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        self.process
            .store(pid.unwrap_or_default(), Ordering::Relaxed);
        let mut reason = None;
        if let Some(stderr) = child.stderr.take() {
            let mut lines = BufReader::new(stderr).lines();
            while let Some(line) = lines.next_line().await? {
                // Standard error of this process may be closed.
                let _ = writeln!(io::stderr().lock(), "{line}");
                if let Some(text) = line.strip_prefix(ERROR_PREFIX) {
                    reason = Some(text.to_owned());
                }
            }
        }
        let status = child.wait().await;
        self.process.store(0, Ordering::Relaxed);
        if let Err(error) = remove_stage(&on_node(self.what.pid, Path::new("/"))) {
            tracing::warn!(event = "agent.install", %error, "cannot remove the programs of the installation");
        }
        Ok((status?, reason))
    }

    async fn ready(&self) -> Result<(), WorkError> {
        let end = Instant::now() + READY_TIMEOUT;
        let mut since = None;
        loop {
            let is_ready = self.is_ready().await;
            let now = Instant::now();
            since = is_ready.then(|| since.unwrap_or(now));
            if since.is_some_and(|since| now - since >= READY_FOR) {
                return Ok(());
            }
            if now >= end {
                return Err(WorkError::Unready);
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    async fn is_ready(&self) -> bool {
        let page = self.daemon.get("/readyz", None).await;
        page.is_ok_and(|page| page.status == http::StatusCode::OK)
    }
}

impl NodeWork for InstallWork {
    async fn work(&self) -> Result<(), String> {
        self.run().await.map_err(|error| error.to_string())
    }

    fn interrupt(&self) {
        if let Some(pid) = Pid::from_raw(self.process.load(Ordering::Relaxed)) {
            // It may have ended just now.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    async fn check(&self) -> Result<(), String> {
        if self.what.uninstall {
            return Ok(());
        }
        for _ in 0..SOAK_TRIES {
            if self.is_ready().await {
                return Ok(());
            }
            sleep(Duration::from_secs(1)).await;
        }
        Err("criscope is no longer ready".to_owned())
    }

    fn note_state(&self, state: NodeState) {
        let Some(file) = &self.state else {
            return;
        };
        let written = if self.what.uninstall && state == NodeState::Done {
            file.remove()
        } else {
            file.write(state)
        };
        if let Err(error) = written {
            tracing::warn!(event = "agent.rollout", %error, "cannot write the state for the agent's metrics");
        }
    }
}

/// A path of the node, from here.
fn on_node(pid: u32, path: &Path) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    root.join(path.strip_prefix("/").unwrap_or(path))
}
