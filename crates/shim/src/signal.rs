//! Signals by number, and exit statuses of children. The kernel has 64 signals, but libraries name only the first 31, and
//! cannot send or report the others: an image may use RTMIN+3 as its stop signal, and a process may be killed by it.

use std::io;
use std::mem::MaybeUninit;

use nix::libc;
use nix::sys::signal::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SigHandler, SigSet};
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, WaitStatus, waitid, waitpid};

/// Sends a signal to a process.
#[allow(unsafe_code)]
pub(super) fn send(pid: u32, signal: i32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: the call takes two numbers and no pointer.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Blocks the signals that would end the shim, and the ones that it reads. Called before the fork, so that none arrives in between.
pub(super) fn block() -> io::Result<()> {
    let mut mask = SigSet::empty();
    for signal in [SIGCHLD, SIGTERM, SIGINT, SIGHUP] {
        mask.add(signal);
    }
    Ok(mask.thread_block()?)
}

/// Returns a child that has exited; it is not reaped, and so keeps its pid. `None` if there is none.
#[allow(unsafe_code)]
pub(super) fn ended() -> Option<u32> {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    let mut found = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the kernel writes at most a `siginfo_t`, which is allocated; all zero is a valid value, which means that
    // there is no child. With P_ALL the id is ignored. The pid is set if the call was successful.
    let pid = unsafe {
        match libc::waitid(libc::P_ALL, 0, found.as_mut_ptr(), flags) {
            0 => found.assume_init().si_pid(),
            _ => 0,
        }
    };
    u32::try_from(pid).ok().filter(|pid| *pid != 0)
}

/// Reaps this child if it has exited; returns its exit status.
pub(super) fn reap(pid: u32) -> Option<WaitStatus> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    let (_, status) = waitpid(Some(pid), WaitOptions::NOHANG).ok()??;
    Some(status)
}

/// Returns whether a pid is a child's, running or not yet reaped.
pub(super) fn is_child(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    pid.is_some_and(|pid| waitid(WaitId::Pid(pid), options).is_ok())
}

/// Makes the kernel reap the children of this process.
#[allow(unsafe_code)]
pub(super) fn ignore_children() -> io::Result<()> {
    // SAFETY: the disposition is not a function.
    unsafe { nix::sys::signal::signal(SIGCHLD, SigHandler::SigIgn) }?;
    Ok(())
}
