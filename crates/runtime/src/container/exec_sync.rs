//! ExecSync.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::bundle::write_private;
use super::update::read_spec;
use super::watch::was_seen_to_end;
use crate::call_context::CallContext;
use crate::error::{Error, Result, shim_gone};
use crate::failpoint::{Failpoint, failpoint};
use crate::oci::spec::{check_arguments, exec_process};
use crate::shim_client::{
    self, Attach, Attached, Exec, Exit, ExitWaiter, Kill, Output, Shim, Stdio, Target,
};
use crate::store::Container;
use crate::{Runtime, id};
use criscope_cri::call::steps::RuntimeStep;
use criscope_cri::v1::{ExecSyncRequest, ExecSyncResponse};

/// Limit on the output of each stream (api.proto, ExecSyncResponse); the rest is read and discarded.
const OUTPUT_LIMIT: usize = RESPONSE_LIMIT - FRAMING;

/// The largest message that the kubelet and crictl accept.
const RESPONSE_LIMIT: usize = 16 << 20;

/// Bytes of an encoded response besides the output: tags and lengths of both streams, and the exit code.
const FRAMING: usize = 32;

/// How long output that the shim has passed on may take to arrive.
const LAST_PART: Duration = Duration::from_millis(100);

const SIGKILL: i32 = 9;

/// The beginning of the names of commands of ExecSync, by which they are known after a restart of the daemon.
const SYNC: &str = "sync-";

/// How a command is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecKind {
    /// By ExecSync: without input and terminal. When it is killed, so are the processes that it has started.
    Sync,
    /// For the client of a session. When that has gone, its processes run on.
    Session {
        /// With a terminal.
        tty: bool,
        /// With an input.
        stdin: bool,
    },
}

impl ExecKind {
    fn streams(self) -> (bool, bool) {
        match self {
            Self::Sync => (false, false),
            Self::Session { tty, stdin } => (tty, stdin),
        }
    }

    /// A name for the shim.
    fn new_name(self) -> Result<String> {
        let name = &id::new_id()?[..16];
        Ok(match self {
            Self::Sync => format!("{SYNC}{name}"),
            Self::Session { .. } => name.to_owned(),
        })
    }
}

/// Kills an exec, and if it is one of ExecSync the processes that it has started.
pub(crate) async fn kill_exec(
    shim: &Shim,
    exec: Target,
) -> std::result::Result<(), shim_client::Error> {
    if exec.exec.starts_with(SYNC) {
        return shim.end_command(exec).await;
    }
    let kill = Kill {
        target: exec,
        signal: SIGKILL,
        all: false,
    };
    shim.kill(kill).await
}

/// A running exec process.
pub(crate) struct Running {
    pub(crate) shim: Shim,
    pub(crate) target: Target,
    pub(crate) ending: ExitWaiter,
}

impl Runtime {
    /// Runs a command in a container and returns its output. A non-zero exit code is not an error.
    ///
    /// # Errors
    /// [`Error::Deadline`] if the command exceeded its timeout and was killed. [`Error::State`] if the container is not running.
    pub async fn exec_sync(
        self: &Arc<Self>,
        request: ExecSyncRequest,
        call: &CallContext,
    ) -> Result<ExecSyncResponse> {
        if request.cmd.is_empty() {
            return Err(Error::invalid("the command is empty"));
        }
        let container = self.store.containers.get(&request.container_id)?;
        container.running()?;
        let limit = u64::try_from(request.timeout).ok();
        let limit = limit.filter(|limit| *limit > 0).map(Duration::from_secs);
        let command = request.cmd;
        let mut running = match limit {
            Some(limit) => {
                self.begin_limited_exec(&container, command, limit, call)
                    .await?
            }
            None => {
                self.begin_exec(&container, command, ExecKind::Sync, call)
                    .await?
            }
        };
        let drain = self.live().settings.drain_exec();
        let outcome = tokio::select! {
            outcome = collect(&mut running, limit, drain) => outcome,
            error = call.abandoned() => Err(error),
        };
        if outcome.is_err() {
            running.kill().await;
        }
        running.forget().await;
        let collected = outcome?;
        if let Some(waited) = collected.held_open {
            tracing::debug!(target: "criscope::runtime::container::exec_sync", event = "runtime.exec_sync", container.id = %container.id, wait = ?waited, "the command has ended, but a process that it left behind keeps its output open; what it writes from now on is not returned");
        }
        match collected {
            Collected { cut: true, .. } if !was_seen_to_end(&container) => Err(shim_gone()),
            Collected { response, .. } => Ok(response),
        }
    }

