//! Log files of containers: files below a directory that pods may be able to write to.
//!
//! Pods that collect logs mount the directories of logs, and one that can write there can put a link in place of a log, or of
//! a directory on the way to it. The links that an administrator made, such as `/var/log` to another disk, are above the log
//! directory of a pod. So [`resolve`] follows links only there, and only once, before a container of the pod runs. Afterwards
//! the kernel refuses links in all of the path (openat2(2), `RESOLVE_NO_SYMLINKS`). Everything else here takes such a path.
//!
//! A log is a regular file with one name. Pipes and devices are never opened. A file with several names is another file's
//! hard link: its content is not a log's.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fchmod, fstat, mkdirat, openat2};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Mode of directories of logs, as the kubelet's: agents that ship logs need not run as root.
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);
/// Mode of logs.
const FILE_MODE: Mode = Mode::from_raw_mode(0o640);
/// How often a log is looked for that another process creates and removes meanwhile.
const OPEN_TRIES: usize = 8;

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
const NO_LINKS: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);

/// Why a log is not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogFileError {
    /// The log, or a directory on the way to it, is a symbolic link.
    #[error("{}: a log is not reached through a symbolic link", path.display())]
    SymbolicLink {
        /// The path of the log.
        path: PathBuf,
    },
    /// Something else than a regular file is in the place of the log.
    #[error("{}: a log must be a regular file", path.display())]
    NotRegular {
        /// The path of the log.
        path: PathBuf,
    },
    /// The file has other names.
    #[error("{}: a log must have one name, and this file has others (hard links)", path.display())]
    HardLink {
        /// The path of the log.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The failed operation, as a verb.
        action: &'static str,
        /// The path of the log.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl LogFileError {
    fn new(action: &'static str, path: &Path, error: impl Into<io::Error>) -> Self {
        let (path, source) = (path.to_owned(), error.into());
        // A link that is refused (openat2(2)); loops of links cannot be reached.
        if source.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
            return Self::SymbolicLink { path };
        }
        Self::Io {
            action,
            path,
            source,
        }
    }

    /// Returns whether something was put in the place of the log, or on the way to it, that is not accepted.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Io { .. })
    }
}

impl From<LogFileError> for io::Error {
    fn from(error: LogFileError) -> Self {
        let kind = match &error {
            LogFileError::Io { source, .. } => source.kind(),
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// Returns the path of a log directory without links. Links above the directory are followed. The directory itself is that of
/// one pod and must not be a link: a pod could have put it there, before its sandbox is made again. What does not exist
/// yet stays as it is.
///
/// # Errors
/// [`LogFileError::SymbolicLink`] if the directory is a link, or the error of the system.
pub fn resolve(directory: &Path) -> Result<PathBuf, LogFileError> {
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
        return Ok(directory.to_owned());
    };
    let resolved = follow(parent)?.join(name);
    match fs::symlink_metadata(&resolved) {
        Ok(found) if found.is_symlink() => Err(LogFileError::SymbolicLink {
            path: directory.to_owned(),
        }),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LogFileError::new(
            "look at the log directory",
            directory,
            error,
        )),
        _ => Ok(resolved),
    }
}

/// Follows the links in the part of a path that exists.
fn follow(path: &Path) -> Result<PathBuf, LogFileError> {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(real), ..) => Ok(real),
        (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
            Ok(follow(parent)?.join(name))
        }
        (Err(source), ..) => Err(LogFileError::Io {
            action: "follow the path of a log directory",
            path: path.to_owned(),
            source,
        }),
    }
}

/// Opens a log for appending. Creates it with mode 0640, and missing directories with mode 0755, regardless of the umask.
///
/// # Errors
/// [`LogFileError`]; then nothing was opened that is not a log.
pub fn append(path: &Path) -> Result<File, LogFileError> {
    let (directory, name) = (parent(path)?, name(path)?);
    let directory = open_or_make(directory, path)?;
    let write = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOCTTY;
    for _ in 0..OPEN_TRIES {
        if let Some(found) = find(&directory, name, path)? {
            return reopen(&found, write, path);
        }
        // A new file, never one that was put there since.
        let create = write | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        match openat2(&directory, name, create, FILE_MODE, NO_LINKS) {
            Err(Errno::EXIST) => {}
            Err(error) => return Err(LogFileError::new("create the log", path, error)),
            Ok(file) => {
                fchmod(&file, FILE_MODE)
                    .map_err(|error| LogFileError::new("set the mode of the log", path, error))?;
                return Ok(file.into());
            }
        }
    }
    Err(LogFileError::new("create the log", path, Errno::EXIST))
}

