//! Copies a directory tree with owners, modes, extended attributes, times, links, holes and device nodes.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid, XattrFlags,
    chmodat, chownat, fchmod, fchown, fgetxattr, flistxattr, fsetxattr, fstat, futimens, linkat,
    mkdirat, mknodat, open, openat, readlinkat, seek, symlinkat, utimensat,
};
use rustix::io::Errno;

use super::budget::{CopyBudget, CopyError};
use crate::free_space::{CHECK_EVERY_BYTES, ENTRY_BYTES};
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

type Outcome<T = ()> = Result<T, CopyError>;

struct Copy<'a, 'b> {
    budget: &'a mut CopyBudget<'b>,
    /// The root of the copy.
    root: OwnedFd,
    /// The directory of the copy that the walk is in, and its path.
    to: OwnedFd,
    path: Vec<u8>,
    /// First path of files with several names, by device and inode.
    links: HashMap<(u64, u64), Vec<u8>>,
    /// Remaining bytes for such paths.
    room: usize,
}

/// Copies the contents and attributes of `from` to `to`, an empty directory, within the budget. Hard links are preserved, unless
/// there are too many.
pub(super) fn copy(from: OwnedFd, to: &Path, budget: &mut CopyBudget<'_>) -> Outcome {
    bounded(from, to, MAX_PATHS, budget)
}

