//! Disk usage of directories and files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use criscope_linux::walk::{Missed, Step, Walk, is_dir, reopen};
use rustix::fs::{CWD, Mode, OFlags, Stat, fstat, openat};

/// The unit of `st_blocks`, regardless of the block size of the file system (stat(3type)).
const BLOCK: u128 = 512;
/// The fraction in which bytes and inodes are counted: a file with n hard links counts 1/n at each.
const PARTS: u128 = 1 << 40;

/// The usage of a directory, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Allocated bytes, as `du` counts: holes of sparse files do not count.
    pub bytes: u64,
    /// Inodes, including the directory itself.
    pub inodes: u64,
}

impl Size {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }
}

/// A measurement of directories and files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// The counted size; a lower bound if incomplete.
    pub size: Size,
    /// Why it is incomplete; `None` if it is complete.
    pub missing: Option<Missing>,
}

criscope_cri::named! {
    /// Why a measurement is incomplete.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Missing {
        /// The time limit was reached.
        Time = "time",
        /// Directories were moved during the walk.
        Moved = "moved",
        /// Directories are nested too deeply.
        Depth = "depth",
    }
}

/// Why a directory or file cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory does not exist.
    #[error("{}: not found", path.display())]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// Something in it cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The measured path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The measurement was stopped.
    #[error("{}: the measurement was stopped", path.display())]
    Stopped {
        /// The measured path.
        path: PathBuf,
    },
}

/// Measures directory trees and regular files together, without the ones that do not exist: each file once regardless of hard links in
/// it, without other file systems and without files that vanish during the walk. Names are looked up directory by directory, never
/// through symbolic links, so that a container cannot redirect the walk.
///
/// The time is proportional to the number of files; `stop` ends it early. Returns an incomplete measurement after the time `most`, or if
/// a walk cannot continue.
///
/// # Errors
/// [`Error`]; [`Error::NotFound`] names the first path, and only if none of them exists.
pub fn count(paths: &[PathBuf], stop: &AtomicBool, most: Duration) -> Result<Counted, Error> {
    let mut count = Count {
        began: Instant::now(),
        most,
        stop,
        sum: Sum::default(),
        missing: None,
    };
    let mut absent = 0;
    for path in paths {
        match count.add(path) {
            Err(Error::NotFound { .. }) => absent += 1,
            counted => counted?,
        }
        if count.missing == Some(Missing::Time) {
            break;
        }
    }
    match paths.first() {
        Some(path) if absent == paths.len() => Err(Error::NotFound { path: path.clone() }),
        _ => Ok(Counted {
            size: count.sum.size(),
            missing: count.missing,
        }),
    }
}

/// A measurement in progress.
struct Count<'a> {
    began: Instant,
    most: Duration,
    stop: &'a AtomicBool,
    sum: Sum,
    missing: Option<Missing>,
}

impl Count<'_> {
    fn add(&mut self, path: &Path) -> Result<(), Error> {
        let failed = |error: rustix::io::Errno| match error {
            rustix::io::Errno::NOENT => Error::NotFound {
                path: path.to_owned(),
            },
            error => Error::Io {
                path: path.to_owned(),
                source: error.into(),
            },
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let top = openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
        let stat = fstat(&top).map_err(failed)?;
        self.sum.add(&stat);
        if !is_dir(&stat) {
            return Ok(());
        }
        let mut walk = reopen(&top).and_then(Walk::new).map_err(failed)?;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped {
                    path: path.to_owned(),
                });
            }
            if self.began.elapsed() >= self.most {
                self.missing = Some(Missing::Time);
                return Ok(());
            }
            match walk.step().map_err(failed)? {
                Step::Found(name, stat) => {
                    self.sum.add(&stat);
                    if is_dir(&stat) {
                        walk.enter(&name).map_err(failed)?;
                    }
                }
                Step::Left => {}
                Step::Done => break,
            }
        }
        let missed = walk.missed().map(|missed| match missed {
            Missed::Moved => Missing::Moved,
            Missed::TooDeep => Missing::Depth,
        });
        self.missing = self.missing.or(missed);
        Ok(())
    }
}

/// The running total, in fractions of a byte and of an inode.
#[derive(Default)]
struct Sum {
    bytes: u128,
    inodes: u128,
}

impl Sum {
    /// All hard links that a container creates to a file are in its layer. So each link counts for its fraction of the file,
    /// which needs no set of seen files, whose size the container would control.
    fn add(&mut self, stat: &Stat) {
        let names = if is_dir(stat) {
            1
        } else {
            u128::from(stat.st_nlink.max(1))
        };
        let blocks = u128::try_from(stat.st_blocks).unwrap_or(0);
        self.bytes += blocks * BLOCK * PARTS / names;
        self.inodes += PARTS / names;
    }

