//! What a caller may ask for. The parameters of a session come from the CRI request alone, never from its URL.

use http::Extensions;

use super::observe::Kind;
use super::target::{Attach, Exec};

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
pub struct Wanted {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
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
pub enum Command {
    Exec(Exec),
    Attach(Attach),
}

/// What is to be served.
pub enum Request {
    Remote(Command, Wanted),
    Forward { sandbox: String, ports: Vec<u16> },
}

/// What a token stands for, and what its observers get.
pub(super) struct Asked {
    pub(super) request: Request,
    pub(super) extensions: Extensions,
}

impl Request {
    /// A command.
    ///
    /// # Errors
    /// If the container or the command is missing, or the streams exclude each other.
    pub fn exec(exec: Exec, wanted: Wanted) -> Result<Self, Invalid> {
        if exec.container.is_empty() {
            return Err(Invalid::NoContainer);
        }
        let wanted = wanted.check()?;
        if exec.argv.is_empty() {
            return Err(Invalid::NoCommand);
        }
        Ok(Self::Remote(Command::Exec(exec), wanted))
    }

    /// The standard streams of a container.
    ///
    /// # Errors
    /// If the container is missing, or the streams exclude each other.
    pub fn attach(attach: Attach, wanted: Wanted) -> Result<Self, Invalid> {
        if attach.container.is_empty() {
            return Err(Invalid::NoContainer);
        }
        Ok(Self::Remote(Command::Attach(attach), wanted.check()?))
    }

    /// Connections to ports of a pod.
    ///
    /// # Errors
    /// If the sandbox is missing, or a port is not a TCP port.
    pub fn port_forward(sandbox: String, ports: &[i32]) -> Result<Self, Invalid> {
        if sandbox.is_empty() {
            return Err(Invalid::NoSandbox);
        }
        let port = |port: &i32| match u16::try_from(*port) {
            Ok(0) | Err(_) => Err(Invalid::Port(*port)),
            Ok(port) => Ok(port),
        };
        Ok(Self::Forward {
            sandbox,
            ports: ports.iter().map(port).collect::<Result<_, _>>()?,
        })
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Remote(Command::Exec(_), _) => Kind::Exec,
            Self::Remote(Command::Attach(_), _) => Kind::Attach,
            Self::Forward { .. } => Kind::PortForward,
        }
    }

    /// Id of the container or sandbox.
    pub fn id(&self) -> &str {
        match self {
            Self::Remote(Command::Exec(exec), _) => &exec.container,
            Self::Remote(Command::Attach(attach), _) => &attach.container,
            Self::Forward { sandbox, .. } => sandbox,
        }
    }

    /// The command and its arguments.
    pub fn argv(&self) -> &[String] {
        match self {
            Self::Remote(Command::Exec(exec), _) => &exec.argv,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: Wanted = Wanted {
        stdin: false,
        stdout: true,
        stderr: false,
        tty: false,
    };

    fn invalid(container: &str, argv: &[&str], wanted: Wanted) -> Option<Invalid> {
        let exec = Exec {
            container: container.into(),
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            tty: wanted.tty,
        };
        Request::exec(exec, wanted).err()
    }

    #[test]
    fn an_exec_must_make_sense() {
        assert_eq!(invalid("c", &["true"], OUTPUT), None);
        assert_eq!(invalid("", &["true"], OUTPUT), Some(Invalid::NoContainer));
        assert_eq!(invalid("c", &[], OUTPUT), Some(Invalid::NoCommand));
        let nothing = Wanted {
            stdout: false,
            ..OUTPUT
        };
        assert_eq!(invalid("c", &["true"], nothing), Some(Invalid::NoStream));
        let both = Wanted {
            tty: true,
            stderr: true,
            ..OUTPUT
        };
        assert_eq!(invalid("c", &["true"], both), Some(Invalid::TtyWithStderr));
    }

    #[test]
    fn an_attach_must_make_sense() {
        let attach = |container: &str, tty, stderr| {
            let attach = Attach {
                container: container.into(),
                tty,
            };
            let wanted = Wanted {
                stdout: false,
                tty,
                stderr,
                ..OUTPUT
            };
            Request::attach(attach, wanted).err()
        };
        assert_eq!(attach("c", false, true), None);
        assert_eq!(attach("", false, true), Some(Invalid::NoContainer));
        assert_eq!(attach("c", true, true), Some(Invalid::TtyWithStderr));
        assert_eq!(attach("c", true, false), Some(Invalid::NoStream));
    }

    #[test]
    fn ports_are_tcp_ports() {
        let forward = |id: &str, ports: &[i32]| Request::port_forward(id.into(), ports).err();
        assert_eq!(forward("s", &[]), None);
        assert_eq!(forward("s", &[1, 65535]), None);
        assert_eq!(forward("", &[]), Some(Invalid::NoSandbox));
        for port in [0, -1, 65536] {
            assert_eq!(forward("s", &[80, port]), Some(Invalid::Port(port)));
        }
    }
}
