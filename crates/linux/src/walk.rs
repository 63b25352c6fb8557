//! Walks a directory tree of any depth that a container or an image created, with a bounded number of descriptors.
//!
//! The topmost and the deepest directories of the current path stay open. One in between is closed, and opened again as the
//! parent of its child: if its device and inode have changed, part of the tree was moved. The walk then continues
//! from the deepest directory that stayed open, and reports that it has missed something. Links are never followed, other
//! file systems never entered.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Number of directories that stay open from the top down, and as many from the bottom up.
const OPEN: usize = 32;
/// Maximum depth, because a closed directory also takes some memory.
const LEVELS: usize = 1 << 17;

/// A walk in progress.
#[derive(Debug)]
pub struct Walk {
    levels: Vec<Level>,
    device: u64,
    /// True if files may have other devices than directories.
    is_overlay: bool,
    missed: Option<Missed>,
}

/// Why part of a tree was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// The directory was moved during the walk.
    Moved,
    /// The directory is nested too deeply.
    TooDeep,
}

/// A step of the walk.
#[derive(Debug)]
pub enum Step {
    /// An entry of the directory that the walk is in.
    Found(CString, Stat),
    /// The walk is back in the parent directory.
    Left,
    /// The walk is complete.
    Done,
}

#[derive(Debug)]
struct Level {
    id: (u64, u64),
    /// `None` while it is closed.
    dir: Option<Dir>,
    /// Where to continue once it is opened again.
    offset: i64,
}

impl Level {
    fn open(dir: OwnedFd, id: (u64, u64), offset: i64) -> Result<Self, Errno> {
        let mut dir = Dir::new(dir)?;
        if offset != 0 {
            dir.seek(offset)?;
        }
        Ok(Self {
            id,
            dir: Some(dir),
            offset,
        })
    }
}

