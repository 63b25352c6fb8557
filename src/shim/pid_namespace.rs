//! The init of a pod that shares its PID namespace: reaps what nobody else does, and waits.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{ForkResult, Gid, Uid, dup2_stderr, dup2_stdout, setgid, setgroups, setuid};

/// Makes a PID namespace, starts its init and writes the init's pid to stdout. A process of its own, since whoever
/// unshares has all later children in the namespace.
///
/// With the path of a user namespace it becomes root in there first, so that the new one belongs to it: no container of the
/// pod could enter another.
pub(super) fn make(users: &str) -> io::Result<()> {
    if !users.is_empty() {
        let namespace = File::open(users).map_err(|e| super::named(users, &e))?;
        setns(namespace, CloneFlags::CLONE_NEWUSER)?;
        setgroups(&[])?;
        setgid(Gid::from_raw(0))?;
        setuid(Uid::from_raw(0))?;
    }
    unshare(CloneFlags::CLONE_NEWPID)?;
    // Not by exec: root of the pod need not be able to reach this program.
    match super::spawn::fork()? {
        ForkResult::Parent { child } => {
            println!("{child}");
            Ok(())
        }
        ForkResult::Child => init(),
    }
}

/// The init itself. It ends on SIGTERM and when its stdin does, whose other end the shim holds: with the shim, also one
/// that is killed. All processes of the namespace end with it.
fn init() -> io::Result<()> {
    let nothing = File::options().write(true).open("/dev/null")?;
    dup2_stdout(&nothing)?;
    dup2_stderr(&nothing)?;
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let shim = io::stdin();
    loop {
        while super::signal::reaped().is_some() {}
        let mut fds = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(shim.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let shim_gone = fds[1].any().unwrap_or(true);
        while let Some(signal) = signals.read_signal()? {
            if signal.ssi_signo == Signal::SIGTERM as u32 {
                return Ok(());
            }
        }
        if shim_gone {
            return Ok(());
        }
    }
}

/// The pid that [`make`] wrote.
pub(super) fn read_pid(from: std::os::fd::OwnedFd) -> Option<u32> {
    let mut text = String::new();
    let _ = File::from(from).take(16).read_to_string(&mut text);
    text.trim().parse().ok()
}
