//! A running call of the OCI runtime.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::time::Instant;

use nix::sys::signal::Signal;
use rustix::process::WaitStatus;

use super::protocol::{Failure, RUNTIME, TIMEOUT};
use super::requests::failure;

/// The purpose of a call, which determines the steps at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// `create` or `exec`, which make a process.
    Make,
    Start,
    Kill,
    Delete,
    PidNamespace,
    /// The start of a shim of containerd.
    TaskStart,
    /// The cleanup of a container whose containerd shim has ended.
    TaskCleanup,
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) pid: u32,
    pub(super) purpose: Purpose,
    /// The number of its process.
    pub(super) process: u64,
    /// The connection and number of the request.
    pub(super) connection: u64,
    pub(super) request: u64,
    pub(super) deadline: Instant,
    pub(super) timed_out: bool,
    /// The read end of its output (stdout of [`Purpose::PidNamespace`]); `Make` writes to the streams of the new process.
    pub(super) words: Option<OwnedFd>,
    pub(super) console: Option<UnixListener>,
}

/// The failure of a call whose OCI runtime ended like this after these words.
pub(super) fn runtime_failure(job: &Job, status: WaitStatus, words: String) -> Failure {
    if job.timed_out {
        failure(TIMEOUT, words)
    } else if words.trim().is_empty() {
        failure(
            RUNTIME,
            end_without_words(status.exit_status(), status.terminating_signal()),
        )
    } else {
        failure(RUNTIME, words)
    }
}

/// How an OCI runtime ended that said nothing. One that a signal ends cannot: crun dies by SIGPIPE, for instance, if a hook ends
/// without reading its input.
fn end_without_words(exit_code: Option<i32>, signal: Option<i32>) -> String {
    let Some(number) = signal else {
        let code = exit_code.unwrap_or_default();
        return format!("ended with exit code {code} and no message");
    };
    let name = Signal::try_from(number).map_or("no standard signal", Signal::as_str);
    format!("ended by signal {number} ({name})")
}

#[cfg(test)]
mod tests {
    use super::end_without_words;

    #[test]
    fn a_runtime_without_words_is_told_by_its_end() {
        let piped = "ended by signal 13 (SIGPIPE)";
        assert_eq!(end_without_words(None, Some(13)), piped);
        let failed = "ended with exit code 3 and no message";
        assert_eq!(end_without_words(Some(3), None), failed);
    }
}
