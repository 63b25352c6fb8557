//! Exec, Attach and PortForward: what the streaming server's sessions do in a pod. Connections are made in `dial`.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::Runtime;
use super::error::{Error, Result};
use super::process::{self, Attached, Input, Kill, Output, Resize, Shim};
use super::store::Container;
use crate::cri::{Call, v1};
use crate::streaming::{Attach, Exec, Server, Streams, Target, TargetError};

/// What is read of a client at a time.
const PIECE: usize = 16 << 10;

/// In what parts the time is counted that output may stay open for.
const DRAIN_PART: Duration = Duration::from_millis(100);

/// How long a container's output is waited for once everything of it was forgotten, and the shim's end of it with it.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a terminal's programs are sent when nobody is left to look.
const SIGHUP: i32 = 1;

/// Where clients are served, once there is a server.
pub(super) type Slot = OnceLock<Server>;

impl Runtime {
    /// Has sessions served by this server from now on.
    pub fn serve_streams(&self, server: Server) {
        // There is one server for the life of the process.
        let _already = self.streaming.set(server);
    }

    /// Where a client is served that runs a command.
    ///
    /// # Errors
    /// The container does not run, or the request makes no sense.
    pub fn exec(&self, mut request: v1::ExecRequest, call: Option<Arc<Call>>) -> Result<String> {
        let container = self.store.containers.get(&request.container_id)?;
        container.running()?;
        request.container_id.clone_from(&container.id);
        url(self.server()?.exec(request, call))
    }

    /// Where a client is served that attaches.
    ///
    /// # Errors
    /// The container does not run, or the request makes no sense.
    pub fn attach(
        &self,
        mut request: v1::AttachRequest,
        call: Option<Arc<Call>>,
    ) -> Result<String> {
        let container = self.store.containers.get(&request.container_id)?;
        container.running()?;
        request.container_id.clone_from(&container.id);
        url(self.server()?.attach(request, call))
    }

    /// Where a client is served that forwards ports.
    ///
    /// # Errors
    /// The pod is not ready, or the request makes no sense.
    pub fn port_forward(
        &self,
        mut request: v1::PortForwardRequest,
        call: Option<Arc<Call>>,
    ) -> Result<String> {
        let sandbox = self.store.sandboxes.get(&request.pod_sandbox_id)?;
        sandbox.ready()?;
        request.pod_sandbox_id.clone_from(&sandbox.id);
        url(self.server()?.port_forward(request, call))
    }

    fn server(&self) -> Result<&Server> {
        let none = || Error::Unavailable("there is no streaming server".to_owned());
        self.streaming.get().ok_or_else(none)
    }
}

fn url(made: std::result::Result<String, crate::streaming::UrlError>) -> Result<String> {
    use crate::streaming::UrlError;
    made.map_err(|error| match error {
        UrlError::Invalid(_) => Error::invalid(error.to_string()),
        UrlError::Full => Error::Exhausted(error.to_string()),
        UrlError::Random => Error::Internal(error.to_string()),
    })
}

/// The runtime as the streaming server sees it.
#[derive(Debug)]
pub struct Sessions(Weak<Runtime>);

impl Sessions {
    /// Of this runtime.
    pub fn of(runtime: &Arc<Runtime>) -> Arc<Self> {
        Arc::new(Self(Arc::downgrade(runtime)))
    }

    fn runtime(&self) -> std::result::Result<Arc<Runtime>, TargetError> {
        let gone = || TargetError::Failed("the runtime is stopping".to_owned());
        self.0.upgrade().ok_or_else(gone)
    }
}

