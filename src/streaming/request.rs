//! What a caller may ask for. The parameters of a session come from the CRI request alone, never from its URL.

use std::sync::Arc;

use super::observe::Kind;
use super::target::{Attach, Exec};
use crate::call::Call;
use crate::cri::v1;

/// What is wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// No container is named.
    #[error("container_id is missing")]
    NoContainer,
    /// No sandbox is named.
    #[error("pod_sandbox_id is missing")]
    NoSandbox,
    /// There is nothing to run.
    #[error("cmd is missing")]
    NoCommand,
    /// A terminal has one output only.
    #[error("tty and stderr cannot both be set")]
    TtyWithStderr,
    /// Such a session would carry nothing.
    #[error("one of stdin, stdout and stderr must be set")]
    NoStream,
    /// Not a TCP port.
    #[error("port {0} is not between 1 and 65535")]
    Port(i32),
}

/// Which standard streams a session has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

impl Wanted {
    fn check(self) -> Result<Self, Invalid> {
        if self.tty && self.stderr {
            return Err(Invalid::TtyWithStderr);
        }
        if !(self.stdin || self.stdout || self.stderr) {
            return Err(Invalid::NoStream);
        }
        Ok(self)
    }
}

/// What runs behind a session with standard streams.
pub(super) enum Command {
    Exec(Exec),
    Attach(Attach),
}

/// What is to be served.
pub(super) enum Request {
    Remote(Command, Wanted),
    Forward { sandbox: String, ports: Vec<u16> },
}

/// What a token stands for, and the call that asked for it.
pub(super) struct Asked {
    pub(super) request: Request,
    pub(super) call: Option<Arc<Call>>,
}

impl Request {
    pub(super) fn exec(request: v1::ExecRequest) -> Result<Self, Invalid> {
        if request.container_id.is_empty() {
            return Err(Invalid::NoContainer);
        }
        let wanted = Wanted {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            tty: request.tty,
        }
        .check()?;
        if request.cmd.is_empty() {
            return Err(Invalid::NoCommand);
        }
        let exec = Exec {
            container: request.container_id,
            argv: request.cmd,
            tty: request.tty,
        };
        Ok(Self::Remote(Command::Exec(exec), wanted))
    }

    pub(super) fn attach(request: v1::AttachRequest) -> Result<Self, Invalid> {
        if request.container_id.is_empty() {
            return Err(Invalid::NoContainer);
        }
        let wanted = Wanted {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            tty: request.tty,
        }
        .check()?;
        let attach = Attach {
            container: request.container_id,
            tty: request.tty,
        };
        Ok(Self::Remote(Command::Attach(attach), wanted))
    }

    pub(super) fn port_forward(request: v1::PortForwardRequest) -> Result<Self, Invalid> {
        if request.pod_sandbox_id.is_empty() {
            return Err(Invalid::NoSandbox);
        }
        let port = |port: i32| match u16::try_from(port) {
            Ok(0) | Err(_) => Err(Invalid::Port(port)),
            Ok(port) => Ok(port),
        };
        Ok(Self::Forward {
            sandbox: request.pod_sandbox_id,
            ports: request
                .port
                .into_iter()
                .map(port)
                .collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Remote(Command::Exec(_), _) => Kind::Exec,
            Self::Remote(Command::Attach(_), _) => Kind::Attach,
            Self::Forward { .. } => Kind::PortForward,
        }
    }

    /// Id of the container or sandbox.
    pub(super) fn id(&self) -> &str {
        match self {
            Self::Remote(Command::Exec(exec), _) => &exec.container,
            Self::Remote(Command::Attach(attach), _) => &attach.container,
            Self::Forward { sandbox, .. } => sandbox,
        }
    }

    /// The command and its arguments.
    pub(super) fn argv(&self) -> &[String] {
        match self {
            Self::Remote(Command::Exec(exec), _) => &exec.argv,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec() -> v1::ExecRequest {
        v1::ExecRequest {
            container_id: "c".into(),
            cmd: vec!["true".into()],
            stdout: true,
            ..Default::default()
        }
    }

    fn invalid(request: v1::ExecRequest) -> Option<Invalid> {
        Request::exec(request).err()
    }

    #[test]
    fn an_exec_must_make_sense() {
        assert_eq!(invalid(exec()), None);
        let mut request = exec();
        request.container_id.clear();
        assert_eq!(invalid(request), Some(Invalid::NoContainer));
        let mut request = exec();
        request.cmd.clear();
        assert_eq!(invalid(request), Some(Invalid::NoCommand));
        let mut request = exec();
        request.stdout = false;
        assert_eq!(invalid(request), Some(Invalid::NoStream));
        let mut request = exec();
        (request.tty, request.stderr) = (true, true);
        assert_eq!(invalid(request), Some(Invalid::TtyWithStderr));
    }

    #[test]
    fn an_attach_must_make_sense() {
        let attach = |container_id: &str, tty, stderr| {
            let request = v1::AttachRequest {
                container_id: container_id.into(),
                tty,
                stderr,
                ..Default::default()
            };
            Request::attach(request).err()
        };
        assert_eq!(attach("c", false, true), None);
        assert_eq!(attach("", false, true), Some(Invalid::NoContainer));
        assert_eq!(attach("c", true, true), Some(Invalid::TtyWithStderr));
        assert_eq!(attach("c", true, false), Some(Invalid::NoStream));
    }

    #[test]
    fn ports_are_tcp_ports() {
        let forward = |id: &str, port| {
            let request = v1::PortForwardRequest {
                pod_sandbox_id: id.into(),
                port,
            };
            Request::port_forward(request).err()
        };
        assert_eq!(forward("s", vec![]), None);
        assert_eq!(forward("s", vec![1, 65535]), None);
        assert_eq!(forward("", vec![]), Some(Invalid::NoSandbox));
        for port in [0, -1, 65536] {
            assert_eq!(forward("s", vec![80, port]), Some(Invalid::Port(port)));
        }
    }
}