    /// Starts a command in a container. The shim holds its output until a client attaches. If a disk hangs and the caller gives
    /// up in the meantime, the command is not started, so that repeated probes do not pile up.
    ///
    /// # Errors
    /// [`Error::State`] if the container is frozen.
    pub(crate) async fn begin_exec(
        self: &Arc<Self>,
        container: &Arc<Container>,
        command: Vec<String>,
        kind: ExecKind,
        call: &CallContext,
    ) -> Result<Running> {
        self.check_thawed(container, call).await?;
        self.start_exec(container, command, kind, call).await
    }

    /// Like [`Self::begin_exec`], for a container that was seen to be thawed.
    pub(super) async fn start_exec(
        self: &Arc<Self>,
        container: &Arc<Container>,
        command: Vec<String>,
        kind: ExecKind,
        call: &CallContext,
    ) -> Result<Running> {
        check_arguments(&command)?;
        let (tty, stdin) = kind.streams();
        self.prepare_cgroup_migration();
        let record = container.record();
        let handler = self.handler_of(container);
        let sandbox = self.store.sandboxes.get(&record.sandbox)?;
        let shim = self.shim_of(&sandbox).await?;
        let process = exec_process(&call.wait(read_spec(container)).await?, command, tty)
            .ok_or_else(|| Error::Internal("the specification has no process".to_owned()))?;
        let name = kind.new_name()?;
        let path = container.dir().join(format!("exec-{name}.json"));
        let text = serde_json::to_vec(&process)
            .map_err(|error| Error::Internal(format!("process: {error}")))?;
        let file = path.clone();
        let writing = container.work(move || write_private(&file, &text));
        call.wait(writing).await?;
        failpoint(Failpoint::ExecWritten);
        let target = Target {
            container: container.id.clone(),
            exec: name,
        };
        let ending = shim.ending(target.clone());
        let beginning = async {
            let exec = Exec {
                target: target.clone(),
                process: path.display().to_string(),
                stdio: Stdio {
                    tty,
                    stdin,
                    stdin_once: stdin,
                    hold: true,
                    ..Stdio::default()
                },
                runtime: handler.call(),
            };
            shim.exec(exec).await
        };
        let steps = &self.steps;
        let begun = steps
            .step(RuntimeStep::OciExec, Some(handler.program()), beginning)
            .await;
        failpoint(Failpoint::ExecBegun);
        // The shim has already read it. If it cannot be removed here, it is removed with the container.
        let tidied = container.work(move || Ok(std::fs::remove_file(&path).is_ok()));
        begun?;
        tidied.await?;
        Ok(Running {
            shim,
            target,
            ending,
        })
    }
}

impl Running {
    /// Waits for the exit of the process. Returns it only once. Cancel safe.
    pub(crate) async fn exit(&mut self) -> Result<Exit> {
        self.ending.told().await.ok_or_else(shim_gone)
    }

    /// Kills the process as [`kill_exec`] does, best effort: it may have exited already.
    pub(crate) async fn kill(&self) {
        let _ended = kill_exec(&self.shim, self.target.clone()).await;
    }

    /// Makes the shim drop the state of the process as soon as it has exited.
    pub(crate) async fn forget(&self) {
        let _still_runs = self.shim.forget(self.target.clone()).await;
    }
}

/// The result of a command.
#[derive(Default)]
struct Collected {
    response: ExecSyncResponse,
    /// True if the shim ended the output: with the container, or because it is gone itself.
    cut: bool,
    /// How long the output was awaited after the exit, if it was then still open.
    held_open: Option<Duration>,
}

