//! A call of the OCI runtime that has not ended.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::time::Instant;

/// What is done when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A process is made: `create` or `exec`.
    Make,
    Start,
    Kill,
    Delete,
    PidNamespace,
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) pid: u32,
    pub(super) purpose: Purpose,
    /// The process it is about, by its number.
    pub(super) process: u64,
    /// Who asked, and under what number.
    pub(super) connection: u64,
    pub(super) request: u64,
    pub(super) deadline: Instant,
    pub(super) timed_out: bool,
    /// What it has to say (stdout of [`Purpose::PidNamespace`]); `Make` speaks where the process will.
    pub(super) words: Option<OwnedFd>,
    pub(super) console: Option<UnixListener>,
}