    fn size(&self) -> Size {
        Size {
            bytes: whole(self.bytes),
            inodes: whole(self.inodes),
        }
    }
}

fn whole(parts: u128) -> u64 {
    u64::try_from((parts + PARTS / 2) / PARTS).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    fn measure(path: &Path) -> Result<Size, Error> {
        let counted = count(&[path.to_owned()], &AtomicBool::new(false), Duration::MAX)?;
        assert_eq!(counted.missing, None);
        Ok(counted.size)
    }

    #[test]
    fn blocks_are_counted_once_and_links_are_not_followed() {
        let dir = tempfile::tempdir().expect("dir");
        let top = dir.path().join("upper");
        fs::create_dir_all(top.join("a/b")).expect("dir");
        let outside = dir.path().join("outside");
        fs::write(&outside, vec![1; 1 << 20]).expect("write");
        let empty = measure(&top).expect("measured");
        assert_eq!(empty.inodes, 3);
        fs::write(top.join("a/file"), vec![1; 64 << 10]).expect("write");
        fs::hard_link(top.join("a/file"), top.join("again")).expect("link");
        fs::hard_link(top.join("a/file"), top.join("a/third")).expect("link");
        symlink(dir.path(), top.join("a/b/up")).expect("link");
        let sparse = File::create(top.join("sparse")).expect("create");
        sparse.set_len(1 << 30).expect("sparse");
        let full = measure(&top).expect("measured");
        assert_eq!(full.inodes, 6);
        let grown = full.bytes - empty.bytes;
        assert!((64 << 10..512 << 10).contains(&grown), "{grown}");
    }

    #[test]
    fn a_missing_directory_is_an_error_and_not_zero() {
        let dir = tempfile::tempdir().expect("dir");
        let gone = measure(&dir.path().join("none")).expect_err("absent");
        assert!(matches!(gone, Error::NotFound { .. }), "{gone}");
        let (paths, stop) = ([dir.path().to_owned()], AtomicBool::new(true));
        let error = count(&paths, &stop, Duration::MAX).expect_err("stopped");
        assert!(matches!(error, Error::Stopped { .. }), "{error}");
    }

    #[test]
    fn depth_hides_nothing() {
        let dir = tempfile::tempdir().expect("dir");
        let mut at = openat(CWD, dir.path(), OFlags::DIRECTORY, Mode::empty()).expect("open");
        for _ in 0..5000 {
            rustix::fs::mkdirat(&at, "d", Mode::from_raw_mode(0o700)).expect("mkdir");
            at = openat(&at, "d", OFlags::DIRECTORY, Mode::empty()).expect("open");
        }
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let file = openat(&at, "large", flags, Mode::from_raw_mode(0o600)).expect("create");
        io::Write::write_all(&mut File::from(file), &vec![1; 1 << 20]).expect("write");
        drop(at);
        let size = measure(dir.path()).expect("measured");
        assert_eq!(size.inodes, 5002);
        assert!(size.bytes >= 1 << 20, "{size:?}");
        criscope_linux::rootfs::remove_tree(dir.path()).expect("removed");
    }

    #[test]
    fn a_measurement_that_times_out_is_a_lower_bound() {
        let dir = tempfile::tempdir().expect("dir");
        fs::write(dir.path().join("file"), "x").expect("write");
        let go = AtomicBool::new(false);
        let paths = [dir.path().to_owned()];
        let counted = count(&paths, &go, Duration::ZERO).expect("counted");
        assert_eq!(counted.missing, Some(Missing::Time));
        assert_eq!(counted.size.inodes, 1);
    }

    #[test]
    fn several_directories_and_files_are_counted_together() {
        let dir = tempfile::tempdir().expect("dir");
        let paths = ["file", "none", "dir", "link"].map(|name| dir.path().join(name));
        fs::write(&paths[0], vec![1; 64 << 10]).expect("write");
        fs::create_dir(&paths[2]).expect("dir");
        fs::write(paths[2].join("in"), vec![1; 64 << 10]).expect("write");
        symlink(dir.path(), &paths[3]).expect("link");
        let go = AtomicBool::new(false);
        let count = |paths: &[PathBuf]| count(paths, &go, Duration::MAX);
        let counted = count(&paths).expect("counted");
        assert_eq!((counted.size.inodes, counted.missing), (4, None));
        assert!(counted.size.bytes >= 128 << 10, "{counted:?}");
        let gone = count(&paths[1..2]).expect_err("none exists");
        assert!(matches!(gone, Error::NotFound { .. }), "{gone}");
        assert_eq!(count(&[]).expect("nothing").size, Size::default());
    }
}
