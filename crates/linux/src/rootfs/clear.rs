//! Removes a directory with everything that a container left in it.
//!
//! A container may leave anything: directories nested deeper than any path or stack, links to files of the node, immutable
//! files. Only paths of one component are used, no link is followed, no other mount entered. Nested directories are moved
//! to the top before they are read, so that depth needs neither memory nor descriptors; after a kill, the moved ones are
//! found there.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, IFlags, Mode, OFlags, ResolveFlags, ioctl_getflags, ioctl_setflags,
    open, openat2, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::error::{At as _, Result};

const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Removes `dir` with its contents. It succeeds if `dir` does not exist.
///
/// # Errors
/// Also if something is mounted in it. The rest is still removed.
pub fn remove_tree(dir: &Path) -> Result<()> {
    let top = match open(dir, DIR, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        top => top.at("open", dir)?,
    };
    Top { dir: top, moved: 0 }
        .clear()
        .at("remove everything in", dir)?;
    match rustix::fs::rmdir(dir) {
        Err(error) if error != Errno::NOENT => Err(error).at("remove", dir),
        _ => Ok(()),
    }
}

type Outcome<T = ()> = std::result::Result<T, Errno>;

struct Top {
    dir: OwnedFd,
    moved: u64,
}

/// The result of removing the entries of a directory.
#[derive(Default)]
struct Pass {
    done: u64,
    failed: Option<Errno>,
}

impl Pass {
    fn count(&mut self, outcome: Outcome) {
        match outcome {
            Ok(()) => self.done += 1,
            Err(error) => self.failed = self.failed.or(Some(error)),
        }
    }

    /// Returns whether the directory must be read again: removing entries while it is read may hide others.
    fn again(&self) -> Outcome<bool> {
        match self.failed {
            Some(error) if self.done == 0 => Err(error),
            _ => Ok(self.done > 0),
        }
    }
}

impl Top {
    fn clear(&mut self) -> Outcome {
        loop {
            let mut pass = Pass::default();
            for entry in entries(&self.dir)? {
                let (name, kind) = entry?;
                let outcome = self.remove(&name, kind);
                pass.count(outcome);
            }
            if !pass.again()? {
                return Ok(());
            }
        }
    }

    /// Removes an entry of the top directory.
    fn remove(&mut self, name: &CStr, kind: FileType) -> Outcome {
        if kind != FileType::Directory {
            return unlink(&self.dir, name, kind);
        }
        match unlink(&self.dir, name, kind) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            outcome => return outcome,
        }
        let folder = enter(&self.dir, name)?;
        loop {
            let mut pass = Pass::default();
            for entry in entries(&folder)? {
                let (name, kind) = entry?;
                let outcome = match unlink(&folder, &name, kind) {
                    Err(Errno::NOTEMPTY | Errno::EXIST) => self.lift(&folder, &name),
                    outcome => outcome,
                };
                pass.count(outcome);
            }
            if !pass.again()? {
                break;
            }
        }
        unlink(&self.dir, name, kind)
    }

    /// Moves a directory to the top, under an unused name.
    fn lift(&mut self, from: &OwnedFd, name: &CStr) -> Outcome {
        loop {
            self.moved += 1;
            let to = format!("moved-{}", self.moved);
            let outcome = renameat(from, name, &self.dir, &to).or_else(|error| {
                thaw(error, from, name, FileType::Directory)?;
                renameat(from, name, &self.dir, &to)
            });
            match outcome {
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                outcome => return outcome,
            }
        }
    }
}

/// Iterates over the entries of a directory, which may be too many to hold in memory.
fn entries(
    folder: &OwnedFd,
) -> Outcome<impl Iterator<Item = Outcome<(CString, FileType)>> + use<>> {
    let parent = folder.try_clone().map_err(|_| Errno::MFILE)?;
    let named = Dir::read_from(folder)?.filter(
        |entry| !matches!(entry, Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..")),
    );
    Ok(named.map(move |entry| {
        let entry = entry?;
        let name = entry.file_name().to_owned();
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let stat = statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode)
            }
            kind => kind,
        };
        Ok((name, kind))
    }))
}

/// Removes one entry; a directory only if it is empty.
fn unlink(parent: &OwnedFd, name: &CStr, kind: FileType) -> Outcome {
    let flags = match kind {
        FileType::Directory => AtFlags::REMOVEDIR,
        _ => AtFlags::empty(),
    };
    unlink_existing(parent, name, flags).or_else(|error| {
        thaw(error, parent, name, kind)?;
        unlink_existing(parent, name, flags)
    })
}

/// Like `unlinkat`, but succeeds if the entry does not exist.
fn unlink_existing(parent: &OwnedFd, name: &CStr, flags: AtFlags) -> Outcome {
    match unlinkat(parent, name, flags) {
        Err(Errno::NOENT) => Ok(()),
        outcome => outcome,
    }
}

/// Opens a child directory on the same mount.
fn enter(parent: &OwnedFd, name: &CStr) -> Outcome<OwnedFd> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    openat2(parent, name, DIR, Mode::empty(), how)
}

/// Clears the flags that prevent the removal of an entry: immutable and append-only, of the entry and of its directory. A
/// privileged container can set them. Any other error is returned unchanged.
fn thaw(error: Errno, parent: &OwnedFd, name: &CStr, kind: FileType) -> Outcome {
    if error != Errno::PERM {
        return Err(error);
    }
    clear_marks(parent).map_err(|_| error)?;
    // Other types cannot have these flags, and opening a device may have effects.
    if matches!(kind, FileType::RegularFile | FileType::Directory) {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let entry = openat2(parent, name, flags, Mode::empty(), how)?;
        clear_marks(entry).map_err(|_| error)?;
    }
    Ok(())
}

fn clear_marks(file: impl AsFd) -> Outcome {
    let marks = ioctl_getflags(&file)?;
    let clear = marks.difference(IFlags::IMMUTABLE | IFlags::APPEND);
    if clear == marks {
        return Ok(());
    }
    ioctl_setflags(&file, clear)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_removed_without_being_followed() {
        let dir = tempfile::tempdir().expect("dir");
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).expect("dir");
        fs::write(outside.join("kept"), "").expect("file");
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).expect("dirs");
        symlink(&outside, tree.join("out")).expect("link");
        symlink("../../../outside", tree.join("a/b/out")).expect("link");
        remove_tree(&tree).expect("removed");
        remove_tree(&tree).expect("again");
        assert!(!tree.exists());
        assert!(outside.join("kept").exists());
        // Not even if the top itself is a link.
        symlink(&outside, &tree).expect("link");
        remove_tree(&tree).expect_err("a link is no directory of ours");
        assert!(outside.join("kept").exists());
    }

    #[test]
    fn directories_nested_deeper_than_any_path_are_removed() {
        let dir = tempfile::tempdir().expect("dir");
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).expect("dir");
        // Left over from an attempt that was killed.
        fs::create_dir_all(tree.join("moved-1/full")).expect("dirs");
        fs::write(tree.join("moved-2"), "").expect("file");
        let mut at = open(&tree, DIR, Mode::empty()).expect("open");
        for _ in 0..1000 {
            rustix::fs::mkdirat(&at, "folder", Mode::from_raw_mode(0o000)).expect("dir");
            at = rustix::fs::openat(&at, "folder", DIR, Mode::empty()).expect("open");
        }
        drop(at);
        remove_tree(&tree).expect("removed");
        assert!(!tree.exists());
    }
}