/// Opens a log for reading; `None` if it does not exist.
///
/// # Errors
/// [`LogFileError`].
pub fn read(path: &Path) -> Result<Option<File>, LogFileError> {
    let directory = match open_directory(CWD, parent(path)?) {
        Err(Errno::NOENT) => return Ok(None),
        found => found.map_err(|error| LogFileError::new("open the log directory", path, error))?,
    };
    let found = find(&directory, name(path)?, path)?;
    let read = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    found.map(|found| reopen(&found, read, path)).transpose()
}

/// Creates the directory of a log, and those above it that are missing, with mode 0755, regardless of the umask.
///
/// # Errors
/// [`LogFileError`].
pub fn make_directory(path: &Path) -> Result<(), LogFileError> {
    open_or_make(parent(path)?, path).map(drop)
}

/// The directory of a log. `..` would lead elsewhere than the path says.
fn parent(path: &Path) -> Result<&Path, LogFileError> {
    let has_plain_parts = path
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    path.parent()
        .filter(|_| path.is_absolute() && has_plain_parts)
        .ok_or_else(|| LogFileError::new("use the path of the log", path, Errno::INVAL))
}

fn name(path: &Path) -> Result<&OsStr, LogFileError> {
    path.file_name()
        .ok_or_else(|| LogFileError::new("use the path of the log", path, Errno::INVAL))
}

fn open_directory(above: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    openat2(above, path, DIRECTORY, Mode::empty(), NO_LINKS)
}

/// Opens the directory of the log at `path`. Missing directories are made below one that is open.
fn open_or_make(directory: &Path, path: &Path) -> Result<OwnedFd, LogFileError> {
    let (above, name) = match (
        open_directory(CWD, directory),
        directory.parent(),
        directory.file_name(),
    ) {
        (Err(Errno::NOENT), Some(above), Some(name)) => (above, name),
        (found, ..) => return found.map_err(|error| open_directory_error(path, error)),
    };
    let above = open_or_make(above, path)?;
    let is_new = match mkdirat(&above, name, DIRECTORY_MODE) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(LogFileError::new("make the log directory", path, error)),
    };
    let made = open_directory(&above, Path::new(name))
        .map_err(|error| open_directory_error(path, error))?;
    if is_new {
        undo_umask(&made)
            .map_err(|error| LogFileError::new("set the mode of the log directory", path, error))?;
    }
    Ok(made)
}

fn open_directory_error(path: &Path, error: Errno) -> LogFileError {
    LogFileError::new("open the log directory", path, error)
}

/// Sets the mode of a directory that was just made. Another one could have been moved into its place: a new one is empty and
/// belongs to this user.
fn undo_umask(made: &OwnedFd) -> Result<(), Errno> {
    let found = fstat(made)?;
    let has_mode = Mode::from_raw_mode(found.st_mode).contains(DIRECTORY_MODE);
    if has_mode || found.st_uid != geteuid().as_raw() {
        return Ok(());
    }
    let mut entries = Dir::read_from(made)?;
    let has_entries = entries.any(|entry| {
        entry.is_ok_and(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."))
    });
    if !has_entries {
        fchmod(made, DIRECTORY_MODE)?;
    }
    Ok(())
}

/// Finds a log without opening it for reading or writing; `None` if it does not exist.
fn find(directory: &OwnedFd, name: &OsStr, path: &Path) -> Result<Option<OwnedFd>, LogFileError> {
    // With both flags a link is found instead of refused.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = match openat2(directory, name, flags, Mode::empty(), NO_LINKS) {
        Err(Errno::NOENT) => return Ok(None),
        found => found.map_err(|error| open_error(path, error))?,
    };
    let stat = fstat(&found).map_err(|error| open_error(path, error))?;
    let path = path.to_owned();
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => Err(LogFileError::SymbolicLink { path }),
        FileType::RegularFile if stat.st_nlink > 1 => Err(LogFileError::HardLink { path }),
        FileType::RegularFile => Ok(Some(found)),
        _ => Err(LogFileError::NotRegular { path }),
    }
}

/// Opens the file that was found, even if its path has been replaced.
fn reopen(found: &OwnedFd, flags: OFlags, path: &Path) -> Result<File, LogFileError> {
    let same = format!("/proc/self/fd/{}", found.as_raw_fd());
    rustix::fs::open(same, flags, Mode::empty())
        .map(File::from)
        .map_err(|error| open_error(path, error))
}