fn id(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

impl Walk {
    /// Starts in a directory.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn new(top: OwnedFd) -> Result<Self, Errno> {
        let stat = fstat(&top)?;
        Ok(Self {
            device: stat.st_dev,
            is_overlay: false,
            levels: vec![Level::open(top, id(&stat), 0)?],
            missed: None,
        })
    }

    /// Starts in a directory of an overlay without mounts in it. If its layers are on several file systems, its files have other
    /// devices than its directories, one for each file system (`Documentation/filesystems/overlayfs.rst`, "Inode properties").
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn in_overlay(top: OwnedFd) -> Result<Self, Errno> {
        let walk = Self::new(top)?;
        Ok(Self {
            is_overlay: true,
            ..walk
        })
    }

    /// The directory that the walk is in.
    ///
    /// # Errors
    /// None in practice, because the directory is open.
    pub fn dir(&self) -> Result<BorrowedFd<'_>, Errno> {
        let dir = self.levels.last().and_then(|level| level.dir.as_ref());
        dir.ok_or(Errno::BADF)?.fd()
    }

    /// Why the walk is incomplete; `None` if it is complete.
    #[must_use]
    pub fn missed(&self) -> Option<Missed> {
        self.missed
    }

    /// Continues the walk. Entries that are removed during the walk are skipped.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn step(&mut self) -> Result<Step, Errno> {
        loop {
            let Some(level) = self.levels.last_mut() else {
                return Ok(Step::Done);
            };
            let Some(entry) = level.dir.as_mut().and_then(Dir::read) else {
                return self.leave();
            };
            let entry = entry?;
            level.offset = entry.offset();
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match statat(self.dir()?, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if stat.st_dev == self.device || (self.is_overlay && !is_dir(&stat)) => {
                    return Ok(Step::Found(name.to_owned(), stat));
                }
                Ok(_) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Descends into a directory that was just found. `false` if it no longer exists, or is too deep.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn enter(&mut self, name: &CStr) -> Result<bool, Errno> {
        if self.levels.len() >= LEVELS {
            self.missed = Some(Missed::TooDeep);
            return Ok(false);
        }
        let child = match openat(self.dir()?, name, DIR, Mode::empty()) {
            Ok(child) => child,
            // Removed, or replaced by something else.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
            Err(error) => return Err(error),
        };
        let stat = fstat(&child)?;
        if stat.st_dev != self.device {
            return Ok(false);
        }
        self.levels.push(Level::open(child, id(&stat), 0)?);
        let closing = self.levels.len().saturating_sub(OPEN + 1);
        if closing >= OPEN {
            self.levels[closing].dir = None;
        }
        Ok(true)
    }

    fn leave(&mut self) -> Result<Step, Errno> {
        let below = self.levels.pop().and_then(|level| level.dir);
        let Some(level) = self.levels.last_mut() else {
            return Ok(Step::Done);
        };
        if level.dir.is_some() {
            return Ok(Step::Left);
        }
        let parent = openat(below.ok_or(Errno::BADF)?.fd()?, c"..", DIR, Mode::empty())?;
        if id(&fstat(&parent)?) == level.id {
            *level = Level::open(parent, level.id, level.offset)?;
        } else {
            self.missed = Some(Missed::Moved);
            while self.levels.last().is_some_and(|level| level.dir.is_none()) {
                self.levels.pop();
            }
        }
        Ok(Step::Left)
    }
}

/// Returns whether it is a directory.
#[must_use]
pub fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Opens a directory for [`Walk::new`].
///
/// # Errors
/// If it cannot be opened.
pub fn reopen(dir: impl AsFd) -> Result<OwnedFd, Errno> {
    openat(dir, c".", DIR, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, mkdirat, renameat};

    use super::*;

    /// Creates nested directories, and returns the deepest.
    fn nest(top: &std::path::Path, depth: usize) -> OwnedFd {
        let mut at = openat(CWD, top, DIR, Mode::empty()).expect("open");
        for _ in 0..depth {
            mkdirat(&at, "d", Mode::from_raw_mode(0o700)).expect("mkdir");
            at = openat(&at, "d", DIR, Mode::empty()).expect("open");
        }
        at
    }

    fn open(path: &std::path::Path) -> OwnedFd {
        openat(CWD, path, DIR, Mode::empty()).expect("open")
    }

    fn descriptors() -> usize {
        fs::read_dir("/proc/thread-self/fd").expect("fd").count()
    }

    #[test]
    fn every_entry_of_a_deep_tree_is_found_once() {
        let dir = tempfile::tempdir().expect("dir");
        nest(dir.path(), 500);
        // Entries on both sides of the position in every closed directory.
        let mut at = open(dir.path());
        for _ in 0..500 {
            for name in ["a", "z", "m", "q"] {
                mkdirat(&at, name, Mode::from_raw_mode(0o700)).expect("mkdir");
            }
            at = openat(&at, "d", DIR, Mode::empty()).expect("open");
        }
        let (mut found, mut most) = (0, 0);
        let mut walk = Walk::new(open(dir.path())).expect("walk");
        loop {
            match walk.step().expect("step") {
                Step::Found(name, _) => {
                    found += 1;
                    assert!(walk.enter(&name).expect("enter"));
                    let open = walk.levels.iter().filter(|level| level.dir.is_some());
                    most = most.max(open.count());
                }
                Step::Left => {}
                Step::Done => break,
            }
        }
        assert_eq!((found, walk.missed()), (2500, None));
        assert!(most <= 2 * OPEN + 1, "{most} are open");
        assert!(descriptors() < 1000);
        crate::rootfs::remove_tree(dir.path()).expect("removed");
    }

    #[test]
    fn what_is_moved_away_is_missed_and_the_rest_is_found() {
        let dir = tempfile::tempdir().expect("dir");
        let (tree, outside) = (dir.path().join("tree"), dir.path().join("outside"));
        fs::create_dir_all(&tree).expect("dir");
        fs::create_dir_all(outside.join("secret")).expect("dir");
        let low = nest(&tree, 100);
        for name in ["after", "before"] {
            fs::create_dir(tree.join(name)).expect("dir");
        }
        let mut names = Vec::new();
        let mut walk = Walk::new(open(&tree)).expect("walk");
        loop {
            match walk.step().expect("step") {
                Step::Found(name, _) => {
                    assert!(walk.enter(&name).expect("enter"));
                    names.push(name);
                    if names.last().is_some_and(|name| name.as_c_str() == c"d")
                        && walk.levels.len() == 101
                    {
                        // The parent of the open directories is moved elsewhere.
                        let above: std::path::PathBuf = std::iter::repeat_n("d", 67).collect();
                        let from = open(&tree.join(above));
                        renameat(&from, "d", CWD, outside.join("d")).expect("rename");
                    }
                }
                Step::Left => {}
                Step::Done => break,
            }
        }
        drop(low);
        assert_eq!(walk.missed(), Some(Missed::Moved));
        let seen = |name: &CStr| names.iter().any(|found| found.as_c_str() == name);
        assert!(seen(c"after") && seen(c"before") && !seen(c"secret"));
    }
}
