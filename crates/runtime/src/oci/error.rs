//! Errors of the OCI runtime.

use std::path::PathBuf;
use std::time::Duration;

use tonic::Code;

/// An error of an OCI runtime call. Messages are those of the runtime, shortened to one line.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// The program could not be started.
    #[error("start {path}: {source}")]
    Start {
        /// The program.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file for the program could not be written or read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The container does not exist.
    #[error("container {id} does not exist")]
    NotFound {
        /// The container.
        id: String,
    },
    /// A container with this id already exists.
    #[error("container {id} already exists")]
    AlreadyExists {
        /// The container.
        id: String,
    },
    /// The container is not running.
    #[error("container {id} is not running")]
    NotRunning {
        /// The container.
        id: String,
    },
    /// The container is not in the state that the verb needs.
    #[error("container {id}: {message}")]
    WrongState {
        /// The container.
        id: String,
        /// The message of the runtime.
        message: String,
    },
    /// The command of the container cannot be executed: it does not exist or is not a program.
    #[error("{message}")]
    Command {
        /// The message of the runtime.
        message: String,
    },
    /// The verb exceeded its timeout; the process and its children were killed.
    #[error("{verb} did not end within {after:?}")]
    Timeout {
        /// The verb.
        verb: &'static str,
        /// The limit.
        after: Duration,
    },
    /// The runtime does not have the verb.
    #[error("{verb} is not supported by {path}")]
    Unsupported {
        /// The verb.
        verb: &'static str,
        /// The program.
        path: PathBuf,
    },
    /// The output could not be parsed.
    #[error("{verb}: {reason}")]
    Answer {
        /// The verb.
        verb: &'static str,
        /// The problem.
        reason: String,
    },
    /// Any other failure.
    #[error("{verb} failed with {status}: {message}")]
    Failed {
        /// The verb.
        verb: &'static str,
        /// The exit status, such as `exit status: 1`.
        status: String,
        /// The message, one line of at most 1 KiB.
        message: String,
    },
}

impl OciError {
    /// The gRPC status code for the CRI caller.
    pub fn code(&self) -> Code {
        match self {
            Self::NotFound { .. } => Code::NotFound,
            Self::AlreadyExists { .. } => Code::AlreadyExists,
            Self::NotRunning { .. } | Self::WrongState { .. } => Code::FailedPrecondition,
            Self::Timeout { .. } => Code::DeadlineExceeded,
            Self::Unsupported { .. } => Code::Unimplemented,
            Self::Command { .. }
            | Self::Start { .. }
            | Self::Io { .. }
            | Self::Answer { .. }
            | Self::Failed { .. } => Code::Unknown,
        }
    }

    /// Classifies an error by its message, which runc and crun word differently.
    pub(crate) fn classify(verb: &'static str, id: &str, status: String, message: String) -> Self {
        let id = id.to_owned();
        if contains_any(
            &message,
            &[
                "container does not exist",
                "container doesn't exist",
                "/status`: No such file",
                "/status: No such file",
            ],
        ) {
            return Self::NotFound { id };
        }
        if contains_any(
            &message,
            &["container with given ID already exists", "already exists"],
        ) && verb == "create"
        {
            return Self::AlreadyExists { id };
        }
        if contains_any(
            &message,
            &[
                "container not running",
                "process already finished",
                "container is not running",
                "the container is not running",
                "no such process",
                "No such process",
            ],
        ) {
            return Self::NotRunning { id };
        }
        if contains_any(
            &message,
            &[
                "cannot start",
                "is not in created state",
                "is not stopped",
                "in the running state",
                "cannot exec",
                "already been run",
                "`exec.fifo`",
            ],
        ) {
            return Self::WrongState { id, message };
        }
        if contains_any(
            &message,
            &[
                "executable file not found",
                "exec format error",
                "exec: ",
                "executable file `",
            ],
        ) {
            return Self::Command { message };
        }
        Self::Failed {
            verb,
            status,
            message,
        }
    }
}

fn contains_any(message: &str, words: &[&str]) -> bool {
    words.iter().any(|word| message.contains(word))
}

#[cfg(test)]
mod tests {
    use super::OciError;

    #[test]
    fn messages_of_runc_and_crun_are_classified_alike() {
        for (verb, said, expected) in [
            ("state", "container does not exist", "NotFound"),
            (
                "state",
                "error opening file `/run/crun/x/status`: No such file or directory",
                "NotFound",
            ),
            (
                "create",
                "container with given ID already exists",
                "AlreadyExists",
            ),
            ("create", "container `x` already exists", "AlreadyExists"),
            ("kill", "container not running", "NotRunning"),
            ("kill", "kill container: No such process", "NotRunning"),
            ("exec", "cannot exec in a stopped container", "WrongState"),
            (
                "start",
                "cannot start a container that has stopped",
                "WrongState",
            ),
            (
                "start",
                "container `x` is not in created state",
                "WrongState",
            ),
            (
                "create",
                "unable to start container process: exec: \"x\": executable file not found in $PATH",
                "Command",
            ),
            (
                "create",
                "executable file `x` not found: No such file or directory",
                "Command",
            ),
            (
                "create",
                "error opening file `config.json`: No such file or directory",
                "Failed",
            ),
        ] {
            let error = OciError::classify(verb, "x", "exit status: 1".to_owned(), said.to_owned());
            let name = format!("{error:?}");
            assert!(name.starts_with(expected), "{said}: {name}");
        }
    }
}
