//! A file that appears, or replaces another one, only when it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use rustix::io::Errno;

/// A file without a name until [`Self::finish`], so that nothing is left of it if the process is killed. Where the file system
/// cannot do that, it has a temporary name.
pub(super) struct ReplacedFile {
    file: File,
    /// `None` for devices and pipes, which are written as they are.
    to: Option<ReplacementPath>,
}

struct ReplacementPath {
    path: PathBuf,
    temporary: PathBuf,
    is_named: bool,
}

impl ReplacedFile {
    /// Opens a file that only its owner can read. A link is followed.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if !found.is_file() => {
                let file = OpenOptions::new().write(true).open(path)?;
                return Ok(Self { file, to: None });
            }
            _ => {}
        }
        let path = match fs::canonicalize(path) {
            Ok(real) => real,
            Err(_) => path.to_owned(),
        };
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}", std::process::id()));
        let temporary = dir.join(hidden);
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let (file, is_named) = match open(dir, flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => (File::from(file), false),
            // File systems and kernels without nameless files answer this.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let mut options = OpenOptions::new();
                options.write(true).create_new(true).mode(0o600);
                (options.open(&temporary)?, true)
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            file,
            to: Some(ReplacementPath {
                path,
                temporary,
                is_named,
            }),
        })
    }

    /// Gives the file its name, once its content is on the disk.
    pub(super) fn finish(mut self) -> io::Result<()> {
        let Some(target) = &mut self.to else {
            return self.file.flush();
        };
        self.file.sync_all()?;
        if !target.is_named {
            let from = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            linkat(CWD, from, CWD, &target.temporary, AtFlags::SYMLINK_FOLLOW)?;
            target.is_named = true;
        }
        fs::rename(&target.temporary, &target.path)?;
        target.is_named = false;
        Ok(())
    }
}

impl Write for ReplacedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for ReplacedFile {
    fn drop(&mut self) {
        if let Some(target) = &self.to
            && target.is_named
        {
            let _ = fs::remove_file(&target.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn names(dir: &Path) -> usize {
        fs::read_dir(dir).expect("directory").count()
    }

    #[test]
    fn a_file_appears_only_when_it_is_complete() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("a");
        let mut file = ReplacedFile::create(&path).expect("a file");
        file.write_all(b"half").expect("written");
        drop(file);
        assert_eq!(names(dir.path()), 0);
        fs::write(&path, "before").expect("written");
        let link = dir.path().join("link");
        symlink("a", &link).expect("a link");
        let mut file = ReplacedFile::create(&link).expect("a file");
        file.write_all(b"whole").expect("written");
        assert_eq!(fs::read(&path).expect("read"), b"before");
        file.finish().expect("finished");
        assert_eq!(fs::read(&path).expect("read"), b"whole");
        assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
        let mode = fs::metadata(&path).expect("metadata").permissions().mode();
        assert_eq!((mode & 0o777, names(dir.path())), (0o600, 2));
    }

    #[test]
    fn a_device_is_written_and_not_replaced() {
        let mut file = ReplacedFile::create(Path::new("/dev/null")).expect("a device");
        file.write_all(b"x").expect("written");
        file.finish().expect("finished");
        let found = fs::metadata("/dev/null").expect("metadata");
        assert!(!found.is_file());
        assert!(ReplacedFile::create(Path::new("/")).is_err());
        assert!(ReplacedFile::create(Path::new("/no/such/file")).is_err());
    }
}
