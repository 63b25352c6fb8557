//! The status at the end of a session: a Kubernetes `KubernetesStatus` in JSON from version 4 on; in earlier versions plain text,
//! for failures only.

use serde::Serialize;
use serde_json::Value;

use crate::context::StopReason;
use crate::runtime::RuntimeError;

const SUCCESS: &str = "Success";
const FAILURE: &str = "Failure";
const NON_ZERO_EXIT_CODE: &str = "NonZeroExitCode";
const EXIT_CODE: &str = "ExitCode";

/// The result of an exec or attach session, as reported by the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandResult {
    /// The command exited with this code; attach reports 0.
    Exited(i32),
    /// The server could not run the command, or ended the session.
    Failed,
    /// The status is not one of version 4 or later; earlier versions report failures as plain text.
    Unknown,
}

impl CommandResult {
    /// Parses the complete status, a Kubernetes `KubernetesStatus` in JSON.
    #[must_use]
    pub fn parse(status: &[u8]) -> Self {
        let status: Value = serde_json::from_slice(status).unwrap_or_default();
        let exit_code = match status["status"].as_str() {
            Some(SUCCESS) => Some(0),
            _ if status["reason"] == NON_ZERO_EXIT_CODE => status["details"]["causes"]
                .as_array()
                .and_then(|causes| causes.iter().find(|cause| cause["reason"] == EXIT_CODE))
                .and_then(|cause| cause["message"].as_str()?.parse().ok()),
            _ => None,
        };
        match exit_code {
            Some(code) => Self::Exited(code),
            None if status["status"] == FAILURE => Self::Failed,
            None => Self::Unknown,
        }
    }
}

/// The result of a command, or of attaching to a container.
#[derive(Debug)]
pub(super) enum CommandStatus {
    /// The command exited with this code, or the attached container has ended (0).
    Code(i32),
    /// The command could not be run.
    NotRun(RuntimeError),
    /// Attaching to the container failed, or was interrupted.
    NotAttached(RuntimeError),
    /// The server ended the session; the command may still be running.
    Cut(StopReason),
}

#[derive(Serialize)]
struct KubernetesStatus<'a> {
    status: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<StatusDetails>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
}

#[derive(Serialize)]
struct StatusDetails {
    causes: [StatusCause; 1],
}

/// The type of the cause is in the field `reason`, as in Kubernetes' `StatusCause`.
#[derive(Serialize)]
struct StatusCause {
    reason: &'static str,
    message: String,
}

impl CommandStatus {
    fn message(&self) -> Option<String> {
        match self {
            Self::Code(0) => None,
            Self::Code(code) => Some(format!(
                "command terminated with non-zero exit code: exit code {code}"
            )),
            Self::NotRun(error) => Some(format!(
                "Internal error occurred: error executing command in container: {error}"
            )),
            Self::NotAttached(error) => Some(format!(
                "Internal error occurred: error attaching to container: {error}"
            )),
            Self::Cut(ending) => {
                let why = match ending {
                    StopReason::Idle => "nothing was sent either way for too long",
                    StopReason::Shutdown => "criscope is being stopped",
                };
                Some(format!(
                    "Internal error occurred: the session was ended: {why}"
                ))
            }
        }
    }

    /// The message for the error stream in this protocol version; may be empty.
    pub(super) fn message_for(&self, version: u8) -> Vec<u8> {
        let message = self.message();
        if version < 4 {
            return message.unwrap_or_default().into_bytes();
        }
        let (status, reason, details, code) = match self {
            Self::Code(0) => (SUCCESS, "", None, None),
            Self::Code(code) => {
                let cause = StatusCause {
                    reason: EXIT_CODE,
                    message: code.to_string(),
                };
                let details = StatusDetails { causes: [cause] };
                (FAILURE, NON_ZERO_EXIT_CODE, Some(details), None)
            }
            Self::NotRun(_) | Self::NotAttached(_) | Self::Cut(_) => {
                (FAILURE, "InternalError", None, Some(500))
            }
        };
        let status = KubernetesStatus {
            status,
            message: message.as_deref().unwrap_or_default(),
            reason,
            details,
            code,
        };
        // Serialization of strings and numbers does not fail.
        serde_json::to_vec(&status).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(end: &CommandStatus, version: u8) -> String {
        String::from_utf8(end.message_for(version)).expect("text")
    }

    #[test]
    fn success_has_no_message_before_version_4() {
        assert_eq!(text(&CommandStatus::Code(0), 3), "");
        assert_eq!(text(&CommandStatus::Code(0), 4), r#"{"status":"Success"}"#);
        assert_eq!(text(&CommandStatus::Code(0), 5), r#"{"status":"Success"}"#);
    }

    #[test]
    fn an_exit_code_is_reported_as_a_cause() {
        let end = CommandStatus::Code(137);
        let message = "command terminated with non-zero exit code: exit code 137";
        assert_eq!(text(&end, 1), message);
        assert_eq!(
            text(&end, 4),
            format!(
                r#"{{"status":"Failure","message":"{message}","reason":"NonZeroExitCode","details":{{"causes":[{{"reason":"ExitCode","message":"137"}}]}}}}"#
            )
        );
    }

    #[test]
    fn the_client_parses_the_status_of_the_server() {
        let parsed = |end: CommandStatus, version| CommandResult::parse(&end.message_for(version));
        assert_eq!(parsed(CommandStatus::Code(0), 4), CommandResult::Exited(0));
        assert_eq!(
            parsed(CommandStatus::Code(137), 5),
            CommandResult::Exited(137)
        );
        let not_run = CommandStatus::NotRun(RuntimeError::Failed("no such file".into()));
        assert_eq!(parsed(not_run, 4), CommandResult::Failed);
        assert_eq!(parsed(CommandStatus::Code(137), 3), CommandResult::Unknown);
        for status in ["", "{", "[]", "7", r#"{"reason":"NonZeroExitCode"}"#] {
            let result = CommandResult::parse(status.as_bytes());
            assert_eq!(result, CommandResult::Unknown, "{status}");
        }
    }

    #[test]
    fn a_session_ended_by_the_server_is_a_failure() {
        let end = CommandStatus::Cut(StopReason::Idle);
        let message = "Internal error occurred: the session was ended: nothing was sent either way for too long";
        assert_eq!(text(&end, 1), message);
        let status = text(&end, 4);
        assert!(status.starts_with(r#"{"status":"Failure""#), "{status}");
        assert!(status.contains(message), "{status}");
    }

    #[test]
    fn a_failure_has_a_message() {
        let end = CommandStatus::NotAttached(RuntimeError::Failed("it is gone".into()));
        let message = "Internal error occurred: error attaching to container: it is gone";
        assert_eq!(text(&end, 2), message);
        let end = CommandStatus::NotRun(RuntimeError::Failed("no \"such\" file".into()));
        let message = "Internal error occurred: error executing command in container: no";
        assert_eq!(text(&end, 2), format!("{message} \"such\" file"));
        assert_eq!(
            text(&end, 4),
            format!(
                r#"{{"status":"Failure","message":"{message} \"such\" file","reason":"InternalError","code":500}}"#
            )
        );
    }
}
