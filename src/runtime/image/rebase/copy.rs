//! A second folder for a layer: the same files by hard links, in folders that fit on what is below.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, ResolveFlags, Stat, Timespec, Timestamps, Uid, XattrFlags,
    fchmod, fchown, fsetxattr, fstat, futimens, linkat, mkdirat, open, openat, openat2, statat,
};
use rustix::io::Errno;

use super::below::{Below, DIR, OPAQUE, Parts, is_opaque, split, xattrs};

/// See the module.
pub(super) struct Copy<'a> {
    from: OwnedFd,
    to: OwnedFd,
    below: &'a Below,
    implied: HashSet<Parts>,
    folders: u64,
}

impl<'a> Copy<'a> {
    pub(super) fn new(
        source: &Path,
        staging: &Path,
        below: &'a Below,
        implied: &[String],
    ) -> io::Result<Self> {
        let target = staging.join("fs");
        fs::create_dir(&target)?;
        Ok(Self {
            from: open(source, DIR, Mode::empty())?,
            to: open(&target, DIR, Mode::empty())?,
            below,
            implied: implied.iter().map(|path| split(path.as_bytes())).collect(),
            folders: 0,
        })
    }

    /// Returns how many folders were made.
    pub(super) fn run(mut self) -> io::Result<u64> {
        let mut times = Vec::new();
        // Folders of the source with the place of each in the copy.
        let mut todo = vec![(Parts::new(), Parts::new())];
        while let Some((path, target)) = todo.pop() {
            let from = real(&self.from, &path)?;
            let to = self.folder(&target)?;
            if !self.implied.contains(&path) {
                like(&to, &from)?;
                times.push((target.clone(), fstat(&from)?));
            }
            if is_opaque(&from)? {
                fsetxattr(&to, OPAQUE, b"y", XattrFlags::empty())?;
            }
            for entry in Dir::read_from(&from)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                let stat = statat(&from, name, AtFlags::SYMLINK_NOFOLLOW)?;
                if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                    let path = join(&path, name);
                    let target = if self.implied.contains(&path) {
                        self.below.resolve(&path)?.0
                    } else {
                        join(&target, name)
                    };
                    todo.push((path, target));
                    continue;
                }
                match linkat(&from, name, &to, name, AtFlags::empty()) {
                    // Two paths of the layer have become one: either is as good.
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        for (path, stat) in times {
            futimens(real(&self.to, &path)?, &modified(&stat))?;
        }
        Ok(self.folders)
    }

    /// A folder of the copy; what has to be made for it is like what is below.
    fn folder(&mut self, path: &[Vec<u8>]) -> io::Result<OwnedFd> {
        let mut dir = real(&self.to, &[])?;
        for (depth, name) in path.iter().enumerate() {
            let made = match mkdirat(&dir, &name[..], Mode::from_raw_mode(0o755)) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(error) => return Err(error.into()),
            };
            dir = openat(&dir, &name[..], DIR, Mode::empty())?;
            if made {
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
fn like(dir: &OwnedFd, model: &OwnedFd) -> io::Result<()> {
    let stat = fstat(model)?;
    fchown(
        dir,
        Some(Uid::from_raw(stat.st_uid)),
        Some(Gid::from_raw(stat.st_gid)),
    )?;
    fchmod(dir, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    for (name, value) in xattrs(model)? {
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
