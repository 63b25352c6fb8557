//! Signals by number, and how children ended. The kernel has 64; the names that libraries know end at 31, and what they
//! cannot name they refuse to send, and to tell of: an image may want SIGRTMIN+3 to stop, and a process may die of it.

use std::io;

use rustix::process::{WaitOptions, WaitStatus, wait};

/// Sends a signal to a process.
#[allow(unsafe_code)]
pub(super) fn send(pid: u32, signal: i32) -> io::Result<()> {
    let refused = || io::Error::from(io::ErrorKind::InvalidInput);
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0);
    let pid = pid.ok_or_else(refused)?;
    // SAFETY: the call takes two numbers and no memory of ours.
    match unsafe { nix::libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A child that has ended, and how; `None` when there is none now.
pub(super) fn reaped() -> Option<(u32, WaitStatus)> {
    let (pid, status) = wait(WaitOptions::NOHANG).ok()??;
    Some((pid.as_raw_pid() as u32, status))
}
