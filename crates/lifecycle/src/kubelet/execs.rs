//! Commands that the kubelet runs in containers by ExecSync. Exec probes have the timeout of the probe; postStart and preStop
//! hooks have none. `kubectl exec` uses Exec, another method. HTTP, TCP and gRPC probes are no CRI calls.

use std::fmt;

use serde::{Deserialize, Serialize};

use criscope_cri::call::{CallFacts, CallRecord, Ending};
use criscope_cri::status::Code;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExecResult {
    /// It exited with this code.
    Exit(i32),
    /// It was killed at its timeout.
    TimedOut,
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
            _ if code == Some(Code::DeadlineExceeded) => Self::TimedOut,
            _ if record.has_ended(Ending::Cancelled) => Self::Cancelled,
            _ => Self::Error,
        }
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
            Self::Cancelled => f.write_str("the kubelet broke it off"),
            Self::Error => f.write_str("could not be run"),
        }
    }
}

/// The timeout of a command that the kubelet runs, in seconds.
pub(super) fn timeout(record: &CallRecord) -> Option<u32> {
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