fn bounded(from: OwnedFd, to: &Path, room: usize, budget: &mut CopyBudget<'_>) -> Outcome {
    let root = open(to, DIR, Mode::empty())?;
    let mut copy = Copy {
        budget,
        to: reopen(&root)?,
        root,
        path: Vec::new(),
        links: HashMap::new(),
        room,
    };
    // Times are set last, because creating entries changes them.
    let mut way = vec![fstat(&from)?];
    let mut walk = Walk::in_overlay(from)?;
    like(&copy.to, walk.dir()?, &way[0], copy.budget)?;
    loop {
        match walk.step()? {
            Step::Found(name, stat) if is_dir(&stat) => {
                if !walk.enter(&name)? {
                    return Err(Errno::STALE.into());
                }
                copy.enter(&name)?;
                like(&copy.to, walk.dir()?, &stat, copy.budget)?;
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

impl Copy<'_, '_> {
    fn enter(&mut self, name: &CStr) -> Outcome {
        self.budget.take_file(&self.to)?;
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

    fn entry(&mut self, from: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> Outcome {
        self.budget.take_file(&self.to)?;
        if stat.st_nlink > 1 && self.link(stat, name)? {
            return Ok(());
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => file(from, &self.to, name, stat, self.budget),
            kind => Ok(node(from, &self.to, name, stat, kind)?),
        }
    }

    /// Creates a further link to a copied file; `false` if this is its first name.
    fn link(&mut self, stat: &Stat, name: &CStr) -> io::Result<bool> {
        let Some(first) = self.links.get(&(stat.st_dev, stat.st_ino)) else {
            let path = [&self.path[..], b"/", name.to_bytes()].concat();
            if let Some(left) = self.room.checked_sub(path.len())
                && path.len() <= MAX_PATH
            {
                self.room = left;
                self.links
                    .insert((stat.st_dev, stat.st_ino), path[1..].to_vec());
            }
            return Ok(false);
        };
        linkat(&self.root, &first[..], &self.to, name, AtFlags::empty())?;
        Ok(true)
    }
}

fn file(
    from: BorrowedFd<'_>,
    to: &OwnedFd,
    name: &CStr,
    stat: &Stat,
    budget: &mut CopyBudget<'_>,
) -> Outcome {
    let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let source = File::from(openat(from, name, read, Mode::empty())?);
    let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let target = File::from(openat(to, name, write, Mode::from_raw_mode(0o600))?);
    content(&source, &target, budget)?;
    like(&target, &source, stat, budget)?;
    Ok(futimens(&target, &times(stat))?)
}

/// Copies data, and leaves out holes: a small image may have a file of a terabyte without any data.
fn content(source: &File, target: &File, budget: &mut CopyBudget<'_>) -> Outcome {
    let mut at = 0;
    loop {
        at = match seek(source, SeekFrom::Data(at)) {
            // No data follows.
            Err(Errno::NXIO) => break,
            found => found?,
        };
        let end = seek(source, SeekFrom::Hole(at))?;
        seek(source, SeekFrom::Start(at))?;
        seek(target, SeekFrom::Start(at))?;
        while at < end {
            let length = (end - at).min(CHECK_EVERY_BYTES);
            budget.take_bytes(target, length.next_multiple_of(ENTRY_BYTES))?;
            match io::copy(&mut source.take(length), &mut &*target)? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                copied => at += copied,
            }
        }
    }
    let length = u64::try_from(fstat(source)?.st_size).unwrap_or_default();
    Ok(target.set_len(length)?)
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
fn like(to: impl AsFd, from: impl AsFd, stat: &Stat, budget: &mut CopyBudget<'_>) -> Outcome {
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
        budget.take_bytes(&to, (name.len() + length) as u64)?;
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
    use crate::free_space::MinFree;
    use crate::rootfs::VolumeLimits;
    use crate::rootfs::budget::CopyLimit;

    fn limits(max_bytes: u64, max_files: u64) -> VolumeLimits {
        VolumeLimits {
            max_volumes: 1,
            max_bytes,
            max_files,
            min_free: MinFree::default(),
        }
    }

    /// Copies a directory once for each name, with one budget.
    fn copy_to(from: &Path, names: &[&str], limits: &VolumeLimits) -> Outcome {
        let mut budget = CopyBudget::new(limits);
        for name in names {
            let to = from.with_file_name(name);
            fs::create_dir(&to).expect("dir");
            copy(open(from, DIR, Mode::empty())?, &to, &mut budget)?;
        }
        Ok(())
    }

    #[test]
    fn holes_stay_holes_and_count_nothing() {
        let dir = tempfile::tempdir().expect("dir");
        let from = dir.path().join("from");
        fs::create_dir(&from).expect("dir");
        let sparse = File::create(from.join("sparse")).expect("file");
        sparse.set_len(1 << 40).expect("a hole");
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", 3 << 30).expect("data");
        fs::write(from.join("empty"), "").expect("file");
        copy_to(&from, &["to"], &limits(1 << 20, 2)).expect("copied");
        let copied = File::open(dir.path().join("to/sparse")).expect("open");
        let metadata = copied.metadata().expect("metadata");
        assert_eq!(metadata.len(), 1 << 40);
        assert!(metadata.blocks() * 512 <= 1 << 20, "{metadata:?}");
        let mut data = [0; 4];
        std::os::unix::fs::FileExt::read_exact_at(&copied, &mut data, 3 << 30).expect("data");
        assert_eq!(&data, b"data");
        assert_eq!(fs::read(dir.path().join("to/empty")).expect("file"), b"");
    }

    #[test]
    fn several_copies_have_one_budget() {
        let dir = tempfile::tempdir().expect("dir");
        let from = dir.path().join("from");
        fs::create_dir_all(from.join("d")).expect("dir");
        fs::write(from.join("d/file"), vec![1; 10_000]).expect("file");
        // Three blocks of 4096 bytes, and two entries.
        copy_to(&from, &["a", "b"], &limits(2 * 12_288, 4)).expect("both fit");
        let bytes = copy_to(&from, &["c", "d"], &limits(2 * 12_288 - 1, 4)).expect_err("bytes");
        assert!(matches!(
            bytes,
            CopyError::OverBudget {
                limit: CopyLimit::Bytes(_)
            }
        ));
        let files = copy_to(&from, &["e", "f"], &limits(1 << 20, 3)).expect_err("files");
        assert!(matches!(
            files,
            CopyError::OverBudget {
                limit: CopyLimit::Files(3)
            }
        ));
    }

    #[test]
    fn free_space_is_kept_from_the_first_file_on() {
        let dir = tempfile::tempdir().expect("dir");
        let from = dir.path().join("from");
        fs::create_dir(&from).expect("dir");
        let min_free = MinFree {
            bytes: u64::MAX,
            inodes: 0,
        };
        let limits = VolumeLimits {
            min_free,
            ..limits(1 << 20, 10)
        };
        copy_to(&from, &["empty"], &limits).expect("nothing is copied");
        fs::write(from.join("file"), "").expect("file");
        let refused = copy_to(&from, &["full"], &limits).expect_err("no space");
        assert!(matches!(refused, CopyError::NoSpace(_)), "{refused:?}");
        assert!(!dir.path().join("full/file").exists());
    }

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
            let limits = limits(1 << 20, 100);
            bounded(source, &to, room, &mut CopyBudget::new(&limits)).expect("copied");
            let entries = fs::read_dir(&to).expect("entries");
            let metadata = entries.map(|entry| entry.expect("entry").metadata().expect("metadata"));
            let metadata: Vec<_> = metadata.collect();
            assert_eq!(metadata.len(), 20, "{name}");
            let links = metadata.iter().filter(|found| found.nlink() == 2).count();
            assert_eq!(links, linked, "{name}");
        }
    }
}
