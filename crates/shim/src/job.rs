//! A running call of the OCI runtime.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::time::Instant;

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
