//! New processes: the two system calls that no library wraps safely.

use std::fs::{self, File};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::SigSet;
use nix::unistd::{ForkResult, pipe2};

/// This program, even if its file has been replaced by another version.
pub(super) const SELF: &str = "/proc/self/exe";

/// The name in process lists, such as those of a pod that shares its PID namespace.
pub(super) const NAME: &str = "criscope-shim";

/// Forks. Both sides keep the lock and the socket open.
#[allow(unsafe_code)]
pub(super) fn fork() -> io::Result<ForkResult> {
    // SAFETY: the shim has one thread, so the child may do everything that the parent may.
    Ok(unsafe { nix::unistd::fork() }?)
}

/// Starts a program with these streams, and with no signals blocked: a child inherits the shim's signal mask, and would
/// pass it on to the container. Returns its pid; it is reaped like all others.
pub(super) fn spawn(argv: &[String], env: &[String], stdio: [Stdio; 3]) -> io::Result<u32> {
    spawn_in(argv, env, stdio, None)
}

/// Like [`spawn`], with a working directory.
#[allow(unsafe_code)]
pub(super) fn spawn_in(
    argv: &[String],
    env: &[String],
    stdio: [Stdio; 3],
    dir: Option<&Path>,
) -> io::Result<u32> {
    let (program, args) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let [stdin, stdout, stderr] = stdio;
    let mut command = Command::new(program);
    if program == SELF {
        command.arg0(NAME);
    }
    command
        .args(args)
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr);
    if let Some(dir) = dir {
        command.current_dir(dir);
    }
    command.envs(env.iter().filter_map(|pair| pair.split_once('=')));
    // SAFETY: between fork and exec only an async-signal-safe system call is made.
    unsafe {
        command.pre_exec(|| SigSet::empty().thread_set_mask().map_err(io::Error::from));
    }
    let child = command.spawn().map_err(|e| super::named(program, &e))?;
    Ok(child.id())
}

/// Closes all descriptors except the standard ones, which the parent process left open. Only valid before this program has
/// opened any itself.
pub(super) fn close_others() -> io::Result<()> {
    // Collected first, because an iterator keeps the directory open.
    let numbers: Vec<RawFd> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // The directory's own descriptor is already closed.
        let _closed = nix::unistd::close(number);
    }
    Ok(())
}

/// Creates a pipe: the shim's end is non-blocking, the end of the process is blocking.
pub(super) fn pipe(shim_reads: bool) -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    let (ours, theirs) = if shim_reads {
        (read, write)
    } else {
        (write, read)
    };
    nonblocking(&ours)?;
    Ok((ours, theirs))
}

/// Makes a descriptor non-blocking.
pub(super) fn nonblocking(fd: &OwnedFd) -> io::Result<()> {
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Returns the end of the output of a failed program, where it is available without waiting.
pub(super) fn last_words(fd: OwnedFd) -> String {
    use std::io::Read as _;
    let mut text = Vec::new();
    let _ = File::from(fd).take(64 << 10).read_to_end(&mut text);
    let start = text.len().saturating_sub(2048);
    String::from_utf8_lossy(&text[start..]).trim().to_owned()
}
