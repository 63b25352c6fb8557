//! One session: standard streams, the size of the terminal and signals, until the command has ended.

use std::future::{pending, poll_fn};
use std::io;
use std::os::fd::AsFd;
use std::task::Poll;
use std::time::Duration;

use cri_streaming::client::{
    CommandEvent, CommandInput, CommandOutput, CommandResult, UpgradeError, run_command,
};
use cri_streaming::{StreamOptions, Transport};
use http::Uri;
use http::uri::Scheme;
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, WriteHalf};
use tokio::net::TcpStream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

use super::Error;
use super::terminal::{self, RawTerminalMode};
use super::tls;
use crate::cli::CommandFailure;

/// Bytes of standard input in one message.
const STDIN_CHUNK_BYTES: usize = 32 << 10;

/// Bytes of the status at the end of a session.
const MAX_STATUS_BYTES: usize = 64 << 10;

/// A session that the runtime has granted.
#[derive(Debug)]
pub(super) struct ExecSession<'a> {
    pub(super) url: &'a str,
    pub(super) transport: Transport,
    pub(super) has_stdin: bool,
    pub(super) has_tty: bool,
    /// For the connection and the upgrade.
    pub(super) patience: Duration,
}

impl ExecSession<'_> {
    /// Connects, and returns the exit code of the command, or 128 and the number of a signal.
    pub(super) async fn run(&self, tls: &tls::TlsVerification<'_>) -> Result<i32, CommandFailure> {
        let server = SessionServer::from_url(self.url)?;
        let connecting = TcpStream::connect((server.host.as_str(), server.port));
        let tcp = timeout(self.patience, connecting).await;
        let tcp = tcp.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let tcp = tcp.map_err(|source| Error::Connect {
            address: server.address(),
            source,
        })?;
        // A key that is typed is sent at once.
        tcp.set_nodelay(true)?;
        if !server.is_tls {
            return self.begin(tcp).await;
        }
        let tls = timeout(self.patience, tls.connect(&server.host, tcp)).await;
        let tls = tls.unwrap_or_else(|_| {
            Err(tls::Error::Handshake {
                host: server.host.clone(),
                source: io::ErrorKind::TimedOut.into(),
            })
        });
        self.begin(tls.map_err(Error::from)?).await
    }

    async fn begin<T: AsyncRead + AsyncWrite + Unpin>(&self, io: T) -> Result<i32, CommandFailure> {
        let streams = StreamOptions {
            stdin: self.has_stdin,
            stdout: true,
            stderr: !self.has_tty,
            tty: self.has_tty,
        };
        let beginning = run_command(io, self.url, self.transport, streams);
        let begun = timeout(self.patience, beginning).await;
        let begun = begun.unwrap_or_else(|_| {
            let late = io::Error::from(io::ErrorKind::TimedOut);
            Err(UpgradeError::Io(late))
        });
        let (input, mut output) = begun.map_err(Error::from)?;
        let mut ends = SessionEndSignals::new()?;
        let sizes = if self.has_tty {
            Some(signal(SignalKind::window_change())?)
        } else {
            None
        };
        let _raw = if self.has_stdin && self.has_tty {
            RawTerminalMode::begin()?
        } else {
            None
        };
        let stdin = if self.has_stdin {
            Some(standard(&io::stdin())?)
        } else {
            None
        };
        tokio::select! {
            code = print(&mut output) => code,
            signal = ends.next() => Ok(128 + signal),
            never = feed(input, stdin, sizes) => never,
        }
    }
}

/// The server that the URL of a session names.
#[derive(Debug, PartialEq, Eq)]
struct SessionServer {
    is_tls: bool,
    host: String,
    port: u16,
}

impl SessionServer {
    fn from_url(url: &str) -> Result<Self, Error> {
        Self::parse(url).map_err(|reason| {
            // The last part is the token.
            let shown = url.rsplit_once('/').map_or("", |(shown, _)| shown);
            let url = shown.to_owned();
            Error::Url { url, reason }
        })
    }

    fn parse(url: &str) -> Result<Self, &'static str> {
        let uri: Uri = url.parse().map_err(|_| "it is no URL")?;
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err("its scheme is neither http nor https"),
        };
        let host = uri.host().filter(|host| !host.is_empty());
        let host = host.ok_or("it has no host")?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok(Self {
            is_tls,
            host: host.to_owned(),
            port: uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
        })
    }

    fn address(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }
}

/// A standard stream for reads and writes that block a thread of the pool. It has no buffer that waits for the end of a line.
fn standard(stream: &impl AsFd) -> io::Result<File> {
    let own = stream.as_fd().try_clone_to_owned()?;
    Ok(File::from_std(own.into()))
}

