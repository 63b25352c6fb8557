//! Opens files in a container's root without leaving it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use rustix::path::Arg;

use super::error::{At as _, Error, Result};
use crate::untrusted;

/// Maximum number of lookups after the first.
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
    open_below(root, path, flags, how)
}

/// Opens a path below a directory (openat2(2)). Tries again where the kernel saw a rename or a mount, anywhere on the node, while it
/// resolved a `..`.
///
/// # Errors
/// Those of openat2(2).
pub fn open_below(
    root: impl AsFd,
    path: impl Arg + Copy,
    flags: OFlags,
    how: ResolveFlags,
) -> std::result::Result<OwnedFd, Errno> {
    let mut tries = 0;
    loop {
        match openat2(&root, path, flags, Mode::empty(), how) {
            Err(Errno::AGAIN) if tries < TRIES => tries += 1,
            found => return found,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, rename};
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_rename_elsewhere_is_no_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("root");
        fs::create_dir(&root).expect("mkdir");
        fs::write(root.join("file"), "inside").expect("write");
        symlink("../../../../file", root.join("up")).expect("link");
        fs::write(dir.path().join("0"), "").expect("write");
        let is_over = AtomicBool::new(false);
        let root = super::root(&root).expect("open");
        thread::scope(|scope| {
            scope.spawn(|| {
                let names = ["0", "1"].map(|name| dir.path().join(name));
                while !is_over.load(Ordering::Relaxed) {
                    rename(&names[0], &names[1]).expect("rename");
                    rename(&names[1], &names[0]).expect("rename");
                }
            });
            let found = (0..20_000)
                .try_for_each(|_| resolve(&root, "up", OFlags::PATH | OFlags::CLOEXEC).map(drop));
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(found, Ok(()));
        });
    }
}
