//! `criscope exec`

mod session;
mod target;
mod terminal;
mod tls;

use std::io;
use std::path::PathBuf;

use cri_streaming::Transport;
use cri_streaming::client::UpgradeError;

use self::session::ExecSession;
use self::target::ExecTarget;
use super::CommandFailure;
use super::cri::{CriConnection, CriSocketArgs};
use crate::cri::v1;

/// Run a command in a container
///
/// Asks the CRI socket for a session and connects to it, like the kubelet for `kubectl exec`. It works without a kubelet and an
/// API server. With --upstream or another socket it runs the command in a container of that runtime. Exits with the code of the
/// command, with 128 plus the number of the signal that ended criscope, or with 1 if the command could not be run.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    socket: CriSocketArgs,
    /// Pass standard input to the command
    #[arg(long, short = 'i')]
    stdin: bool,
    /// Give the command a terminal
    #[arg(long, short)]
    tty: bool,
    /// Use ExecSync: the CRI socket alone, without a session. Output comes at the end, 16 MiB of it at most, and the command is
    /// killed after --timeout
    #[arg(long, conflicts_with_all = ["stdin", "tty", "transport", "tls_ca", "tls_server_name"])]
    sync: bool,
    /// Protocol of the session. Every runtime speaks SPDY; for WebSocket it needs version 5 of the protocol
    #[arg(long, value_enum, default_value = "spdy")]
    transport: SessionProtocol,
    /// Certificate authorities in PEM, for a runtime whose sessions use TLS [default: the system's]
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// The name in the certificate of the sessions [default: the host of their URL]
    #[arg(long, value_name = "NAME")]
    tls_server_name: Option<String>,
    /// The pod's namespace
    #[arg(long, short, value_name = "NS")]
    namespace: Option<String>,
    /// The container of the pod, if several run
    #[arg(long = "container", short = 'c', value_name = "NAME")]
    name: Option<String>,
    /// The container: its id or the beginning of it, NAMESPACE/POD/CONTAINER, or NAMESPACE/POD, POD or pod/POD if one container
    /// of the pod runs or -c names one
    #[arg(value_name = "CONTAINER")]
    container: String,
    /// The command with its arguments
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SessionProtocol {
    Spdy,
    Websocket,
}

impl From<SessionProtocol> for Transport {
    fn from(protocol: SessionProtocol) -> Self {
        match protocol {
            SessionProtocol::Spdy => Self::Spdy,
            SessionProtocol::Websocket => Self::WebSocket,
        }
    }
}

/// Why a command was not run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such container, or several.
    #[error(transparent)]
    Target(#[from] target::Error),
    /// The URL of the session cannot be used.
    #[error("the runtime answered with the URL {url:?}: {reason}")]
    Url {
        /// The URL, without the token.
        url: String,
        /// The reason.
        reason: &'static str,
    },
    /// The server of the sessions cannot be reached.
    #[error("cannot connect to {address}, where the runtime serves sessions: {source}")]
    Connect {
        /// Host and port.
        address: String,
        /// The reason.
        source: io::Error,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] tls::Error),
    /// The server of the sessions refuses.
    #[error("cannot begin the session: {0}")]
    Upgrade(#[from] UpgradeError),
    /// The connection broke, or ended before the command did.
    #[error("the session was lost, and the command may still be running: {0}")]
    Lost(io::Error),
    /// The runtime could not run the command, or ended the session.
    #[error("{0}")]
    NotRun(String),
}

impl Error {
    /// A recommendation for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Target(error) => error.hint(),
            Self::Connect { .. } => {
                Some("without -i and -t, --sync runs a command over the CRI socket alone")
            }
            Self::Upgrade(UpgradeError::Refused(_)) => {
                Some("the runtime may speak another --transport")
            }
            _ => None,
        }
    }
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    CriConnection::run(&args.socket, async |cri| {
        let (sandboxes, containers) = (cri.sandboxes().await?, cri.containers().await?);
        let target = ExecTarget {
            text: &args.container,
            namespace: args.namespace.as_deref(),
            container: args.name.as_deref(),
        };
        let id = target.find(&sandboxes, &containers).map_err(Error::from)?;
        let code = if args.sync {
            sync(cri, id, &args.command).await?
        } else {
            session(cri, id, args).await?
        };
        match code {
            0 => Ok(()),
            code => Err(CommandFailure::Command(exit_code(code))),
        }
    })
}

/// Never that of success; a code of Windows does not fit.
fn exit_code(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(1)
}

async fn sync(cri: &CriConnection, id: &str, command: &[String]) -> Result<i32, CommandFailure> {
    let answer = cri.exec_sync(id, command).await?;
    write(io::stdout(), &answer.stdout)?;
    write(io::stderr(), &answer.stderr)?;
    Ok(answer.exit_code)
}

fn write(mut out: impl io::Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(bytes)?;
    out.flush()
}

async fn session(cri: &CriConnection, id: &str, args: &Args) -> Result<i32, CommandFailure> {
    let request = v1::ExecRequest {
        container_id: id.to_owned(),
        cmd: args.command.clone(),
        tty: args.tty,
        stdin: args.stdin,
        stdout: true,
        // A terminal has one output.
        stderr: !args.tty,
    };
    let url = cri.exec(request).await?;
    let tls = tls::TlsVerification {
        authorities: args.tls_ca.as_deref(),
        server_name: args.tls_server_name.as_deref(),
    };
    let session = ExecSession {
        url: &url,
        transport: args.transport.into(),
        has_stdin: args.stdin,
        has_tty: args.tty,
        patience: cri.timeout(),
    };
    session.run(&tls).await
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::{CliCommand, CommandLine};
    use super::*;

    fn parsed(line: &str) -> Args {
        let words = ["criscope", "exec"].into_iter().chain(line.split(' '));
        match CommandLine::try_parse_from(words).expect(line).command {
            CliCommand::Exec(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_after_the_container_belong_to_the_command() {
        let args = parsed("-it c1 -- ls -i --sync /");
        assert!(args.stdin && args.tty && !args.sync);
        assert_eq!(args.command, ["ls", "-i", "--sync", "/"]);
        let args = parsed("--sync a/b/c ls -t");
        assert!(args.sync && !args.tty);
        assert_eq!((args.container.as_str(), args.command.len()), ("a/b/c", 2));
        let args = parsed("-n shop -c app web -- ls -n");
        let named = (args.namespace.as_deref(), args.name.as_deref());
        assert_eq!(
            (named, args.command.len()),
            ((Some("shop"), Some("app")), 2)
        );
        let parse = |words: &[&str]| CommandLine::try_parse_from(words).is_err();
        assert!(parse(&["criscope", "exec", "c1"]), "no command");
        assert!(parse(&["criscope", "exec", "--sync", "-i", "c1", "ls"]));
    }

    #[test]
    fn a_failed_command_never_looks_like_success() {
        for (code, shown) in [(1, 1), (255, 255), (256, 1), (-1, 1)] {
            assert_eq!(exit_code(code), shown, "{code}");
        }
    }
}
