//! The init of a pod that shares its PID namespace: reaps what nobody else does, and waits.

use std::fs::File;
use std::io::{self, Read as _};
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

/// Makes a PID namespace, starts its init and writes the init's pid to stdout. A process of its own, since whoever
/// unshares has all later children in the namespace.
pub(super) fn make() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWPID)?;
    let init = Command::new("/proc/self/exe")
        .arg("init")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    println!("{}", init.id());
    Ok(())
}

/// The init itself. It ends on SIGTERM, and all processes of the namespace with it.
pub(super) fn init() -> io::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    loop {
        while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status != WaitStatus::StillAlive)
        {
        }
        if signals.wait()? == Signal::SIGTERM {
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
