//! Exec, Attach and PortForward: the pod's side of streaming sessions. `dial` connects to the ports of pods.

mod line;
mod urls;

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use cri_streaming::{
    AttachRequest, ExecRequest, RuntimeError, SessionServer, SessionStreams, StreamingRuntime,
};
use futures_util::future::BoxFuture;
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::line::{Drained, Line};
use super::Runtime;
use super::call_context::CallContext;
use super::container::watch::was_seen_to_end;
use super::container::{ExecKind, Running};
use super::error::{Error, Result};
use super::shim_client::{self, Attached, Input, Target};
use super::store::Container;

/// How long to wait for remaining output after a container was removed and the shim dropped its state.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long an attached client that closed its input still receives output: the response to its last input.
const ANSWER: Duration = Duration::from_secs(1);

/// The server that issues the URLs of sessions, once it is set.
pub(super) type Slot = OnceLock<SessionServer>;

impl Runtime {
    /// Sets the server for sessions.
    pub fn serve_streams(&self, server: SessionServer) {
        // There is one server per process.
        let _already = self.streaming.set(server);
    }
}

/// The runtime as the backend of the streaming server.
#[derive(Debug)]
pub struct Sessions(Weak<Runtime>);

impl Sessions {
    /// The backend for this runtime.
    pub fn new(runtime: &Arc<Runtime>) -> Arc<Self> {
        Arc::new(Self(Arc::downgrade(runtime)))
    }

    fn runtime(&self) -> std::result::Result<Arc<Runtime>, RuntimeError> {
        self.0
            .upgrade()
            .ok_or_else(|| RuntimeError::Failed("the runtime is stopping".to_owned()))
    }
}

impl StreamingRuntime for Sessions {
    fn exec(
        &self,
        exec: ExecRequest,
        streams: SessionStreams,
    ) -> BoxFuture<'static, std::result::Result<i32, RuntimeError>> {
        let runtime = self.runtime();
        Box::pin(async move { Ok(runtime?.run_exec(exec, streams).await?) })
    }

    fn attach(
        &self,
        attach: AttachRequest,
        streams: SessionStreams,
    ) -> BoxFuture<'static, std::result::Result<(), RuntimeError>> {
        let runtime = self.runtime();
        Box::pin(async move { Ok(runtime?.run_attach(&attach.container, streams).await?) })
    }

    fn dial(
        &self,
        sandbox: &str,
        port: u16,
    ) -> BoxFuture<'static, std::result::Result<TcpStream, RuntimeError>> {
        let (runtime, sandbox) = (self.runtime(), sandbox.to_owned());
        Box::pin(async move { runtime?.dial(&sandbox, port).await })
    }
}

