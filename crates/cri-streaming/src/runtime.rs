//! What serves a session: the seam between the protocols of this module and the runtime behind it.

use std::fmt;
use std::io;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Bytes that come from the client.
pub type Input = Box<dyn AsyncRead + Send + Unpin>;
/// Bytes that go to the client.
pub type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// A command to run in a container. Its `Debug` leaves out the arguments, which may hold secrets.
pub struct Exec {
    /// Id of the container.
    pub container: String,
    /// The command and its arguments, without a shell.
    pub argv: Vec<String>,
    /// Whether it gets a terminal.
    pub tty: bool,
}

impl fmt::Debug for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exec")
            .field("container", &self.container)
            .field("tty", &self.tty)
            .finish_non_exhaustive()
    }
}

/// A container to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// Id of the container.
    pub container: String,
    /// Whether the container has a terminal.
    pub tty: bool,
}

/// The size of a terminal in characters; both are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// The standard streams of one session, as the client asked for them.
///
/// Whoever has been given them need not close anything: when the future of [`StreamingRuntime::exec`] or [`StreamingRuntime::attach`] ends,
/// what was written is sent, then the ends of the streams, then the result.
pub struct Streams {
    /// Standard input. It ends when the client has closed its side or has gone; one that is dropped is read on and
    /// thrown away, so that it cannot hold up the other streams of the connection.
    pub stdin: Option<Input>,
    /// Standard output. Writing waits while the client does not read, and fails once it has gone.
    pub stdout: Option<Output>,
    /// Standard error; never there together with a terminal.
    pub stderr: Option<Output>,
    /// Sizes of the client's terminal. Only the last ones are kept if they are not fetched.
    pub resize: mpsc::Receiver<Size>,
    /// Fires when the client has gone or the session was ended from our side. The future runs on until it returns by
    /// itself: what happens to a command without a client is for the target to decide.
    pub gone: CancellationToken,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams")
            .field("stdin", &self.stdin.is_some())
            .field("stdout", &self.stdout.is_some())
            .field("stderr", &self.stderr.is_some())
            .finish_non_exhaustive()
    }
}

/// Why a session could not be served. The text is shown to the client, and must hold no argument of a command.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The container or sandbox is not there, or does not run.
    #[error("{0}")]
    NotRunning(String),
    /// The port cannot be reached.
    #[error("{0}")]
    Dial(#[from] io::Error),
    /// The command could not be started, or the streams of the container not be reached.
    #[error("{0}")]
    Failed(String),
}

/// What serves sessions.
pub trait StreamingRuntime: Send + Sync + 'static {
    /// Runs a command; returns its exit code: 0 to 255, 128 + n for signal n.
    ///
    /// # Errors
    /// If the command could not be run.
    fn exec(&self, exec: Exec, streams: Streams) -> BoxFuture<'static, Result<i32, RuntimeError>>;

    /// Connects to the standard streams of a running container, until it ends or the client goes.
    ///
    /// # Errors
    /// If there is nothing to connect to.
    fn attach(
        &self,
        attach: Attach,
        streams: Streams,
    ) -> BoxFuture<'static, Result<(), RuntimeError>>;

    /// Opens a TCP connection to a port on loopback inside the pod's network namespace: IPv4 first, then IPv6. For a pod
    /// in the host's network, that is the host's loopback.
    ///
    /// # Errors
    /// If neither accepts.
    fn dial(&self, sandbox: &str, port: u16)
    -> BoxFuture<'static, Result<TcpStream, RuntimeError>>;
}
