//! Opens files in a container's root without leaving it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use rustix::path::Arg;

use super::error::{At as _, Error, Result};
use crate::untrusted;

/// Maximum number of lookups, which are retried if a path component is moved concurrently.
const TRIES: usize = 32;

/// Opens a regular file for reading by its path in the container: links are resolved inside its root. `None` if it does not
/// exist.
///
/// # Errors
/// [`Error::Kind`] for anything else than a regular file: it is not opened, because a FIFO would block and a device may
/// act.
pub fn open_in_root(rootfs: &Path, path: &str) -> Result<Option<File>> {
    let root = root(rootfs)?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = match resolve(&root, path, flags) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        found => found.at("find a file in", rootfs)?,
    };
    let file = untrusted::reopen(&found).at("open a file in", rootfs)?;
    if file.is_none() {
        return Err(Error::Kind {
            path: path.to_owned(),
            wanted: "regular file",
        });
    }
    Ok(file)
}

pub(super) fn root(rootfs: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(rootfs, flags, Mode::empty()).at("open", rootfs)
}

pub(super) fn resolve(
    root: &OwnedFd,
    path: impl Arg + Copy,
    flags: OFlags,
) -> std::result::Result<OwnedFd, Errno> {
    let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let mut tries = 0;
    loop {
        match openat2(root, path, flags, Mode::empty(), how) {
            // The kernel detected a concurrent rename or mount on the node while it resolved `..`.
            Err(Errno::AGAIN) if tries < TRIES => tries += 1,
            found => return found,
        }
    }
}