impl Target for Sessions {
    fn exec(
        &self,
        exec: Exec,
        streams: Streams,
    ) -> BoxFuture<'static, std::result::Result<i32, TargetError>> {
        let runtime = self.runtime();
        Box::pin(async move { Ok(runtime?.run_exec(exec, streams).await?) })
    }

    fn attach(
        &self,
        attach: Attach,
        streams: Streams,
    ) -> BoxFuture<'static, std::result::Result<(), TargetError>> {
        let runtime = self.runtime();
        Box::pin(async move { Ok(runtime?.run_attach(&attach.container, streams).await?) })
    }

    fn dial(
        &self,
        sandbox: &str,
        port: u16,
    ) -> BoxFuture<'static, std::result::Result<TcpStream, TargetError>> {
        let (runtime, sandbox) = (self.runtime(), sandbox.to_owned());
        Box::pin(async move { runtime?.dial(&sandbox, port).await })
    }
}

impl From<Error> for TargetError {
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound { .. } | Error::State(_) => Self::NotRunning(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl Runtime {
    /// Runs a command for a client, until it ends. If the client goes first, its terminal is hung up; a command without one runs
    /// on, as it does with other runtimes: it sees the end of its input, and SIGPIPE when it writes, because the shim
    /// closes its output with the last who is attached.
    async fn run_exec(self: &Arc<Self>, exec: Exec, streams: Streams) -> Result<i32> {
        let container = self.store.containers.get(&exec.container)?;
        container.running()?;
        let stdin = streams.stdin.is_some();
        let mut running = self
            .begin_exec(&container, exec.argv, exec.tty, stdin)
            .await?;
        let attach = process::Attach {
            target: running.target.clone(),
            stdin,
            stdout: streams.stdout.is_some(),
            stderr: streams.stderr.is_some(),
        };
        // The shim closes the command's output with the last who is attached: both stay until it has ended.
        let (mut output, mut input) = match running.shim.attach(attach).await {
            Ok(both) => both,
            Err(error) => {
                running.kill().await;
                return Err(error.into());
            }
        };
        let line = Line {
            shim: running.shim.clone(),
            target: running.target.clone(),
            tty: exec.tty,
            ended: CancellationToken::new(),
            drain: self.settings.drain_exec,
        };
        let gone = streams.gone;
        let outputs = line.drain(&mut output, streams.stdout, streams.stderr);
        // As long as the command runs: one that has closed its outputs may still read.
        let inputs = async {
            tokio::join!(
                line.feed(streams.stdin, &mut input),
                line.resize(streams.resize)
            );
        };
        tokio::pin!(outputs, inputs);
        let (mut all, mut code) = (false, None);
        let result = loop {
            if let (Some(code), true) = (code, all) {
                break Ok(code);
            }
            tokio::select! {
                exit = running.exit(), if code.is_none() => match exit {
                    Ok(exit) => {
                        code = Some(exit.code);
                        line.ended.cancel();
                    }
                    Err(error) => break Err(error),
                },
                () = &mut outputs, if !all => all = true,
                () = &mut inputs => {}
                () = gone.cancelled() => {
                    line.hang_up().await;
                    break Err(Error::Cancelled("the client has gone".to_owned()));
                }
            }
        };
        running.forget().await;
        result
    }

    /// Connects a client to the streams of a container, until either of them goes. What the container has written last is
    /// carried to its end, however slowly the client reads: it holds up nobody any more.
    async fn run_attach(self: &Arc<Self>, id: &str, streams: Streams) -> Result<()> {
        let container = self.store.containers.get(id)?;
        container.running()?;
        let record = container.record();
        let sandbox = self.store.sandboxes.get(&record.sandbox)?;
        let shim = self.shim_of(&sandbox).await?;
        let target = process::Target {
            container: container.id.clone(),
            exec: String::new(),
        };
        let attach = process::Attach {
            target: target.clone(),
            stdin: streams.stdin.is_some() && record.config.stdin,
            stdout: streams.stdout.is_some(),
            stderr: streams.stderr.is_some(),
        };
        let (mut output, mut input) = shim.attach(attach).await?;
        let tty = record.config.tty;
        let line = Line {
            shim,
            target,
            tty,
            ended: CancellationToken::new(),
            drain: Some(LAST_WORDS),
        };
        let has_output = streams.stdout.is_some() || streams.stderr.is_some();
        let fed = async {
            line.feed(streams.stdin, &mut input).await;
            // A client that has ended its input still reads.
            if has_output {
                std::future::pending().await
            }
        };
        let over = async {
            ended(&container).await;
            line.ended.cancel();
            // With the container the shim has let go of its streams, so that what is still to be read has an end.
            if has_output {
                std::future::pending().await
            }
        };
        tokio::select! {
            () = line.drain(&mut output, streams.stdout, streams.stderr), if has_output => {}
            () = fed => {}
            () = line.resize(streams.resize) => {}
            () = over => {}
            () = streams.gone.cancelled() => {}
        }
        Ok(())
    }
}

/// When a container has ended and the OCI runtime and its shim have forgotten it.
async fn ended(container: &Container) {
    container.exited().await;
    container.is_settled().await;
}

/// A client's way to a process.
struct Line {
    shim: Shim,
    target: process::Target,
    tty: bool,
    /// The process has.
    ended: CancellationToken,
    /// How long is waited for its output after that: a child of it may hold it open for ever.
    drain: Option<Duration>,
}

impl Line {
    /// Carries what a process writes, until it has closed what the client wants of it.
    async fn drain(
        &self,
        output: &mut Attached,
        mut stdout: Option<crate::streaming::Output>,
        mut stderr: Option<crate::streaming::Output>,
    ) {
        let mut open = [stdout.is_some(), stderr.is_some()];
        let mut patience = self.drain;
        while open != [false; 2] {
            let next = tokio::select! {
                next = output.next() => next,
                () = self.given_up(&mut patience) => None,
            };
            let (at, to, piece) = match next {
                Some(Output::Stdout(piece)) => (0, &mut stdout, piece),
                Some(Output::Stderr(piece)) => (1, &mut stderr, piece),
                None => return,
            };
            open[at] &= !piece.is_empty();
            if let Some(out) = to
                && out.write_all(&piece).await.is_err()
            {
                // The client has gone: what is left is read and thrown away, so that the process does not stall.
                *to = None;
            }
        }
    }

    /// When the process has ended and nothing came for what is left of the patience. The time that a slow client takes for
    /// what came does not count.
    async fn given_up(&self, patience: &mut Option<Duration>) {
        self.ended.cancelled().await;
        let Some(patience) = patience else {
            return std::future::pending().await;
        };
        while !patience.is_zero() {
            let part = DRAIN_PART.min(*patience);
            tokio::time::sleep(part).await;
            *patience -= part;
        }
    }

    /// Hands the client's input to the process, until there is no more.
    async fn feed(&self, stdin: Option<crate::streaming::Input>, input: &mut Input) {
        let Some(mut stdin) = stdin else { return };
        let mut piece = vec![0; PIECE];
        loop {
            match stdin.read(&mut piece).await {
                Ok(read @ 1..) => {
                    if input.write(&piece[..read]).await.is_err() {
                        break;
                    }
                }
                _ => {
                    // Of a container it ends only if it was made so; the shim knows.
                    let _gone = input.end().await;
                    break;
                }
            }
        }
    }

    /// Sets the sizes that the client sends. Never ends.
    async fn resize(&self, mut sizes: tokio::sync::mpsc::Receiver<crate::streaming::Size>) {
        while let Some(size) = sizes.recv().await {
            let resize = Resize {
                target: self.target.clone(),
                width: size.width,
                height: size.height,
            };
            if self.tty {
                // One that has ended meanwhile needs no size.
                let _ended = self.shim.resize(resize).await;
            }
        }
        std::future::pending().await
    }

    /// Nobody looks at the terminal any more.
    async fn hang_up(&self) {
        if !self.tty {
            return;
        }
        let kill = Kill {
            target: self.target.clone(),
            signal: SIGHUP,
            all: false,
        };
        let _ended = self.shim.kill(kill).await;
    }
}
