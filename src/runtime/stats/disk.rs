//! How much of a file system a directory takes.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};

/// The deepest tree that is measured: each level holds a file descriptor and a buffer.
const DEPTH: usize = 256;
/// `st_blocks` counts these, whatever the file system's own blocks are (stat(3type)).
const BLOCK: u64 = 512;

/// What a directory takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Bytes allocated, as `du` counts: a sparse file takes what is written of it.
    pub bytes: u64,
    /// Inodes, the directory itself with them.
    pub inodes: u64,
}

/// Why a directory cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not there.
    #[error("{}: not found", path.display())]
    NotFound {
        /// The directory.
        path: PathBuf,
    },
    /// Something in it cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The directory that was to be measured.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Directories lie deeper in each other than can be followed.
    #[error("{}: more than {DEPTH} directories in each other", path.display())]
    TooDeep {
        /// The directory that was to be measured.
        path: PathBuf,
    },
    /// It was told to stop.
    #[error("{}: not measured to the end", path.display())]
    Stopped {
        /// The directory that was to be measured.
        path: PathBuf,
    },
}

impl Error {
    /// What a gRPC caller is told.
    #[must_use]
    pub fn code(&self) -> tonic::Code {
        match self {
            Self::NotFound { .. } => tonic::Code::NotFound,
            Self::Stopped { .. } => tonic::Code::Aborted,
            Self::TooDeep { .. } => tonic::Code::OutOfRange,
            Self::Io { .. } => tonic::Code::Internal,
        }
    }
}

/// Measures a directory: all below it, each file once however many names it has, other file systems left out. What
/// vanishes meanwhile is not counted. Names are looked up from directory to directory, never through a link: whoever
/// writes there cannot lead it elsewhere.
///
/// Takes as long as there are files; `stop` ends it early.
///
/// # Errors
/// [`Error`]; a part is never passed off as the whole.
pub fn usage(path: &Path, stop: &AtomicBool) -> Result<Size, Error> {
    let failed = |error: rustix::io::Errno| match error {
        rustix::io::Errno::NOENT => Error::NotFound {
            path: path.to_owned(),
        },
        error => Error::Io {
            path: path.to_owned(),
            source: error.into(),
        },
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
    let stat = fstat(&top).map_err(failed)?;
    let device = stat.st_dev;
    let mut seen = HashSet::new();
    let mut size = Size::default();
    add(&mut size, &mut seen, &stat);
    let mut open = vec![Dir::new(top).map_err(failed)?];
    while let Some(dir) = open.last_mut() {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped {
                path: path.to_owned(),
            });
        }
        let Some(entry) = dir.read() else {
            open.pop();
            continue;
        };
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let parent = dir.fd().map_err(failed)?;
        let stat = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(rustix::io::Errno::NOENT) => continue,
            Err(error) => return Err(failed(error)),
        };
        if stat.st_dev != device {
            continue;
        }
        add(&mut size, &mut seen, &stat);
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            continue;
        }
        let child = match openat(parent, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(child) => child,
            // Gone, or another thing by now.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
                continue;
            }
            Err(error) => return Err(failed(error)),
        };
        if open.len() >= DEPTH {
            return Err(Error::TooDeep {
                path: path.to_owned(),
            });
        }
        open.push(Dir::new(child).map_err(failed)?);
    }
    Ok(size)
}

/// Only what has more than one name can come twice.
fn add(size: &mut Size, seen: &mut HashSet<u64>, stat: &Stat) {
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    if !is_directory && stat.st_nlink > 1 && !seen.insert(stat.st_ino) {
        return;
    }
    size.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK;
    size.inodes += 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    fn measure(path: &Path) -> Result<Size, Error> {
        usage(path, &AtomicBool::new(false))
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
        symlink(dir.path(), top.join("a/b/up")).expect("link");
        let sparse = File::create(top.join("sparse")).expect("create");
        sparse.set_len(1 << 30).expect("sparse");
        let full = measure(&top).expect("measured");
        assert_eq!(full.inodes, 6);
        let grown = full.bytes - empty.bytes;
        assert!((64 << 10..512 << 10).contains(&grown), "{grown}");
    }

    #[test]
    fn what_is_not_there_or_too_deep_is_no_zero() {
        let dir = tempfile::tempdir().expect("dir");
        let gone = measure(&dir.path().join("none")).expect_err("not there");
        assert_eq!(gone.code(), tonic::Code::NotFound);
        let deep: PathBuf = std::iter::repeat_n("d", DEPTH + 1).collect();
        fs::create_dir_all(dir.path().join(&deep)).expect("dir");
        let error = measure(dir.path()).expect_err("too deep");
        assert!(matches!(error, Error::TooDeep { .. }), "{error}");
        let error = usage(dir.path(), &AtomicBool::new(true)).expect_err("stopped");
        assert!(matches!(error, Error::Stopped { .. }), "{error}");
    }
}
