//! A second folder for a layer: the same files by hard links, in folders that fit on what is below.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use criscope_linux::walk::{Step, Walk, is_dir, reopen};
use rustix::fs::{
    AtFlags, Gid, Mode, ResolveFlags, Stat, Timespec, Timestamps, Uid, XattrFlags, fchmod, fchown,
    fsetxattr, fstat, futimens, linkat, mkdirat, open, openat, openat2,
};
use rustix::io::Errno;

use super::lower::{DIR, LowerLayers, OPAQUE, Parts, is_opaque, xattrs};

/// See the module.
pub(super) struct LinkCopy<'a> {
    from: OwnedFd,
    to: OwnedFd,
    below: &'a LowerLayers,
    implied: HashSet<Vec<u8>>,
    folders: u64,
}

/// A folder of the source on the way down to where the walk is: no more of them is kept than are nested in each other.
struct Level {
    /// Where it lies in the copy.
    target: Parts,
    /// Its times there, once all is in it.
    times: Timestamps,
}

impl<'a> LinkCopy<'a> {
    pub(super) fn new(
        source: &Path,
        staging: &Path,
        below: &'a LowerLayers,
        implied: &[String],
    ) -> io::Result<Self> {
        let target = staging.join("fs");
        fs::create_dir(&target)?;
        Ok(Self {
            from: open(source, DIR, Mode::empty())?,
            to: open(&target, DIR, Mode::empty())?,
            below,
            implied: implied
                .iter()
                .map(|path| path.clone().into_bytes())
                .collect(),
            folders: 0,
        })
    }

    /// Returns how many folders were made.
    pub(super) fn run(mut self) -> io::Result<u64> {
        let mut walk = Walk::new(reopen(&self.from)?)?;
        let mut path = Parts::new();
        let mut to = self.folder(&[])?;
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
                            self.below.resolve(&path)?.0
                        }
                        Some(level) => join(&level.target, &path[path.len() - 1]),
                        None => path.clone(),
                    };
                    to = self.folder(&target)?;
                    way.push(self.begin(&path, walk.dir()?, target, &to)?);
                }
                Step::Found(name, _) => {
                    match linkat(walk.dir()?, &name, &to, &name, AtFlags::empty()) {
                        // Two paths of the layer have become one: either is as good.
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
            None => Ok(self.folders),
            Some(_) => Err(Errno::STALE.into()),
        }
    }

    /// Begins with a folder of the source: its copy is there, and like it unless the layer takes it for granted.
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

    /// A folder of the copy; what has to be made for it is like what is below.
    fn folder(&mut self, path: &[Vec<u8>]) -> io::Result<OwnedFd> {
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
                self.folders += 1;
                fchmod(&dir, Mode::from_raw_mode(0o755))?;
                if let (_, Some(found)) = self.below.resolve(&path[..=depth])? {
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

/// A folder by its path, no part of which is a link.
fn real(root: &OwnedFd, path: &[Vec<u8>]) -> io::Result<OwnedFd> {
    if path.is_empty() {
        return Ok(openat(root, ".", DIR, Mode::empty())?);
    }
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(root, path.join(&b'/'), DIR, Mode::empty(), how)?)
}

/// Gives a folder owner, mode, attributes and time of another.
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
