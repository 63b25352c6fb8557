//! A copy of a folder with all it holds: owners, modes, attributes, times, links, nodes.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid,
    XattrFlags, chmodat, chownat, fchmod, fchown, fgetxattr, flistxattr, fsetxattr, fstat,
    futimens, linkat, mkdirat, mknodat, open, openat, openat2, readlinkat, statat, symlinkat,
    utimensat,
};
use rustix::io::Errno;

const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Of the value of one attribute (`XATTR_SIZE_MAX`), and of the list of names.
const MAX_XATTR: usize = 64 << 10;
/// A label says where a file is, not what it is: that of the copy is the caller's to give.
const LABEL: &[u8] = b"security.selinux";

/// The most that is kept of names meanwhile, in bytes: an image decides how many folders and links it has.
const MAX_NAMES: usize = 32 << 20;

struct Copy {
    from: OwnedFd,
    to: OwnedFd,
    /// Bytes of names that may still be kept.
    room: usize,
    /// Where files with several names were put first, by their numbers.
    links: HashMap<(u64, u64), Vec<u8>>,
}

/// Copies what is in `from`, and what `from` itself is like, to `to`, an empty folder.
///
/// # Errors
/// What the system says, and [`io::ErrorKind::FileTooLarge`] for more folders than can be kept in mind.
pub(super) fn copy(from: OwnedFd, to: &Path) -> io::Result<()> {
    bounded(from, to, MAX_NAMES)
}

fn bounded(from: OwnedFd, to: &Path, room: usize) -> io::Result<()> {
    let mut copy = Copy {
        from,
        to: open(to, DIR, Mode::empty())?,
        room,
        links: HashMap::new(),
    };
    let mut seen = Vec::new();
    // Folders by their path below both; no part of a path is a link.
    let mut todo = vec![b".".to_vec()];
    while let Some(path) = todo.pop() {
        copy.folder(&path, &mut todo)?;
        seen.push(path);
    }
    // At last, since what is put into a folder changes its time.
    for path in seen {
        let stat = fstat(beneath(&copy.from, &path)?)?;
        futimens(beneath(&copy.to, &path)?, &times(&stat))?;
    }
    Ok(())
}

impl Copy {
    fn folder(&mut self, path: &[u8], todo: &mut Vec<Vec<u8>>) -> io::Result<()> {
        let from = beneath(&self.from, path)?;
        let to = beneath(&self.to, path)?;
        for entry in Dir::read_from(&from)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let stat = statat(&from, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let inner = [path, b"/", name].concat();
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    self.keep(&inner)?;
                    mkdirat(&to, name, Mode::from_raw_mode(0o700))?;
                    todo.push(inner);
                }
                _ if stat.st_nlink > 1 && self.link(&stat, &to, name, inner)? => {}
                FileType::RegularFile => file(&from, &to, name, &stat)?,
                kind => node(&from, &to, name, &stat, kind)?,
            }
        }
        like(&to, &from, &fstat(&from)?)
    }

    /// Takes the room for a name that is kept, with what keeping it takes besides.
    fn keep(&mut self, name: &[u8]) -> io::Result<()> {
        let left = self.room.checked_sub(name.len() + 64);
        self.room = left.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::FileTooLarge,
                "too many folders and links for a volume of an image",
            )
        })?;
        Ok(())
    }

    /// Makes another name of a file that is there; `false` if this is its first.
    fn link(&mut self, stat: &Stat, to: &OwnedFd, name: &[u8], path: Vec<u8>) -> io::Result<bool> {
        let Some(first) = self.links.get(&(stat.st_dev, stat.st_ino)) else {
            self.keep(&path)?;
            self.links.insert((stat.st_dev, stat.st_ino), path);
            return Ok(false);
        };
        linkat(&self.to, &first[..], to, name, AtFlags::empty())?;
        Ok(true)
    }
}

fn beneath(root: &OwnedFd, path: &[u8]) -> io::Result<OwnedFd> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(root, path, DIR, Mode::empty(), how)?)
}

fn file(from: &OwnedFd, to: &OwnedFd, name: &[u8], stat: &Stat) -> io::Result<()> {
    let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut source = File::from(openat(from, name, read, Mode::empty())?);
    let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut target = File::from(openat(to, name, write, Mode::from_raw_mode(0o600))?);
    io::copy(&mut source, &mut target)?;
    like(&target, &source, stat)?;
    Ok(futimens(&target, &times(stat))?)
}

/// A link, a device, a pipe or a socket.
fn node(from: &OwnedFd, to: &OwnedFd, name: &[u8], stat: &Stat, kind: FileType) -> io::Result<()> {
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

/// Owner, attributes and mode, in the order that none undoes another: a new owner clears capabilities and set-ID bits.
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
    use super::*;

    #[test]
    fn what_is_kept_of_names_has_a_bound() {
        let dir = tempfile::tempdir().expect("dir");
        let from = dir.path().join("from");
        for number in 0..10 {
            std::fs::create_dir_all(from.join(number.to_string())).expect("dir");
        }
        for (name, room, expected) in [("fits", 10 * 70, true), ("full", 9 * 64, false)] {
            let to = dir.path().join(name);
            std::fs::create_dir(&to).expect("dir");
            let source = open(&from, DIR, Mode::empty()).expect("open");
            let copied = bounded(source, &to, room);
            assert_eq!(copied.is_ok(), expected, "{name}: {copied:?}");
        }
    }
}
