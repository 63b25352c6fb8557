//! ExecSync.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::bundle::write_private;
use super::update::read_spec;
use crate::call::steps::RuntimeStep;
use crate::cri::v1::{ExecSyncRequest, ExecSyncResponse};
use crate::runtime::call_context::CallContext;
use crate::runtime::error::{Error, Result, shim_gone};
use crate::runtime::failpoint::{Failpoint, failpoint};
use crate::runtime::oci::spec::{check_arguments, exec_process};
use crate::runtime::shim_client::{
    Attach, Attached, Exec, Exit, ExitWaiter, Kill, Output, Shim, Stdio, Target,
};
use crate::runtime::store::Container;
use crate::runtime::{Runtime, id};

/// The most bytes kept of each stream, as the CRI has it (api.proto, ExecSyncResponse); the rest is read and dropped.
const OUTPUT_LIMIT: usize = 16 << 20;

const SIGKILL: i32 = 9;

/// A process that runs in a container.
pub(in crate::runtime) struct Running {
    pub(in crate::runtime) shim: Shim,
    pub(in crate::runtime) target: Target,
    pub(in crate::runtime) ending: ExitWaiter,
}

impl Runtime {
    /// Runs a command in a container and returns what it wrote. An exit code that is not zero is no error.
    ///
    /// # Errors
    /// [`Error::Deadline`] when the command ran longer than its timeout: it is killed. [`Error::State`] if the container does
    /// not run.
    pub async fn exec_sync(
        self: &Arc<Self>,
        request: ExecSyncRequest,
        caller: &CallContext,
    ) -> Result<ExecSyncResponse> {
        if request.cmd.is_empty() {
            return Err(Error::invalid("there is no command to run"));
        }
        let container = self.store.containers.get(&request.container_id)?;
        container.running()?;
        let mut running = self
            .begin_exec(&container, request.cmd, false, false, caller)
            .await?;
        let limit = u64::try_from(request.timeout)
            .ok()
            .filter(|limit| *limit > 0);
        let too_long = async {
            match limit {
                Some(seconds) => {
                    sleep(Duration::from_secs(seconds)).await;
                    Error::Deadline(format!("the command ran longer than its {seconds} s"))
                }
                None => std::future::pending().await,
            }
        };
        let drain = self.settings.drain_exec;
        let outcome = tokio::select! {
            outcome = collect(&mut running, drain) => outcome,
            error = too_long => Err(error),
            error = caller.left_alone() => Err(error),
        };
        if outcome.is_err() {
            running.kill().await;
        }
        running.forget().await;
        outcome
    }

    /// Starts a command in a container. Its output is held until somebody attaches. On a disk that hangs it is not begun once
    /// nobody waits for it: probes come again and again.
    pub(in crate::runtime) async fn begin_exec(
        self: &Arc<Self>,
        container: &Arc<Container>,
        command: Vec<String>,
        tty: bool,
        stdin: bool,
        caller: &CallContext,
    ) -> Result<Running> {
        check_arguments(&command)?;
        let record = container.record();
        let handler = self.handler_of(container);
        let sandbox = self.store.sandboxes.get(&record.sandbox)?;
        let shim = self.shim_of(&sandbox).await?;
        let process = exec_process(&caller.wait(read_spec(container)).await?, command, tty)
            .ok_or_else(|| Error::Internal("the specification has no process".to_owned()))?;
        let name = id::new_id()?[..16].to_owned();
        let path = container.dir().join(format!("exec-{name}.json"));
        let text = serde_json::to_vec(&process)
            .map_err(|error| Error::Internal(format!("process: {error}")))?;
        let file = path.clone();
        let writing = container.work(move || write_private(&file, &text));
        caller.wait(writing).await?;
        failpoint(Failpoint::ExecWritten);
        let target = Target {
            container: container.id.clone(),
            exec: name,
        };
        let ending = shim.ending(target.clone());
        let exec = || Exec {
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
        let beginning = async { shim.exec(exec()).await };
        let steps = &self.steps;
        let begun = steps
            .step(RuntimeStep::OciExec, Some(handler.program()), beginning)
            .await;
        failpoint(Failpoint::ExecBegun);
        // Read by now. One that cannot be removed goes with the container.
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
    /// How it ended, when it has; once. Dropping the future loses nothing.
    pub(in crate::runtime) async fn exit(&mut self) -> Result<Exit> {
        self.ending.told().await.ok_or_else(shim_gone)
    }

    /// Kills it. That it has ended meanwhile is fine, and nothing else can be done about it.
    pub(in crate::runtime) async fn kill(&self) {
        let _ended = self
            .shim
            .kill(Kill {
                target: self.target.clone(),
                signal: SIGKILL,
                all: false,
            })
            .await;
    }

    /// Has the shim forget it. One that still runs is forgotten when it ends.
    pub(in crate::runtime) async fn forget(&self) {
        let _still_runs = self.shim.forget(self.target.clone()).await;
    }
}

/// Reads all output until the process has ended and both streams have, or `drain` after the process: a child may hold them.
async fn collect(running: &mut Running, drain: Option<Duration>) -> Result<ExecSyncResponse> {
    let attach = Attach {
        target: running.target.clone(),
        stdin: false,
        stdout: true,
        stderr: true,
    };
    let (mut output, _input) = running.shim.attach(attach).await?;
    let mut response = ExecSyncResponse::default();
    let exit = {
        let reads = read(&mut output, &mut response);
        tokio::pin!(reads);
        let mut all = false;
        let exit = loop {
            tokio::select! {
                exit = running.exit() => break exit?,
                () = &mut reads, if !all => all = true,
            }
        };
        if !all {
            match drain {
                Some(drain) => {
                    let _held_open = timeout(drain, reads).await;
                }
                None => reads.await,
            }
        }
        exit
    };
    response.exit_code = exit.code;
    Ok(response)
}

/// Reads both streams to their ends, keeping the first [`OUTPUT_LIMIT`] bytes of each.
async fn read(output: &mut Attached, response: &mut ExecSyncResponse) {
    let mut open = [true; 2];
    while open != [false; 2] {
        let (at, to, piece) = match output.next().await {
            Some(Output::Stdout(piece)) => (0, &mut response.stdout, piece),
            Some(Output::Stderr(piece)) => (1, &mut response.stderr, piece),
            None => return,
        };
        open[at] &= !piece.is_empty();
        let room = OUTPUT_LIMIT - to.len();
        to.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}
