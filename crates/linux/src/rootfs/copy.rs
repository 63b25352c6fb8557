//! Copies a directory tree with owners, modes, extended attributes, times, links and device nodes.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags, chmodat,
    chownat, fchmod, fchown, fgetxattr, flistxattr, fsetxattr, fstat, futimens, linkat, mkdirat,
    mknodat, open, openat, readlinkat, symlinkat, utimensat,
};
use rustix::io::Errno;

use crate::walk::{Step, Walk, is_dir, reopen};

const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Largest value of an attribute (`XATTR_SIZE_MAX`), and largest list of names.
const MAX_XATTR: usize = 64 << 10;
/// Longer paths cannot be opened.
const MAX_PATH: usize = 4095;
/// SELinux labels depend on the location: the caller labels the copy.
const LABEL: &[u8] = b"security.selinux";

/// Maximum size of the kept paths of hard-linked files, in bytes; the image controls their number. Further files are copied
/// once per name.
const MAX_PATHS: usize = 32 << 20;

struct Copy {
    /// The root of the copy.
    root: OwnedFd,
    /// The directory of the copy that the walk is in, and its path.
    to: OwnedFd,
    path: Vec<u8>,
    /// First path of files with several names, by inode.
    links: HashMap<u64, Vec<u8>>,
    /// Remaining bytes for such paths.
    room: usize,
}

/// Copies the contents and attributes of `from` to `to`, an empty directory. Hard links are preserved, unless there are too
/// many.
pub(super) fn copy(from: OwnedFd, to: &Path) -> io::Result<()> {
    bounded(from, to, MAX_PATHS)
}

fn bounded(from: OwnedFd, to: &Path, room: usize) -> io::Result<()> {
    let root = open(to, DIR, Mode::empty())?;
    let mut copy = Copy {
        to: reopen(&root)?,
        root,
        path: Vec::new(),
        links: HashMap::new(),
        room,
    };
    // Times are set last, because creating entries changes them.
    let mut way = vec![fstat(&from)?];
    let mut walk = Walk::new(from)?;
    like(&copy.to, walk.dir()?, &way[0])?;
    loop {
        match walk.step()? {
            Step::Found(name, stat) if is_dir(&stat) => {
                if !walk.enter(&name)? {
                    return Err(Errno::STALE.into());
                }
                copy.enter(&name)?;
                like(&copy.to, walk.dir()?, &stat)?;
                way.push(stat);
            }
            Step::Found(name, stat) => copy.entry(walk.dir()?, &name, &stat)?,
            Step::Left | Step::Done => {
                if let Some(stat) = way.pop() {
                    futimens(&copy.to, &times(&stat))?;
                }
                if way.is_empty() {
                    break;
                }
                copy.leave()?;
            }
        }
    }
    match walk.missed() {
        None => Ok(()),
        Some(_) => Err(Errno::STALE.into()),
    }
}

impl Copy {
    fn enter(&mut self, name: &CStr) -> io::Result<()> {
        mkdirat(&self.to, name, Mode::from_raw_mode(0o700))?;
        self.to = openat(&self.to, name, DIR, Mode::empty())?;
        self.path.push(b'/');
        self.path.extend(name.to_bytes());
        Ok(())
    }

    /// Returns to the parent: no other process moves anything in the copy.
    fn leave(&mut self) -> io::Result<()> {
        self.to = openat(&self.to, c"..", DIR, Mode::empty())?;
        let end = self.path.iter().rposition(|byte| *byte == b'/');
        self.path.truncate(end.unwrap_or(0));
        Ok(())
    }

