//! Kills a shim that does not respond.

use std::fs::{self, Metadata};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::time::Duration;

use criscope_linux::untrusted;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::error::Error;

/// How long a shim may take to exit after SIGKILL, for instance while blocked in a write of a log to a slow disk.
const DYING: Duration = Duration::from_secs(10);

/// Kills the shim of a pod's directory and waits for its exit. Succeeds if there is none.
///
/// The process is identified by its arguments and its working directory, which no process in a container can have, while a
/// pidfd is held, so that a process that reuses its pid is never killed.
///
/// # Errors
/// [`Error::Undying`] if it has not exited after ten seconds; [`Error::System`].
pub async fn end(dir: &Path) -> Result<(), Error> {
    let own = dir.to_owned();
    end_all(dir, move || {
        let place = match fs::metadata(&own) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            place => place?,
        };
        find(|process| is_called_for(process, &own) && is_in(process, &place))
    })
    .await
}

/// Kills the shim of containerd that was started for a container, with the ones that it is starting, and removes its socket. Succeeds if
/// there is none. It is identified, while a pidfd is held, by its arguments: the id, or a namespace if it runs in the bundle, since
/// some (gVisor's before 2026) are not told the id.
///
/// # Errors
/// As of [`end`].
pub async fn end_containerd_shim(id: &str, bundle: &Path) -> Result<(), Error> {
    let (id, own) = (id.to_owned(), bundle.to_owned());
    end_all(bundle, move || {
        let place = fs::metadata(&own).ok();
        find(|process| {
            has_argument(process, b"id", Some(id.as_bytes()))
                || (place.as_ref().is_some_and(|place| is_in(process, place))
                    && has_argument(process, b"namespace", None))
        })
    })
    .await?;
    // Written when it started (containerd, `core/runtime/v2/README.md`); after a reboot there is no such socket.
    let address = fs::read_to_string(bundle.join("address")).unwrap_or_default();
    let socket = address.strip_prefix("unix://").map(Path::new);
    if let Some(socket) = socket
        && fs::symlink_metadata(socket).is_ok_and(|found| found.file_type().is_socket())
    {
        fs::remove_file(socket)
            .map_err(|error| Error::System(format!("{}: {error}", socket.display())))?;
    }
    Ok(())
}

/// Returns whether a process, given by its directory in `/proc`, has this option (with this value) as Go programs write it.
fn has_argument(process: &Path, name: &[u8], value: Option<&[u8]>) -> bool {
    let arguments = untrusted::read_start(&process.join("cmdline"), 16 << 10).unwrap_or_default();
    let all: Vec<_> = arguments.split(|byte| *byte == 0).collect();
    let mut pairs = all.windows(2);
    pairs.any(|pair| {
        option_name(pair[0]) == Some(name) && value.is_none_or(|value| pair[1] == value)
    })
}

/// The name of an option: `id` of `-id` and `--id`.
fn option_name(argument: &[u8]) -> Option<&[u8]> {
    let name = argument.strip_prefix(b"-")?;
    Some(name.strip_prefix(b"-").unwrap_or(name))
}

async fn end_all(
    dir: &Path,
    find: impl FnOnce() -> io::Result<Vec<OwnedFd>> + Send + 'static,
) -> Result<(), Error> {
    let ended = tokio::task::spawn_blocking(move || {
        let shims = find()?;
        for shim in &shims {
            match pidfd_send_signal(shim, Signal::KILL) {
                // The shim has exited in the meantime.
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        for shim in &shims {
            if !has_ended(shim)? {
                return Ok(false);
            }
        }
        Ok(true)
    });
    let ended = ended.await.map_err(io::Error::other);
    match ended.flatten() {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::Undying {
            dir: dir.to_owned(),
            after: DYING,
        }),
        Err(error) => Err(Error::System(format!("{}: {error}", dir.display()))),
    }
}

/// Returns whether a process, given by its directory in `/proc`, has the arguments of the shim of a pod's directory.
pub(crate) fn is_called_for(process: &Path, dir: &Path) -> bool {
    // A shim has two arguments: its program and a path.
    let arguments = untrusted::read_start(&process.join("cmdline"), 16 << 10).unwrap_or_default();
    let mut all = arguments.split(|byte| *byte == 0);
    let is_shim = all
        .next()
        .is_some_and(|program| program.ends_with(b"criscope-shim"));
    is_shim && all.next() == Some(dir.as_os_str().as_bytes())
}

fn find(is_wanted: impl Fn(&Path) -> bool) -> io::Result<Vec<OwnedFd>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let process = entry.path();
        let Some(pid) = pid.and_then(Pid::from_raw).filter(|_| is_wanted(&process)) else {
            continue;
        };
        let held = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(Errno::SRCH) => continue,
            held => held?,
        };
        // Checked again with the pidfd held: the pid may have been reused before it was opened.
        if is_wanted(&process) {
            found.push(held);
        }
    }
    Ok(found)
}

fn is_in(process: &Path, place: &Metadata) -> bool {
    fs::metadata(process.join("cwd"))
        .is_ok_and(|cwd| (cwd.dev(), cwd.ino()) == (place.dev(), place.ino()))
}

fn has_ended(process: &OwnedFd) -> io::Result<bool> {
    let mut fds = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    let time = PollTimeout::try_from(DYING).unwrap_or(PollTimeout::MAX);
    loop {
        match poll(&mut fds, time) {
            Ok(ready) => return Ok(ready > 0),
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
