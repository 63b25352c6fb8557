//! The interface between the protocols of this crate and the runtime that provides commands, containers and ports.

use std::fmt;
use std::io;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Bytes from the client.
pub type InputStream = Box<dyn AsyncRead + Send + Unpin>;
/// Bytes to the client.
pub type OutputStream = Box<dyn AsyncWrite + Send + Unpin>;

/// A command to run in a container. Its `Debug` omits the arguments, which may contain secrets.
pub struct ExecRequest {
    /// Id of the container.
    pub container: String,
    /// The command and its arguments, without a shell.
    pub argv: Vec<String>,
    /// Set if a terminal is allocated for the command.
    pub tty: bool,
}

impl fmt::Debug for ExecRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exec")
            .field("container", &self.container)
            .field("tty", &self.tty)
            .finish_non_exhaustive()
    }
}

/// A container to attach to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachRequest {
    /// Id of the container.
    pub container: String,
    /// Set if the container has a terminal.
    pub tty: bool,
}

/// The size of a terminal in characters; both are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// The standard streams that the client requested for a session.
///
/// The runtime need not close the streams: when the future of [`StreamingRuntime::exec`] or [`StreamingRuntime::attach`] ends, pending
/// output is sent, then the ends of the streams, then the result.
pub struct SessionStreams {
    /// Standard input. It ends when the client has closed its half or has disconnected. After it is dropped, input is still
    /// read and discarded, so that it cannot block the other streams of the connection.
    pub stdin: Option<InputStream>,
    /// Standard output. Writes wait while the client does not read, and fail once it has disconnected.
    pub stdout: Option<OutputStream>,
    /// Standard error; always `None` with a terminal.
    pub stderr: Option<OutputStream>,
    /// Sizes of the client's terminal. If they are not received in time, only the last ones are kept.
    pub resize: mpsc::Receiver<TerminalSize>,
    /// Fires when the client has disconnected or the server has ended the session. The future is not cancelled: what
    /// happens to a command without a client is the runtime's decision.
    pub gone: CancellationToken,
}

impl fmt::Debug for SessionStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams")
            .field("stdin", &self.stdin.is_some())
            .field("stdout", &self.stdout.is_some())
            .field("stderr", &self.stderr.is_some())
            .finish_non_exhaustive()
    }
}

/// Why a session could not be served. The text is shown to the client, and must not contain arguments of a command.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The container or sandbox does not exist, or is not running.
    #[error("{0}")]
    NotRunning(String),
    /// The port refuses connections or cannot be reached.
    #[error("{0}")]
    Dial(#[from] io::Error),
    /// The command could not be started, or the streams of the container are not available.
    #[error("{0}")]
    Failed(String),
}

/// Runs commands and connects to containers and ports on behalf of sessions.
pub trait StreamingRuntime: Send + Sync + 'static {
    /// Runs a command; returns its exit code: 0 to 255, 128 + n for signal n.
    ///
    /// # Errors
    /// If the command could not be run.
    fn exec(
        &self,
        exec: ExecRequest,
        streams: SessionStreams,
    ) -> BoxFuture<'static, Result<i32, RuntimeError>>;

    /// Connects to the standard streams of a running container, until it ends or the client disconnects.
    ///
    /// # Errors
    /// If the container has no streams to connect to.
    fn attach(
        &self,
        attach: AttachRequest,
        streams: SessionStreams,
    ) -> BoxFuture<'static, Result<(), RuntimeError>>;

    /// Opens a TCP connection to a port on loopback inside the pod's network namespace: IPv4 first, then IPv6. For a pod
    /// in the host's network, that is the host's loopback.
    ///
    /// # Errors
    /// If neither accepts the connection.
    fn dial(&self, sandbox: &str, port: u16)
    -> BoxFuture<'static, Result<TcpStream, RuntimeError>>;
}