/// Collects the output until the process has exited and both streams are closed.
///
/// `limit` is the time of the command, which is over with its exit: a command that has ended in time succeeds, regardless of its
/// children do. They may keep the output open, so it is awaited for at most `drain` after the exit, and not beyond `limit`.
///
/// # Errors
/// [`Error::Deadline`] if the command has not ended within `limit`.
async fn collect(
    running: &mut Running,
    limit: Option<Duration>,
    drain: Option<Duration>,
) -> Result<Collected> {
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    let attach = Attach {
        target: running.target.clone(),
        stdin: false,
        stdout: true,
        stderr: true,
    };
    let (mut output, _input) = running.shim.attach(attach).await?;
    let mut collected = Collected::default();
    let mut held_open = None;
    let exit = {
        let reads = read(&mut output, &mut collected);
        tokio::pin!(reads);
        let mut all = false;
        let exit = loop {
            tokio::select! {
                biased;
                exit = running.exit() => break exit?,
                () = &mut reads, if !all => all = true,
                () = reached(deadline) => return Err(exceeded(limit)),
            }
        };
        if !all {
            let exited = Instant::now();
            let drained = drain.and_then(|drain| exited.checked_add(drain));
            let settled = async {
                reached(deadline.into_iter().chain(drained).min()).await;
                running.shim.settle().await
            };
            tokio::select! {
                biased;
                () = &mut reads => {}
                settled = settled => {
                    settled?;
                    if timeout(LAST_PART, reads).await.is_err() {
                        held_open = Some(exited.elapsed());
                    }
                }
            }
        }
        exit
    };
    fit(&mut collected.response);
    collected.held_open = held_open;
    collected.response.exit_code = exit.code;
    Ok(collected)
}

/// Cuts the ends of both streams so that the response fits into a message. A stream of less than half a message is kept whole.
fn fit(response: &mut ExecSyncResponse) {
    let half = OUTPUT_LIMIT / 2;
    let (out, err) = (response.stdout.len(), response.stderr.len());
    let out = out.min(OUTPUT_LIMIT - err.min(half));
    response.stdout.truncate(out);
    response.stderr.truncate(OUTPUT_LIMIT - out);
}

pub(super) fn exceeded(limit: Option<Duration>) -> Error {
    let seconds = limit.unwrap_or_default().as_secs();
    Error::Deadline(format!("the command exceeded its timeout of {seconds} s"))
}

/// Waits until then; forever without a time.
async fn reached(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Reads both streams to the end, keeping the first [`OUTPUT_LIMIT`] bytes of each.
async fn read(output: &mut Attached, collected: &mut Collected) {
    let response = &mut collected.response;
    let mut open = [true; 2];
    while open != [false; 2] {
        let (at, to, piece) = match output.next().await {
            Some(Output::Stdout(piece)) => (0, &mut response.stdout, piece),
            Some(Output::Stderr(piece)) => (1, &mut response.stderr, piece),
            None => {
                collected.cut = true;
                return;
            }
        };
        open[at] &= !piece.is_empty();
        let room = OUTPUT_LIMIT - to.len();
        to.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    #[test]
    fn a_response_fits_into_the_message_of_its_caller() {
        const MIB: usize = 1 << 20;
        let all = OUTPUT_LIMIT;
        for (out, err, kept) in [
            (MIB, 2 * MIB, (MIB, 2 * MIB)),
            (all, 0, (all, 0)),
            (0, all, (0, all)),
            (all, MIB, (all - MIB, MIB)),
            (MIB, all, (MIB, all - MIB)),
            (all, all, (all / 2, all / 2)),
        ] {
            let mut response = ExecSyncResponse {
                stdout: vec![b'o'; out],
                stderr: vec![b'e'; err],
                exit_code: -1,
            };
            fit(&mut response);
            assert_eq!((response.stdout.len(), response.stderr.len()), kept);
            assert!(response.encoded_len() <= RESPONSE_LIMIT);
        }
    }
}