fn open_error(path: &Path, error: Errno) -> LogFileError {
    LogFileError::new("open the log", path, error)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn root() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().canonicalize().expect("real");
        (dir, path)
    }

    fn mode(path: &Path) -> u32 {
        let found = fs::metadata(path).expect("there");
        found.permissions().mode() & 0o7777
    }

    /// Asserts that neither a writer nor a reader gets a file.
    fn assert_refused(log: &Path) {
        for error in [
            append(log).map(drop).expect_err("not written to"),
            read(log).map(drop).expect_err("not read"),
        ] {
            assert!(error.is_refusal(), "{error}");
            let (text, path) = (error.to_string(), log.display().to_string());
            assert!(text.starts_with(&path), "{text}");
        }
    }

    #[test]
    fn a_log_is_created_with_its_directories_and_opened_again() {
        let (_dir, root) = root();
        let log = root.join("pod/app/0.log");
        assert!(read(&log).expect("none yet").is_none());
        for line in ["one\n", "two\n"] {
            let mut file = append(&log).expect("a log");
            file.write_all(line.as_bytes()).expect("written");
        }
        let text = read(&log).expect("readable").expect("there");
        assert_eq!(io::read_to_string(text).expect("text"), "one\ntwo\n");
        assert_eq!(mode(&root.join("pod/app")), 0o755);
        assert_eq!(mode(&log), 0o640);
    }

    #[test]
    fn no_link_is_followed_wherever_it_is() {
        let (_dir, root) = root();
        let victims = root.join("victims");
        fs::create_dir_all(victims.join("app")).expect("dir");
        fs::write(victims.join("app/0.log"), "secret").expect("victim");
        for (link, to) in [
            ("pods", ""),
            ("pods/pod", ""),
            ("pods/pod/app", "app"),
            ("pods/pod/app/0.log", "app/0.log"),
            // A dangling one, through which a file would be created.
            ("pods/pod/app/0.log", "app/new"),
        ] {
            let link = root.join(link);
            fs::create_dir_all(link.parent().expect("below")).expect("dir");
            symlink(victims.join(to), &link).expect("link");
            assert_refused(&root.join("pods/pod/app/0.log"));
            fs::remove_file(&link).expect("link");
            let _ = fs::remove_dir_all(root.join("pods"));
        }
        let text = fs::read_to_string(victims.join("app/0.log")).expect("victim");
        assert_eq!(text, "secret");
        assert_eq!(fs::read_dir(victims.join("app")).expect("dir").count(), 1);
    }

    #[test]
    fn only_regular_files_with_one_name_are_logs() {
        let (_dir, root) = root();
        let path = |name: &str| root.join(name);
        fs::write(path("victim"), "kept").expect("victim");
        fs::hard_link(path("victim"), path("hard")).expect("hard link");
        nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("pipe");
        fs::create_dir(path("dir")).expect("dir");
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).expect("socket");
        for name in ["hard", "pipe", "dir", "socket"] {
            assert_refused(&path(name));
        }
        assert_refused(Path::new("/dev/full"));
        fs::remove_file(path("hard")).expect("removed");
        append(&path("victim")).expect("one name");
    }

    #[test]
    fn paths_that_are_not_plain_are_not_used() {
        for path in ["", "relative/a.log", "/tmp/../a.log", "/"] {
            append(Path::new(path)).expect_err(path);
            read(Path::new(path)).expect_err(path);
        }
    }

    #[test]
    fn links_above_a_log_directory_are_followed_and_the_directory_is_none() {
        let (_dir, root) = root();
        fs::create_dir_all(root.join("disk/pods")).expect("dir");
        symlink(root.join("disk"), root.join("log")).expect("link");
        let resolved = resolve(&root.join("log/pods/pod")).expect("resolved");
        assert_eq!(resolved, root.join("disk/pods/pod"));
        append(&resolved.join("0.log")).expect("a log");
        let missing = resolve(&root.join("log/later/pod")).expect("resolved");
        assert_eq!(missing, root.join("disk/later/pod"));
        symlink(root.join("disk/pods/pod"), root.join("log/pods/other")).expect("link");
        let refused = resolve(&root.join("log/pods/other")).expect_err("a link");
        assert!(refused.is_refusal(), "{refused}");
        assert_eq!(resolve(Path::new("/")).expect("resolved"), Path::new("/"));
    }
}
