//! Handover to the next process in a restart under systemd: this one frees what has one owner, names another main process, and finishes
//! its calls and sessions while the next one serves. `docs/adr/0091-a-restart-hands-over.md` has the reasons.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sd_notify::NotifyState;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::admin_endpoint::AdminTasks;
use super::shutdown::ShutdownStages;
use crate::config::ServerSettings;
use crate::cri::method::Class;
use crate::lifecycle::handover::{is_announced, predecessors};
use crate::proxy::instrument::InFlightCalls;
use crate::proxy::listener::BoundSocket;
use crate::watchdog::{self, Heartbeat};

/// Runs a process that is a child of systemd, ends by SIGTERM, and prints its id. If no restart follows, its end makes systemd start the next
/// criscope.
const STAND_IN_SCRIPT: &str = "sleep 10 < /dev/null > /dev/null 2>&1 & echo $!";

/// How long the owners of sockets and of the journal may take to let them go.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// Interval of looks at the remaining calls.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Number of looks in a row that must find nothing but streams of events: a request may just have arrived.
const MIN_IDLE_LOOKS: u32 = 10;

/// Why a process cannot hand over.
#[derive(Debug, thiserror::Error)]
enum HandoverError {
    /// The process in its place cannot be started.
    #[error("/bin/sh: {0}")]
    Start(#[source] io::Error),
    /// It prints no process id.
    #[error("/bin/sh prints no process id: {0:?}")]
    NoProcess(String),
}

/// What a process needs to hand over.
pub(super) struct HandoverParts {
    pub(super) stages: ShutdownStages,
    pub(super) is_possible: bool,
    pub(super) server: ServerSettings,
    pub(super) state_dir: PathBuf,
    pub(super) heartbeat: Arc<Heartbeat>,
    pub(super) in_flight: Arc<InFlightCalls>,
    pub(super) admin: AdminTasks,
    pub(super) receiver: Option<JoinHandle<()>>,
}

/// Returns whether the next process can take over: systemd starts it and holds the socket, and no store has one owner.
pub(super) fn is_possible(socket: &BoundSocket, has_builtin: bool) -> bool {
    socket.is_activated() && env::var_os("NOTIFY_SOCKET").is_some() && !has_builtin
}

/// As the next process, once it is ready: tells the processes before to accept no more connections.
pub(super) fn take_over(state_dir: &Path) {
    signal_predecessors(state_dir, Signal::SIGWINCH);
}

/// Ends the processes that hand over to this one, which have `server.drain_timeout` then.
pub(super) fn end_predecessors(state_dir: &Path) {
    signal_predecessors(state_dir, Signal::SIGTERM);
}

fn signal_predecessors(state_dir: &Path, signal: Signal) {
    for predecessor in predecessors(state_dir) {
        if let Err(error) = kill(Pid::from_raw(predecessor.pid), signal) {
            tracing::warn!(
                event = "handover.signal",
                process.pid = predecessor.pid,
                error.message = error.desc(),
                "a process that hands over cannot be signalled"
            );
        }
    }
}

impl HandoverParts {
    /// A request to hand over: the first by the unit in a restart, the second by the next process.
    pub(super) async fn requested(&mut self) {
        if self.stages.is_handed_over() {
            tracing::info!(
                event = "handover.taken",
                calls = self.in_flight.len(),
                "the next process serves: no connections are accepted here any more"
            );
            self.stages.handover.taken_over.cancel();
            self.stages.drain.cancel();
            return;
        }
        // Terminals send the signal too.
        if !self.is_possible {
            return;
        }
        if let Err(error) = self.hand_over().await {
            tracing::warn!(
                event = "handover.failed",
                error.message = %error,
                "the restart does not hand over: calls in flight have server.drain_timeout"
            );
        }
    }

    async fn hand_over(&mut self) -> Result<(), HandoverError> {
        let started = spawn_blocking(start_stand_in).await;
        let main_pid = started.map_err(|error| HandoverError::Start(error.into()))??;
        tracing::info!(
            event = "handover.begun",
            calls = self.in_flight.len(),
            timeout_ms = self.server.handover_timeout.as_millis() as u64,
            "handing over to the next process: calls and sessions are finished here"
        );
        let stages = &self.stages;
        stages.handover.begun.cancel();
        stages.release.cancel();
        let receiver = self.receiver.take();
        let freed = async {
            self.admin.ended().await;
            if let Some(receiver) = receiver {
                let _ = receiver.await;
            }
            stages.handover.journaled.cancelled().await;
        };
        // A next process that finds an address in use is started again.
        let _ = timeout(RELEASE_TIMEOUT, freed).await;
        self.heartbeat.retire();
        watchdog::notify(&[NotifyState::MainPid(main_pid)]);
        if !is_announced(&self.state_dir) {
            // Nobody will say that the next process is ready; connections wait for it in the socket of systemd.
            stages.handover.taken_over.cancel();
            stages.drain.cancel();
        }
        tokio::spawn(finish(
            stages.clone(),
            Arc::clone(&self.in_flight),
            self.server.handover_timeout,
        ));
        Ok(())
    }
}

/// Waits until only streams of events are left, at most for the timeout; then cuts the rest.
async fn finish(stages: ShutdownStages, in_flight: Arc<InFlightCalls>, limit: Duration) {
    let idle = async {
        stages.drain.cancelled().await;
        let mut looks = 0;
        while looks < MIN_IDLE_LOOKS {
            sleep(LOOK_INTERVAL).await;
            let mut calls = in_flight.calls().into_iter();
            let is_idle = calls.all(|call| call.method.class() == Class::Watch);
            looks = if is_idle { looks + 1 } else { 0 };
        }
        stages.only_event_streams.cancel();
        stages.cut_calls.cancel();
    };
    tokio::join!(
        async {
            let _ = timeout(limit, idle).await;
        },
        async {
            sleep(limit).await;
            stages.stop(Duration::ZERO).await;
        }
    );
}

/// Starts the process that systemd ends in place of this one.
fn start_stand_in() -> Result<u32, HandoverError> {
    let output = Command::new("/bin/sh")
        .args(["-c", STAND_IN_SCRIPT])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(HandoverError::Start)?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let pid = printed.trim().parse();
    pid.map_err(|_| HandoverError::NoProcess(printed.into_owned()))
}