    fn entry(&mut self, from: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> io::Result<()> {
        if stat.st_nlink > 1 && self.link(stat, name)? {
            return Ok(());
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => file(from, &self.to, name, stat),
            kind => node(from, &self.to, name, stat, kind),
        }
    }

    /// Creates a further link to a copied file; `false` if this is its first name.
    fn link(&mut self, stat: &Stat, name: &CStr) -> io::Result<bool> {
        let Some(first) = self.links.get(&stat.st_ino) else {
            let path = [&self.path[..], b"/", name.to_bytes()].concat();
            if let Some(left) = self.room.checked_sub(path.len())
                && path.len() <= MAX_PATH
            {
                self.room = left;
                self.links.insert(stat.st_ino, path[1..].to_vec());
            }
            return Ok(false);
        };
        linkat(&self.root, &first[..], &self.to, name, AtFlags::empty())?;
        Ok(true)
    }
}

fn file(from: BorrowedFd<'_>, to: &OwnedFd, name: &CStr, stat: &Stat) -> io::Result<()> {
    let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut source = File::from(openat(from, name, read, Mode::empty())?);
    let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut target = File::from(openat(to, name, write, Mode::from_raw_mode(0o600))?);
    io::copy(&mut source, &mut target)?;
    like(&target, &source, stat)?;
    Ok(futimens(&target, &times(stat))?)
}

/// Copies a symbolic link, device, FIFO or socket.
fn node(
    from: BorrowedFd<'_>,
    to: &OwnedFd,
    name: &CStr,
    stat: &Stat,
    kind: FileType,
) -> io::Result<()> {
    let nofollow = AtFlags::SYMLINK_NOFOLLOW;
    if kind == FileType::Symlink {
        symlinkat(readlinkat(from, name, Vec::new())?, to, name)?;
    } else {
        mknodat(to, name, kind, Mode::from_raw_mode(0o600), stat.st_rdev)?;
    }
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    chownat(to, name, Some(uid), Some(gid), nofollow)?;
    if kind != FileType::Symlink {
        chmodat(to, name, mode(stat), AtFlags::empty())?;
    }
    Ok(utimensat(to, name, &times(stat), nofollow)?)
}

/// Owner, attributes and mode, in this order: changing the owner clears capabilities and set-ID bits.
fn like(to: impl AsFd, from: impl AsFd, stat: &Stat) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    fchown(&to, Some(uid), Some(gid))?;
    let mut names = vec![0_u8; MAX_XATTR];
    let length = match flistxattr(&from, &mut names[..]) {
        Err(Errno::NOTSUP) => 0,
        length => length?,
    };
    let mut value = vec![0_u8; MAX_XATTR];
    for name in names[..length].split(|byte| *byte == 0) {
        if name.is_empty() || name == LABEL {
            continue;
        }
        let length = fgetxattr(&from, name, &mut value[..])?;
        fsetxattr(&to, name, &value[..length], XattrFlags::empty())?;
    }
    Ok(fchmod(&to, mode(stat))?)
}

fn mode(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode & 0o7777)
}

fn times(stat: &Stat) -> Timestamps {
    let time = Timespec {
        tv_sec: stat.st_mtime,
        tv_nsec: stat.st_mtime_nsec.try_into().unwrap_or(0),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn hard_links_beyond_the_limit_are_copied_as_separate_files() {
        let dir = tempfile::tempdir().expect("dir");
        let from = dir.path().join("from");
        fs::create_dir(&from).expect("dir");
        for number in 0..10 {
            let file = from.join(format!("{number}-a"));
            fs::write(&file, "content").expect("file");
            fs::hard_link(&file, from.join(format!("{number}-b"))).expect("link");
        }
        // A path takes four bytes: `/0-a`.
        for (name, room, linked) in [("fits", 40, 20), ("full", 12, 6)] {
            let to = dir.path().join(name);
            fs::create_dir(&to).expect("dir");
            let source = open(&from, DIR, Mode::empty()).expect("open");
            bounded(source, &to, room).expect("copied");
            let entries = fs::read_dir(&to).expect("entries");
            let metadata = entries.map(|entry| entry.expect("entry").metadata().expect("metadata"));
            let metadata: Vec<_> = metadata.collect();
            assert_eq!(metadata.len(), 20, "{name}");
            let links = metadata.iter().filter(|found| found.nlink() == 2).count();
            assert_eq!(links, linked, "{name}");
        }
    }
}
