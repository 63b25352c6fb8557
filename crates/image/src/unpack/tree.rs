//! The directory that a layer is extracted into. It is accessed through file descriptors and never left.
//!
//! The kernel resolves every path below the root (`openat2` with `RESOLVE_IN_ROOT`), so that links in the layer lead to paths
//! in the layer. The last component of a path is never followed. No other process writes there.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, XattrFlags, chmodat,
    fsetxattr, fstat, futimens, mkdirat, open, openat2, readlink, readlinkat, renameat, statat,
    unlinkat,
};
use rustix::io::Errno;

use crate::error::bad;
use criscope_linux::rootfs::open_below;

/// The attribute of an opaque directory in overlayfs, which hides those of lower layers.
pub(crate) const OPAQUE: &str = "trusted.overlay.opaque";
/// The kernel's limit on symbolic links in a path.
pub(crate) const MAX_LINKS: usize = 40;
/// Maximum nesting of directories. Real images stay below, and deeper trees are hard to remove.
pub(crate) const MAX_DEPTH: usize = 512;
/// Maximum bytes of the paths of implied directories, which stay in memory until the layer is unpacked.
const MAX_IMPLIED: usize = 8 << 20;
/// Approximate memory of a path in a set besides its bytes.
const PATH_COST: usize = 64;

/// Opens a directory, and no link to one.
pub(crate) const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The tree of a layer.
pub(super) struct Tree {
    root: Rc<OwnedFd>,
    /// The staging directory, to which replaced directories are moved until the end.
    aside: PathBuf,
    replaced: u32,
    /// The directory of the last entry. Entries of the same directory mostly follow each other.
    current: Option<Current>,
    /// Directories without their own entry, created for entries below them.
    implied: BTreeSet<Vec<u8>>,
    /// Bytes of their paths.
    implied_bytes: usize,
    /// The number of implicitly created directories not yet counted.
    pub(super) made: u64,
}

/// An open directory. Creating files in it changes its times; they are restored when it is left, so that the times of all
/// directories need not be kept until the end.
struct Current {
    path: Vec<u8>,
    dir: Rc<OwnedFd>,
    times: Timestamps,
    /// A file was removed that may be a link in the path, so the path may lead elsewhere now.
    stale: bool,
}

impl Tree {
    /// Creates an empty tree in `fs` below the staging directory.
    pub(super) fn create(staging: &Path) -> io::Result<Self> {
        let root = staging.join("fs");
        fs::create_dir(&root)?;
        // The mode that the root has in most images, for layers without an entry for it.
        let root = open(&root, DIR, Mode::empty())?;
        rustix::fs::fchmod(&root, Mode::from_raw_mode(0o755))?;
        Ok(Self {
            root: Rc::new(root),
            aside: staging.to_owned(),
            replaced: 0,
            current: None,
            implied: BTreeSet::new(),
            implied_bytes: 0,
            made: 0,
        })
    }

    pub(super) fn root(&self) -> Rc<OwnedFd> {
        Rc::clone(&self.root)
    }

    /// Opens a directory, following links. Missing directories are created.
    pub(super) fn dir(&mut self, parts: &[&[u8]]) -> io::Result<Rc<OwnedFd>> {
        let path = parts.join(&b'/');
        if let Some(current) = &self.current
            && !current.stale
            && current.path == path
        {
            return Ok(Rc::clone(&current.dir));
        }
        self.leave()?;
        let dir = match self.find(&path) {
            Err(Errno::NOENT | Errno::NOTDIR) => self.make(parts)?,
            found => Rc::new(found?),
        };
        self.check_depth(parts, &dir)?;
        self.current = Some(Current {
            path,
            times: times_of(&dir)?,
            dir: Rc::clone(&dir),
            stale: false,
        });
        Ok(dir)
    }

    /// Sets the times that the current directory gets when it is left.
    pub(super) fn set_times(&mut self, times: Timestamps) {
        if let Some(current) = &mut self.current {
            current.times = times;
        }
    }

