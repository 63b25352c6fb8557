//! The folder that a layer is extracted into, reached only by file descriptors and never left.
//!
//! The kernel resolves every path below the root (`openat2` with `RESOLVE_IN_ROOT`): a link in the layer leads to a
//! place in the layer, whatever it says. The last part of a path is never followed. Nobody else writes there meanwhile.

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

use super::entry::bad;

/// What overlayfs takes for "nothing of lower layers is seen in this folder".
pub(super) const OPAQUE: &str = "trusted.overlay.opaque";
/// As the kernel's own limit.
const MAX_LINKS: usize = 40;
/// No image has folders nested deeper, and removing them again must stay possible.
const MAX_DEPTH: usize = 512;
/// Bytes that the paths of folders take which no entry makes: they are in memory until the layer is unpacked.
const MAX_IMPLIED: usize = 8 << 20;
/// What a path in a set takes besides its bytes, about.
const PATH_COST: usize = 64;

const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// See the module.
pub(super) struct Tree {
    root: Rc<OwnedFd>,
    /// Where what is replaced goes, until all of it is removed.
    aside: PathBuf,
    replaced: u32,
    /// The folder that entries are put into now: those of one mostly follow one another.
    current: Option<Current>,
    /// Folders that no entry had made before something was put into them.
    implied: BTreeSet<Vec<u8>>,
    /// What their paths take, together.
    implied_bytes: usize,
    /// Of those, how many were not counted yet.
    pub(super) made: u64,
}

/// An open folder. What is put into it changes its times: those it had are set when it is left, so that the times of the
/// folders of a layer need not be kept until its end.
struct Current {
    path: Vec<u8>,
    dir: Rc<OwnedFd>,
    times: Timestamps,
    /// Something was taken away that could be on the path: it may lead elsewhere now.
    stale: bool,
}

impl Tree {
    /// A new tree in `fs` in this folder.
    pub(super) fn create(staging: &Path) -> io::Result<Self> {
        let root = staging.join("fs");
        fs::create_dir(&root)?;
        // A layer that says nothing of its root leaves it as it is in most images.
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

    /// A folder that is to be there: made if it is not, also where a link leads.
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

    /// The folder that was opened last is to have these times, whatever is put into it.
    pub(super) fn set_times(&mut self, times: Timestamps) {
        if let Some(current) = &mut self.current {
            current.times = times;
        }
    }

    /// Gives the folder that was open its times back.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        match self.current.take() {
            Some(current) => Ok(futimens(&*current.dir, &current.times)?),
            None => Ok(()),
        }
    }

    /// How deep a folder lies is told by its path, unless a link is on it.
    fn check_depth(&self, parts: &[&[u8]], dir: &OwnedFd) -> io::Result<()> {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let path = parts.join(&b'/');
        let depth = match openat2(&self.root, path, OFlags::PATH, Mode::empty(), how) {
            Err(Errno::LOOP) => {
                let depth = |dir: &OwnedFd| {
                    let link = format!("/proc/self/fd/{}", dir.as_raw_fd());
                    let path = readlink(link, Vec::new())?;
                    Ok(path.to_bytes().split(|b| *b == b'/').count())
                };
                match depth(dir) {
                    // Deeper than any path goes.
                    Err(Errno::NAMETOOLONG) => usize::MAX,
                    below => below?.saturating_sub(depth(&self.root)?),
                }
            }
            _ => parts.len(),
        };
        if depth > MAX_DEPTH {
            return Err(bad(format!("folders nested deeper than {MAX_DEPTH}")));
        }
        Ok(())
    }

    /// A folder that is there, links followed within the root.
    pub(super) fn find(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let flags = DIR.difference(OFlags::NOFOLLOW);
        let path = if path.is_empty() { b"." } else { path };
        openat2(&self.root, path, flags, Mode::empty(), how)
    }

    /// A folder by its real path: no part of it is a link.
    fn real(&self, parts: &[Vec<u8>]) -> io::Result<Rc<OwnedFd>> {
        if parts.is_empty() {
            return Ok(self.root());
        }
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let dir = openat2(&self.root, parts.join(&b'/'), DIR, Mode::empty(), how)?;
        Ok(Rc::new(dir))
    }

    /// Goes a path part by part and makes what is missing. What the kernel does for paths that exist.
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

    /// Notes a folder that no entry has made. One entry can make as many as a path has parts.
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

    /// An entry makes a folder that was taken for granted before.
    pub(super) fn explain(&mut self, path: &[u8]) {
        if self.implied.remove(path) {
            self.implied_bytes -= path.len() + PATH_COST;
        }
    }

    /// The paths of those that none has made.
    pub(super) fn take_implied(&mut self) -> impl Iterator<Item = Vec<u8>> + use<> {
        std::mem::take(&mut self.implied).into_iter()
    }

    /// Makes a folder in place of what is there. One in place of a whiteout is opaque: what it hid stays hidden.
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

    /// Takes away what is in the way.
    pub(super) fn clear(&mut self, parent: &OwnedFd, name: &[u8], stat: &Stat) -> io::Result<()> {
        // It could be a link on the way to the folder that is open.
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

    /// Where data is on disk, for errors and free space.
    pub(super) fn place(&self) -> &Path {
        &self.aside
    }
}

fn times_of(dir: &OwnedFd) -> io::Result<Timestamps> {
    let stat = fstat(dir)?;
    let time = |tv_sec, nanos: u64| Timespec {
        tv_sec,
        tv_nsec: nanos.try_into().unwrap_or(0),
    };
    Ok(Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    })
}

/// What is there, the last part not followed.
pub(super) fn status(parent: impl AsFd, name: &[u8]) -> Result<Option<Stat>, Errno> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn is(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

/// What overlayfs takes for "this is not here, whatever lower layers have": a character device 0/0.
pub(super) fn is_whiteout(stat: &Stat) -> bool {
    is(stat, FileType::CharacterDevice) && stat.st_rdev == 0
}

/// Bytes of a path as text for a record.
pub(super) fn text(path: Vec<u8>) -> Option<String> {
    String::from_utf8(path).ok()
}
