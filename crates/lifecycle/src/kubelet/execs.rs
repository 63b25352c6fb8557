//! Commands that the kubelet runs in containers by ExecSync. Exec probes have the timeout of the probe; postStart and preStop
//! hooks have none. `kubectl exec` uses Exec, another method. HTTP, TCP and gRPC probes are no CRI calls.

use std::fmt;

use serde::{Deserialize, Serialize};

use criscope_cri::call::{CallFacts, CallRecord, Ending};
use criscope_cri::error_chain;
use criscope_cri::status::Code;

/// Longest error of a runtime that is kept of a probe, in bytes.
const MAX_ERROR_BYTES: usize = 160;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExecResult {
    /// It exited with this code.
    Exit(i32),
    /// It was killed at its timeout.
    TimedOut,
    /// It was not run within its timeout: the processes of the container are frozen.
    Frozen,
    /// The kubelet broke it off.
    Cancelled,
    /// The runtime could not run it.
    Error,
}

impl ExecResult {
    /// The result of an ExecSync that has ended.
    pub(crate) fn from_record(record: &CallRecord) -> Self {
        let code = record.outcome().map(|outcome| outcome.code);
        match record.facts {
            CallFacts::Exec {
                exit_code: Some(code),
                ..
            } if record.has_ended(Ending::Ok) => Self::Exit(code),
            _ if code == Some(Code::DeadlineExceeded) => {
                // The built-in runtime says so.
                let is_frozen = record
                    .error()
                    .is_some_and(|text| text.contains(" is frozen"));
                if is_frozen {
                    Self::Frozen
                } else {
                    Self::TimedOut
                }
            }
            _ if record.has_ended(Ending::Cancelled) => Self::Cancelled,
            _ => Self::Error,
        }
    }

    /// Returns whether it failed. A command that the kubelet broke off, as at the deletion of its pod, has not.
    pub(crate) fn has_failed(self) -> bool {
        !self.is_good() && self != Self::Cancelled
    }

    /// Returns whether it succeeded.
    pub(crate) fn is_good(self) -> bool {
        self == Self::Exit(0)
    }
}

impl fmt::Display for ExecResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exit code {code}"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Frozen => f.write_str("timed out, since the container was frozen"),
            Self::Cancelled => f.write_str("cancelled by the kubelet"),
            Self::Error => f.write_str("could not be run"),
        }
    }
}

/// The program that an error text of runc, crun or the built-in runtime names.
pub(crate) fn program(text: &str) -> Option<&str> {
    let named = [
        ("exec: \"", "\""),
        ("executable file `", "`"),
        ("exec container process `", "`"),
        ("exec container process (missing dynamic library?) `", "`"),
        ("exec /", ":"),
    ];
    named.iter().find_map(|(before, after)| {
        // The slash of a path is part of it.
        let skipped = before.trim_end_matches('/').len();
        let begin = text.find(before)? + skipped;
        let length = text[begin..].find(after)?;
        Some(&text[begin..begin + length])
    })
}

/// Why the runtime could not run a command, in a few words.
pub(crate) fn error_words(record: &CallRecord) -> Option<String> {
    let text = record.error()?;
    let Some(program) = program(text).filter(|program| !program.is_empty()) else {
        let innermost = error_chain::innermost(text);
        return Some(error_chain::shortened(&innermost, MAX_ERROR_BYTES).to_string());
    };
    let lower = text.to_ascii_lowercase();
    let is_missing = ["no such file or directory", "not found"];
    let why = if is_missing.iter().any(|words| lower.contains(words)) {
        "or its interpreter, is not in the container"
    } else if lower.contains("permission denied") {
        "may not be executed"
    } else {
        "cannot be executed"
    };
    let comma = if why.starts_with("or") { "," } else { "" };
    Some(format!("{program}{comma} {why}"))
}

/// The timeout of a command that the kubelet runs, in seconds.
pub(crate) fn timeout(record: &CallRecord) -> Option<u32> {
    match record.facts {
        CallFacts::Exec { timeout, .. } if record.peer.is_kubelet() => Some(timeout),
        _ => None,
    }
}

/// Returns whether the call runs a hook of a container.
pub(crate) fn is_hook(record: &CallRecord) -> bool {
    timeout(record) == Some(0)
}

/// Returns whether the call runs a probe of a container.
pub(crate) fn is_probe(record: &CallRecord) -> bool {
    timeout(record).is_some_and(|timeout| timeout > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::tests::script::pod;
    use criscope_cri::call::{Client, Peer};

    #[test]
    fn a_timeout_is_no_exit_code() {
        let web = pod("web");
        let late = web
            .probe(("app", 0), 0, 1000)
            .fails(Code::DeadlineExceeded, "command timed out");
        assert_eq!(ExecResult::from_record(&late), ExecResult::TimedOut);
        let cancelled = web.hook(("app", 0), 0, 3000).cancelled();
        assert_eq!(ExecResult::from_record(&cancelled), ExecResult::Cancelled);
        let refused = web
            .probe(("app", 0), 0, 10)
            .fails(Code::NotFound, "no such container");
        assert_eq!(ExecResult::from_record(&refused), ExecResult::Error);
    }

    #[test]
    fn hooks_have_no_timeout_and_only_the_kubelet_has_either() {
        let web = pod("web");
        let (probe, hook) = (web.probe(("app", 0), 0, 1), web.hook(("app", 0), 0, 1));
        assert!(is_probe(&probe) && !is_hook(&probe));
        assert!(is_hook(&hook) && !is_probe(&hook));
        for comm in ["crictl", "criscope", "nodetool"] {
            let by_hand = Arc::new(Peer {
                client: Client::from_comm(comm),
                pid: None,
                comm: Some(comm.into()),
            });
            let [mut probe, mut hook] = [probe.clone(), hook.clone()];
            probe.record_mut().peer = Arc::clone(&by_hand);
            hook.record_mut().peer = by_hand;
            assert!(!is_probe(&probe) && !is_hook(&hook), "{comm}");
        }
    }
}