/// Sends standard input and the sizes of the terminal. Never returns: a server that takes no more may still have output.
async fn feed<T: AsyncRead + AsyncWrite + Unpin>(
    mut input: CommandInput<WriteHalf<T>>,
    mut stdin: Option<File>,
    mut sizes: Option<Signal>,
) -> Result<i32, CommandFailure> {
    let mut chunk = vec![0; STDIN_CHUNK_BYTES];
    let mut sent = match (&sizes, terminal::size()) {
        (Some(_), Some(size)) => input.resize(size).await,
        _ => Ok(()),
    };
    while sent.is_ok() {
        sent = tokio::select! {
            read = next(&mut stdin, &mut chunk) => match read {
                0 => {
                    stdin = None;
                    input.finish().await
                }
                n => input.send(&chunk[..n]).await,
            },
            () = changed(&mut sizes) => match terminal::size() {
                Some(size) => input.resize(size).await,
                None => Ok(()),
            },
        };
    }
    pending().await
}

/// Waits for input; 0 at its end. An error counts as the end: the terminal was hung up.
async fn next(stdin: &mut Option<File>, chunk: &mut [u8]) -> usize {
    match stdin {
        Some(stdin) => stdin.read(chunk).await.unwrap_or(0),
        None => pending().await,
    }
}

async fn changed(sizes: &mut Option<Signal>) {
    match sizes {
        Some(sizes) => {
            sizes.recv().await;
        }
        None => pending().await,
    }
}

/// Prints all output, and returns the exit code.
async fn print<R: AsyncRead + Unpin>(output: &mut CommandOutput<R>) -> Result<i32, CommandFailure> {
    let (mut out, mut err) = (standard(&io::stdout())?, standard(&io::stderr())?);
    let mut status = Vec::new();
    while let Some(event) = output.next().await.map_err(Error::Lost)? {
        match event {
            CommandEvent::Stdout(bytes) => {
                out.write_all(&bytes).await?;
                out.flush().await?;
            }
            CommandEvent::Stderr(bytes) => {
                err.write_all(&bytes).await?;
                err.flush().await?;
            }
            CommandEvent::Status(bytes) if status.len() + bytes.len() <= MAX_STATUS_BYTES => {
                status.extend(bytes);
            }
            CommandEvent::Status(_) => {
                let large = io::Error::other("its status is too large");
                return Err(Error::Lost(large).into());
            }
        }
    }
    Ok(result(&status)?)
}

/// The exit code in the status of a session.
fn result(status: &[u8]) -> Result<i32, Error> {
    match CommandResult::parse(status) {
        CommandResult::Exited(code) => Ok(code),
        CommandResult::Unknown if status.is_empty() => {
            Err(Error::Lost(io::Error::other("it has no status")))
        }
        CommandResult::Failed | CommandResult::Unknown => {
            let parsed: serde_json::Value = serde_json::from_slice(status).unwrap_or_default();
            let message = parsed["message"].as_str().map(str::to_owned);
            let message = message.unwrap_or_else(|| String::from_utf8_lossy(status).into_owned());
            Err(Error::NotRun(message))
        }
    }
}

fn numbered_signal(kind: SignalKind) -> io::Result<(i32, Signal)> {
    Ok((kind.as_raw_value(), signal(kind)?))
}

/// The signals that end a session. A terminal in raw mode sends none of them.
struct SessionEndSignals([(i32, Signal); 4]);

impl SessionEndSignals {
    fn new() -> io::Result<Self> {
        Ok(Self([
            numbered_signal(SignalKind::interrupt())?,
            numbered_signal(SignalKind::terminate())?,
            numbered_signal(SignalKind::hangup())?,
            numbered_signal(SignalKind::quit())?,
        ]))
    }

    /// Returns the number of the next one.
    async fn next(&mut self) -> i32 {
        poll_fn(|context| {
            for (number, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lead_to_servers() {
        for (url, is_tls, address) in [
            ("http://127.0.0.1:7/exec/t", false, "127.0.0.1:7"),
            ("https://[::1]:7/exec/t?x", true, "[::1]:7"),
            ("https://node/exec/t", true, "node:443"),
            ("HTTP://node/exec/t", false, "node:80"),
        ] {
            let server = SessionServer::from_url(url).expect(url);
            assert_eq!(
                (server.is_tls, server.address().as_str()),
                (is_tls, address)
            );
        }
        for url in [
            "",
            "/exec/t0ken",
            "unix:///exec/t0ken",
            "http:///exec/t0ken",
            "ftp://a/t0ken",
        ] {
            let error = SessionServer::from_url(url).expect_err(url).to_string();
            assert!(!error.contains("t0ken"), "{error}");
        }
    }

    #[test]
    fn the_status_of_a_session_is_told() {
        let failed = br#"{"status":"Failure","message":"no such file","code":500}"#;
        let message = |status: &[u8]| result(status).expect_err("failed").to_string();
        assert_eq!(message(failed), "no such file");
        assert_eq!(
            message(b"plain text of version 1"),
            "plain text of version 1"
        );
        assert!(message(b"").contains("it has no status"));
        assert_eq!(result(br#"{"status":"Success"}"#).ok(), Some(0));
    }
}
