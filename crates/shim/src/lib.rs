//! criscope-shim: a small process per pod that reaps, writes logs, serves attach, and records exits. No async runtime.
//!
//! The shim is the subreaper of the pod's containers, so the init processes that an OCI runtime's `create` leaves behind become
//! its children. It owns their standard streams, and its state outlives the daemon: logs continue while the daemon is not
//! running, and the next daemon queries the shim for what happened in the meantime. It serves [`protocol`] on `shim.sock`
//! in the pod's directory, is single-threaded around one `poll`, and holds only the processes of its pod.
//! Files in the pod's directory: `shim.lock` (locked while the shim runs), `shim.sock`, and for each container `ID.init`
//! (the identity of its init process) and `ID.exit` (its exit record), which remain when a shim is killed.
//!
//! At the shutdown of the node, systemd sends SIGTERM to all processes that are left, and waits for them: the shim then ends with the
//! last process of its pod. A SIGTERM of another process than PID 1 is ignored, as are SIGINT and SIGHUP.
//!
//! A service manager that kills by cgroup (systemd's default `KillMode=control-group`) would kill the shims with the
//! daemon: put them into a cgroup of their own with `--cgroup`, or set `KillMode=process`.

mod calls;
mod clock;
mod confine;
mod connection;
mod descendants;
mod job;
mod log;
mod mapped;
mod oom;
mod pid_namespace;
mod pod_init;
mod process;
pub mod protocol;
mod reaper;
pub mod record;
mod requests;
mod server;
mod signal;
mod spawn;
mod stat;
mod streams;
mod task;
mod user_namespace;

use std::env;
use std::fs;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use nix::unistd::{ForkResult, setsid};

pub use self::log::DEFAULT_MAX_LINE;
pub use self::task::fifo::close_log;

/// Name of the socket in the pod's directory.
pub const SOCKET: &str = "shim.sock";

/// A client whose full buffer makes no progress for this long is disconnected, because it blocks a container. Clients of
/// execs are not: they must receive all output, and only their own command waits.
pub const STUCK: Duration = Duration::from_secs(10);

/// Name of the file that is locked while the shim runs.
pub const LOCK: &str = "shim.lock";

/// The program: `criscope-shim DIR [--cgroup DIR]...` starts a shim in the background and returns when its socket listens;
/// `pid-namespace` and `pod-init` are for the shim itself, `user-namespace KIND...` is for the daemon.
pub fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    let result = match args.next().as_deref() {
        Some("pid-namespace") => pid_namespace::make(args),
        Some(pid_namespace::POD_INIT) => pod_init::run(args),
        Some("user-namespace") => user_namespace::make(args),
        // Called by shims of containerd, `--address X publish --topic T --namespace N`, with an event on stdin. None is needed.
        Some("--address" | "-address") => io::copy(&mut io::stdin(), &mut io::sink()).map(drop),
        Some(dir) => launch(dir, args),
        None => Err(io::Error::other(
            "usage: criscope-shim DIR [--cgroup DIR]...",
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("criscope-shim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn launch(dir: &str, mut args: impl Iterator<Item = String>) -> io::Result<()> {
    // Descriptors of the daemon must not reach the processes of pods.
    spawn::close_others()?;
    let mut cgroups = Vec::new();
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next()) {
            ("--cgroup", Some(path)) => cgroups.push(path),
            _ => return Err(io::Error::other(format!("unknown argument {arg}"))),
        }
    }
    let dir = fs::canonicalize(dir).map_err(|e| named(dir, &e))?;
    env::set_current_dir(&dir)?;
    let lock = server::lock()?;
    let listener = server::listen()?;
    for cgroup in cgroups {
        let path = format!("{cgroup}/cgroup.procs");
        match fs::write(&path, "0") {
            // The empty cgroup was removed in the meantime. Starting the pod is more important.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            moved => moved.map_err(|e| named(&path, &e))?,
        }
    }
    signal::block()?;
    if let ForkResult::Parent { .. } = spawn::fork()? {
        return Ok(());
    }
    setsid()?;
    server::serve(dir, &listener, lock)
}

fn named(path: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
