//! Copies a layer by hard-linking its files into directories that match the layers below.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use criscope_linux::free_space::{CHECK_EVERY_BYTES, ENTRY_BYTES, MinFree};
use criscope_linux::walk::{Step, Walk, is_dir, reopen};
use rustix::fs::{
    AtFlags, Gid, Mode, ResolveFlags, Stat, Timespec, Timestamps, Uid, XattrFlags, fchmod, fchown,
    fsetxattr, fstat, futimens, linkat, mkdirat, open, openat, openat2,
};
use rustix::io::Errno;

use super::lower::{LowerLayers, Parts, is_opaque, xattrs};
use crate::error::{carry, check_space};
use crate::unpack::{DIR, OPAQUE};

/// Directories that may be created between two checks of the free space.
const CHECK_EVERY_DIRECTORIES: u64 = CHECK_EVERY_BYTES / ENTRY_BYTES;

/// Creates the copy.
pub(super) struct LinkCopy<'a> {
    /// The path of the copy, for errors.
    place: PathBuf,
    from: OwnedFd,
    to: OwnedFd,
    lower: &'a LowerLayers,
    implied: HashSet<Vec<u8>>,
    directories: u64,
    min_free: MinFree,
}

/// A directory of the source above the current position of the walk.
struct Level {
    /// The path in the copy.
    target: Parts,
    /// The times that are set in the copy once it is complete.
    times: Timestamps,
}

impl<'a> LinkCopy<'a> {
    pub(super) fn new(
        source: &Path,
        staging: &Path,
        lower: &'a LowerLayers,
        implied: &[String],
        min_free: MinFree,
    ) -> io::Result<Self> {
        let target = staging.join("fs");
        fs::create_dir(&target)?;
        Ok(Self {
            from: open(source, DIR, Mode::empty())?,
            to: open(&target, DIR, Mode::empty())?,
            place: target,
            lower,
            implied: implied
                .iter()
                .map(|path| path.clone().into_bytes())
                .collect(),
            directories: 0,
            min_free,
        })
    }

    /// Returns the number of directories created.
    pub(super) fn run(mut self) -> io::Result<u64> {
        self.check_space()?;
        let mut walk = Walk::new(reopen(&self.from)?)?;
        let mut path = Parts::new();
        let mut to = self.directory(&[])?;
        let mut way = vec![self.begin(&path, walk.dir()?, Parts::new(), &to)?];
        loop {
            match walk.step()? {
                Step::Found(name, stat) if is_dir(&stat) => {
                    if !walk.enter(&name)? {
                        return Err(Errno::STALE.into());
                    }
                    path.push(name.into_bytes());
                    let target = match way.last() {
                        _ if self.implied.contains(&path.join(&b'/')) => {
                            self.lower.resolve(&path)?.0
                        }
                        Some(level) => join(&level.target, &path[path.len() - 1]),
                        None => path.clone(),
                    };
                    to = self.directory(&target)?;
                    way.push(self.begin(&path, walk.dir()?, target, &to)?);
                }
                Step::Found(name, _) => {
                    match linkat(walk.dir()?, &name, &to, &name, AtFlags::empty()) {
                        // Two paths of the layer have become the same; either file is correct.
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Step::Left | Step::Done => {
                    path.pop();
                    if let Some(level) = way.pop() {
                        futimens(&to, &level.times)?;
                    }
                    let Some(level) = way.last() else {
                        break;
                    };
                    to = real(&self.to, &level.target)?;
                }
            }
        }
        match walk.missed() {
            None => Ok(self.directories),
            Some(_) => Err(Errno::STALE.into()),
        }
    }

    /// Checks the free space: a layer may consist of directories, and each copy of it has its own.
    fn check_space(&self) -> io::Result<()> {
        let checked = check_space(self.min_free, &self.to, &self.place, CHECK_EVERY_BYTES);
        checked.map_err(carry)
    }

    /// Enters a directory of the source. Its copy exists, and gets its metadata unless it is implied.
    fn begin(
        &self,
        path: &[Vec<u8>],
        from: BorrowedFd<'_>,
        target: Parts,
        to: &OwnedFd,
    ) -> io::Result<Level> {
        let mut model = fstat(to)?;
        if !self.implied.contains(&path.join(&b'/')) {
            like(to, from)?;
            model = fstat(from)?;
        }
        if is_opaque(from)? {
            fsetxattr(to, OPAQUE, b"y", XattrFlags::empty())?;
        }
        let times = modified(&model);
        Ok(Level { target, times })
    }

    /// Opens a directory of the copy. Missing directories are created like those of the layers below.
    fn directory(&mut self, path: &[Vec<u8>]) -> io::Result<OwnedFd> {
        let mut dir = real(&self.to, &[])?;
        for (depth, name) in path.iter().enumerate() {
            let before = modified(&fstat(&dir)?);
            let made = match mkdirat(&dir, &name[..], Mode::from_raw_mode(0o755)) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(error) => return Err(error.into()),
            };
            let parent = dir;
            dir = openat(&parent, &name[..], DIR, Mode::empty())?;
            if made {
                futimens(&parent, &before)?;
                self.directories += 1;
                if self.directories.is_multiple_of(CHECK_EVERY_DIRECTORIES) {
                    self.check_space()?;
                }
                fchmod(&dir, Mode::from_raw_mode(0o755))?;
                if let (_, Some(found)) = self.lower.resolve(&path[..=depth])? {
                    let model = openat(&found.parent, &name[..], DIR, Mode::empty())?;
                    like(&dir, &model)?;
                }
            }
        }
        Ok(dir)
    }
}

fn join(path: &[Vec<u8>], name: &[u8]) -> Parts {
    let mut path = path.to_vec();
    path.push(name.to_vec());
    path
}

/// Opens a directory by its path, which contains no link.
fn real(root: &OwnedFd, path: &[Vec<u8>]) -> io::Result<OwnedFd> {
    if path.is_empty() {
        return Ok(openat(root, ".", DIR, Mode::empty())?);
    }
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(root, path.join(&b'/'), DIR, Mode::empty(), how)?)
}

/// Copies owner, mode, extended attributes and times of a directory.
fn like(dir: &OwnedFd, model: impl AsFd) -> io::Result<()> {
    let stat = fstat(&model)?;
    fchown(
        dir,
        Some(Uid::from_raw(stat.st_uid)),
        Some(Gid::from_raw(stat.st_gid)),
    )?;
    fchmod(dir, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    for (name, value) in xattrs(&model)? {
        fsetxattr(dir, &name[..], &value, XattrFlags::empty())?;
    }
    Ok(futimens(dir, &modified(&stat))?)
}

fn modified(stat: &Stat) -> Timestamps {
    let time = Timespec {
        tv_sec: stat.st_mtime,
        tv_nsec: stat.st_mtime_nsec.try_into().unwrap_or(0),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}
