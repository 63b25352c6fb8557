//! Requests of CRI calls. The parameters of a session come only from the CRI request, never from its URL.

use http::Extensions;

use super::observe::SessionKind;
use super::runtime::{AttachRequest, ExecRequest};

/// Why a request is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// The id of the container is missing.
    #[error("container_id is missing")]
    NoContainer,
    /// The id of the sandbox is missing.
    #[error("pod_sandbox_id is missing")]
    NoSandbox,
    /// The command is missing.
    #[error("cmd is missing")]
    NoCommand,
    /// Standard error was requested together with a terminal, which has only one output.
    #[error("tty and stderr cannot both be set")]
    TtyWithStderr,
    /// No stream was requested.
    #[error("one of stdin, stdout and stderr must be set")]
    NoStream,
    /// Not a TCP port.
    #[error("port {0} is not between 1 and 65535")]
    Port(i32),
}

/// The standard streams of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error; excludes `tty`.
    pub stderr: bool,
    /// Set if the streams belong to a terminal.
    pub tty: bool,
}

impl StreamOptions {
    fn check(self) -> Result<Self, InvalidRequest> {
        if self.tty && self.stderr {
            return Err(InvalidRequest::TtyWithStderr);
        }
        if !(self.stdin || self.stdout || self.stderr) {
            return Err(InvalidRequest::NoStream);
        }
        Ok(self)
    }
}

/// The target of a session with standard streams.
#[derive(Debug)]
pub enum SessionTarget {
    /// Runs a command.
    Exec(ExecRequest),
    /// Connects to a running container.
    Attach(AttachRequest),
}

/// The request of a session.
#[derive(Debug)]
pub enum SessionRequest {
    /// Exec or attach, with these streams.
    Remote(SessionTarget, StreamOptions),
    /// Port-forward.
    Forward {
        /// Id of the pod sandbox.
        sandbox: String,
        /// The ports named in the request; only WebSocket channels use them.
        ports: Vec<u16>,
    },
}

/// The value of a token: the request, and the extensions for observers.
pub(super) struct PendingSession {
    pub(super) request: SessionRequest,
    pub(super) extensions: Extensions,
}

impl SessionRequest {
    /// Creates a request to run a command.
    ///
    /// # Errors
    /// If the container or the command is missing, or the streams exclude each other.
    pub fn exec(exec: ExecRequest, wanted: StreamOptions) -> Result<Self, InvalidRequest> {
        if exec.container.is_empty() {
            return Err(InvalidRequest::NoContainer);
        }
        let wanted = wanted.check()?;
        if exec.argv.is_empty() {
            return Err(InvalidRequest::NoCommand);
        }
        Ok(Self::Remote(SessionTarget::Exec(exec), wanted))
    }

    /// Creates a request to attach to a container.
    ///
    /// # Errors
    /// If the container is missing, or the streams exclude each other.
    pub fn attach(attach: AttachRequest, wanted: StreamOptions) -> Result<Self, InvalidRequest> {
        if attach.container.is_empty() {
            return Err(InvalidRequest::NoContainer);
        }
        Ok(Self::Remote(SessionTarget::Attach(attach), wanted.check()?))
    }

    /// Creates a request for connections to ports of a pod.
    ///
    /// # Errors
    /// If the sandbox is missing, or a port is not a TCP port.
    pub fn port_forward(sandbox: String, ports: &[i32]) -> Result<Self, InvalidRequest> {
        if sandbox.is_empty() {
            return Err(InvalidRequest::NoSandbox);
        }
        let ports = ports.iter().map(|port| match u16::try_from(*port) {
            Ok(0) | Err(_) => Err(InvalidRequest::Port(*port)),
            Ok(port) => Ok(port),
        });
        let ports = ports.collect::<Result<_, _>>()?;
        Ok(Self::Forward { sandbox, ports })
    }

    /// The kind of session.
    pub fn kind(&self) -> SessionKind {
        match self {
            Self::Remote(SessionTarget::Exec(_), _) => SessionKind::Exec,
            Self::Remote(SessionTarget::Attach(_), _) => SessionKind::Attach,
            Self::Forward { .. } => SessionKind::PortForward,
        }
    }

    /// Id of the container or sandbox.
    pub fn id(&self) -> &str {
        match self {
            Self::Remote(SessionTarget::Exec(exec), _) => &exec.container,
            Self::Remote(SessionTarget::Attach(attach), _) => &attach.container,
            Self::Forward { sandbox, .. } => sandbox,
        }
    }

    /// The command and its arguments.
    pub fn argv(&self) -> &[String] {
        match self {
            Self::Remote(SessionTarget::Exec(exec), _) => &exec.argv,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: StreamOptions = StreamOptions {
        stdin: false,
        stdout: true,
        stderr: false,
        tty: false,
    };

    fn invalid(container: &str, argv: &[&str], wanted: StreamOptions) -> Option<InvalidRequest> {
        let exec = ExecRequest {
            container: container.into(),
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            tty: wanted.tty,
        };
        SessionRequest::exec(exec, wanted).err()
    }

    #[test]
    fn invalid_exec_requests_are_rejected() {
        assert_eq!(invalid("c", &["true"], OUTPUT), None);
        assert_eq!(
            invalid("", &["true"], OUTPUT),
            Some(InvalidRequest::NoContainer)
        );
        assert_eq!(invalid("c", &[], OUTPUT), Some(InvalidRequest::NoCommand));
        let nothing = StreamOptions {
            stdout: false,
            ..OUTPUT
        };
        assert_eq!(
            invalid("c", &["true"], nothing),
            Some(InvalidRequest::NoStream)
        );
        let both = StreamOptions {
            tty: true,
            stderr: true,
            ..OUTPUT
        };
        assert_eq!(
            invalid("c", &["true"], both),
            Some(InvalidRequest::TtyWithStderr)
        );
    }

    #[test]
    fn invalid_attach_requests_are_rejected() {
        let attach = |container: &str, tty, stderr| {
            let attach = AttachRequest {
                container: container.into(),
                tty,
            };
            let wanted = StreamOptions {
                stdout: false,
                tty,
                stderr,
                ..OUTPUT
            };
            SessionRequest::attach(attach, wanted).err()
        };
        assert_eq!(attach("c", false, true), None);
        assert_eq!(attach("", false, true), Some(InvalidRequest::NoContainer));
        assert_eq!(attach("c", true, true), Some(InvalidRequest::TtyWithStderr));
        assert_eq!(attach("c", true, false), Some(InvalidRequest::NoStream));
    }

    #[test]
    fn only_tcp_ports_are_accepted() {
        let forward =
            |id: &str, ports: &[i32]| SessionRequest::port_forward(id.into(), ports).err();
        assert_eq!(forward("s", &[]), None);
        assert_eq!(forward("s", &[1, 65535]), None);
        assert_eq!(forward("", &[]), Some(InvalidRequest::NoSandbox));
        for port in [0, -1, 65536] {
            assert_eq!(forward("s", &[80, port]), Some(InvalidRequest::Port(port)));
        }
    }
}