impl From<Error> for RuntimeError {
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound { .. } | Error::State(_) => Self::NotRunning(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl Runtime {
    /// Runs a command for a client, until it exits. If the client disconnects first, its terminal is hung up. As in other
    /// runtimes, a command without a terminal continues: it reads the end of its input, and gets SIGPIPE when it writes, because
    /// the shim closes its output with the last attached stream.
    async fn run_exec(self: &Arc<Self>, exec: ExecRequest, streams: SessionStreams) -> Result<i32> {
        let container = self.store.containers.get(&exec.container)?;
        container.running()?;
        let stdin = streams.stdin.is_some();
        let call = CallContext::default();
        let tty = exec.tty;
        let kind = ExecKind::Session { tty, stdin };
        let mut running = self.begin_exec(&container, exec.argv, kind, &call).await?;
        let attach = attach_to(&running.target, stdin, &streams);
        // The shim closes the command's output with the last attached stream, so both streams are kept until the command exits.
        let (mut output, mut input) = match running.shim.attach(attach).await {
            Ok(both) => both,
            Err(error) => {
                running.kill().await;
                running.forget().await;
                return Err(error.into());
            }
        };
        let line = Line {
            shim: running.shim.clone(),
            target: running.target.clone(),
            tty,
            ended: CancellationToken::new(),
            drain: self.live().settings.drain_exec(),
        };
        let result = until_exit(&mut running, &line, streams, (&mut output, &mut input)).await;
        running.forget().await;
        let (code, drained) = result?;
        // A code would let the output pass for complete.
        if !was_seen_to_end(&container)
            && let Some(error) = line.lost(drained).await
        {
            return Err(error);
        }
        Ok(code)
    }

    /// Connects a client to the streams of a container, until either of them ends. The last output of an exited container is
    /// delivered completely, regardless of how slowly the client reads: it no longer blocks the container.
    ///
    /// Like in containerd (`ContainerIO.Attach`), the session also ends when the client closes its input, unless this closed the
    /// container's input: a user who pipes a line into a container expects the command to return. The input of a terminal has no
    /// end, and a container without standard input has none to close.
    async fn run_attach(self: &Arc<Self>, id: &str, streams: SessionStreams) -> Result<()> {
        let container = self.store.containers.get(id)?;
        container.running()?;
        let record = container.record();
        let sandbox = self.store.sandboxes.get(&record.sandbox)?;
        let shim = self.shim_of(&sandbox).await?;
        let target = Target {
            container: container.id.clone(),
            exec: String::new(),
        };
        let takes_input = streams.stdin.is_some() && record.config.stdin;
        let attach = attach_to(&target, takes_input, &streams);
        let (mut output, mut input) = shim.attach(attach).await?;
        let tty = record.config.tty;
        let line = Line {
            shim,
            target,
            tty,
            ended: CancellationToken::new(),
            drain: Some(LAST_WORDS),
        };
        let stays = !takes_input || record.config.stdin_once && !tty;
        let attached = (&mut output, &mut input);
        let drained = until_detached(&container, &line, streams, attached, stays).await;
        // The cleanup of an exited container detaches its clients once the container is removed.
        if !was_seen_to_end(&container)
            && let Some(error) = line.lost(drained).await
        {
            return Err(error);
        }
        Ok(())
    }
}

/// Attaches to those streams of a process that the client asks for.
fn attach_to(target: &Target, stdin: bool, streams: &SessionStreams) -> shim_client::Attach {
    shim_client::Attach {
        target: target.clone(),
        stdin,
        stdout: streams.stdout.is_some(),
        stderr: streams.stderr.is_some(),
    }
}

/// Copies the streams of a command until it has exited and its output has ended. Returns its exit code.
async fn until_exit(
    running: &mut Running,
    line: &Line,
    streams: SessionStreams,
    (output, input): (&mut Attached, &mut Input),
) -> Result<(i32, Drained)> {
    let gone = streams.gone;
    // Always ends: the shim reports the exit of the command, or disconnects.
    let outputs = line.drain(output, streams.stdout, streams.stderr);
    // While the command is running: it may read after closing its outputs.
    let inputs = async {
        tokio::join!(line.feed(streams.stdin, input), line.resize(streams.resize));
    };
    tokio::pin!(outputs, inputs);
    let (mut drained, mut code) = (None, None);
    loop {
        if let Some(code) = code
            && let Some(drained) = drained.take()
        {
            return Ok((code, drained));
        }
        tokio::select! {
            exit = running.exit(), if code.is_none() => {
                code = Some(exit?.code);
                line.ended.cancel();
            }
            end = &mut outputs, if drained.is_none() => drained = Some(end),
            () = &mut inputs => {}
            () = gone.cancelled() => {
                line.hang_up().await;
                return Err(Error::Cancelled("the client has gone".to_owned()));
            }
        }
    }
}

/// Copies the streams of an attached client until it leaves or the container's streams end. `stays`: the end of its input is not
/// its leaving.
async fn until_detached(
    container: &Container,
    line: &Line,
    streams: SessionStreams,
    (output, input): (&mut Attached, &mut Input),
    stays: bool,
) -> Drained {
    let has_output = streams.stdout.is_some() || streams.stderr.is_some();
    let fed = async {
        let all = line.feed(streams.stdin, input).await;
        if has_output {
            if stays {
                return std::future::pending().await;
            }
            sleep(ANSWER).await;
        }
        // If output is left, the shim disconnected the client; the client did not leave.
        if !all || input.leave().await.is_err() {
            std::future::pending().await
        }
    };
    let over = async {
        ended(container).await;
        line.ended.cancel();
        // The shim closed the streams with the container, so the remaining output is finite.
        if has_output {
            std::future::pending().await
        }
    };
    let outputs = async {
        if has_output {
            return line.drain(output, streams.stdout, streams.stderr).await;
        }
        while output.next().await.is_some() {}
        Drained::Cut
    };
    tokio::pin!(outputs);
    let carried = async {
        tokio::select! {
            drained = &mut outputs => drained,
            () = fed => {
                // The shim detaches now, as requested.
                outputs.await;
                Drained::Whole
            }
        }
    };
    tokio::select! {
        drained = carried => drained,
        () = line.resize(streams.resize) => Drained::Whole,
        () = over => Drained::Whole,
        () = streams.gone.cancelled() => Drained::Whole,
    }
}

/// Completes when a container has exited and was deleted from the OCI runtime and the shim.
async fn ended(container: &Container) {
    container.exited().await;
    container.is_settled().await;
}