    /// Leaves the current directory, and restores its times.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        match self.current.take() {
            Some(current) => Ok(futimens(&*current.dir, &current.times)?),
            None => Ok(()),
        }
    }

    /// Checks the depth of a directory: by its path, or by its real path if that contains a link.
    fn check_depth(&self, parts: &[&[u8]], dir: &OwnedFd) -> io::Result<()> {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let path = parts.join(&b'/');
        let depth = match openat2(&self.root, path, OFlags::PATH, Mode::empty(), how) {
            Err(Errno::LOOP) => {
                match real_depth(dir) {
                    // Longer than the longest path.
                    Err(Errno::NAMETOOLONG) => usize::MAX,
                    below => below?.saturating_sub(real_depth(&self.root)?),
                }
            }
            _ => parts.len(),
        };
        if depth > MAX_DEPTH {
            return Err(bad(format!("folders nested deeper than {MAX_DEPTH}")));
        }
        Ok(())
    }

    /// Opens an existing directory, following links within the root.
    pub(super) fn find(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let flags = DIR.difference(OFlags::NOFOLLOW);
        let path = if path.is_empty() { b"." } else { path };
        open_below(&self.root, path, flags, how)
    }

    /// Opens a directory by its real path, which contains no link.
    fn real(&self, parts: &[Vec<u8>]) -> io::Result<Rc<OwnedFd>> {
        if parts.is_empty() {
            return Ok(self.root());
        }
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let dir = openat2(&self.root, parts.join(&b'/'), DIR, Mode::empty(), how)?;
        Ok(Rc::new(dir))
    }

    /// Resolves a path component by component, as the kernel does, and creates missing directories.
    fn make(&mut self, parts: &[&[u8]]) -> io::Result<Rc<OwnedFd>> {
        let mut todo: VecDeque<Vec<u8>> = parts.iter().map(|part| part.to_vec()).collect();
        let mut real: Vec<Vec<u8>> = Vec::new();
        let mut links = 0;
        while let Some(part) = todo.pop_front() {
            match &part[..] {
                b"" | b"." => continue,
                b".." => {
                    real.pop();
                    continue;
                }
                _ => {}
            }
            let parent = self.real(&real)?;
            match status(&parent, &part)? {
                Some(stat) if is(&stat, FileType::Directory) => real.push(part),
                Some(stat) if is(&stat, FileType::Symlink) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    let target = readlinkat(&parent, &part[..], Vec::new())?.into_bytes();
                    if target.starts_with(b"/") {
                        real.clear();
                    }
                    for part in target.rsplit(|b| *b == b'/') {
                        todo.push_front(part.to_vec());
                    }
                }
                Some(stat) if is_whiteout(&stat) => {
                    self.make_dir(&parent, &part, Some(&stat), true)?;
                    real.push(part);
                    self.imply(&real)?;
                }
                Some(_) => return Err(Errno::NOTDIR.into()),
                None => {
                    self.make_dir(&parent, &part, None, false)?;
                    real.push(part);
                    self.imply(&real)?;
                }
            }
            if real.len() > MAX_DEPTH {
                return Err(bad(format!("folders nested deeper than {MAX_DEPTH}")));
            }
        }
        self.real(&real)
    }

    /// Records an implied directory. One entry can create as many as its path has components.
    fn imply(&mut self, real: &[Vec<u8>]) -> io::Result<()> {
        let path = real.join(&b'/');
        self.made += 1;
        self.implied_bytes += path.len() + PATH_COST;
        if self.implied_bytes > MAX_IMPLIED {
            let most = MAX_IMPLIED >> 20;
            return Err(bad(format!(
                "folders that no entry makes, with more than {most} MiB of paths"
            )));
        }
        self.implied.insert(path);
        Ok(())
    }

    /// Marks a directory as explicit: it has its own entry after all.
    pub(super) fn make_explicit(&mut self, path: &[u8]) {
        if self.implied.remove(path) {
            self.implied_bytes -= path.len() + PATH_COST;
        }
    }

    /// The paths of the implied directories.
    pub(super) fn take_implied(&mut self) -> impl Iterator<Item = Vec<u8>> + use<> {
        std::mem::take(&mut self.implied).into_iter()
    }

    /// Creates a directory, replacing an existing file. In place of a whiteout it must be opaque, so that the hidden files
    /// stay hidden.
    pub(super) fn make_dir(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        there: Option<&Stat>,
        opaque: bool,
    ) -> io::Result<()> {
        let times = times_of(parent)?;
        if let Some(stat) = there {
            self.clear(parent, name, stat)?;
        }
        mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
        chmodat(parent, name, Mode::from_raw_mode(0o755), AtFlags::empty())?;
        if opaque {
            self.set_opaque(parent, name)?;
        }
        Ok(futimens(parent, &times)?)
    }

    pub(super) fn set_opaque(&self, parent: &OwnedFd, name: &[u8]) -> io::Result<()> {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let dir = openat2(parent, name, DIR, Mode::empty(), how)?;
        Ok(fsetxattr(dir, OPAQUE, b"y", XattrFlags::empty())?)
    }

    /// Removes an existing file, or moves an existing directory to the staging directory.
    pub(super) fn clear(&mut self, parent: &OwnedFd, name: &[u8], stat: &Stat) -> io::Result<()> {
        // The name may be a link in the path of the current directory.
        if let Some(current) = &mut self.current {
            current.stale = true;
        }
        if !is(stat, FileType::Directory) {
            return Ok(unlinkat(parent, name, AtFlags::empty())?);
        }
        self.replaced += 1;
        let aside = open(&self.aside, DIR, Mode::empty())?;
        let to = format!("replaced-{}", self.replaced);
        Ok(renameat(parent, name, aside, to)?)
    }
}

/// The number of parts in the real path of a directory.
fn real_depth(dir: &OwnedFd) -> Result<usize, Errno> {
    let link = format!("/proc/self/fd/{}", dir.as_raw_fd());
    let path = readlink(link, Vec::new())?;
    Ok(path.to_bytes().split(|b| *b == b'/').count())
}

fn times_of(dir: &OwnedFd) -> io::Result<Timestamps> {
    let stat = fstat(dir)?;
    Ok(Timestamps {
        last_access: Timespec {
            tv_sec: stat.st_atime,
            tv_nsec: stat.st_atime_nsec.try_into().unwrap_or(0),
        },
        last_modification: Timespec {
            tv_sec: stat.st_mtime,
            tv_nsec: stat.st_mtime_nsec.try_into().unwrap_or(0),
        },
    })
}

/// The status of a file, without following links; `None` if it does not exist.
pub(crate) fn status(parent: impl AsFd, name: &[u8]) -> Result<Option<Stat>, Errno> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn is(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

/// Returns whether this is a whiteout of overlayfs: a character device 0/0.
pub(crate) fn is_whiteout(stat: &Stat) -> bool {
    is(stat, FileType::CharacterDevice) && stat.st_rdev == 0
}

/// A path as text for the record of a layer.
pub(super) fn text(path: Vec<u8>) -> Option<String> {
    String::from_utf8(path).ok()
}
