//! The archive, written next to its place and renamed when it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use criscope_linux::free_space::{CHECK_EVERY_BYTES, MinFree};
use criscope_linux::untrusted;
use tar::{Builder, EntryType, Header};

use super::dumps::Dump;
use super::{DUMP_LOG, IMAGES, diff, late};
use crate::error::{Error, Result};

/// Where the archive is to be, and where it is written.
#[derive(Clone, Debug)]
pub(super) struct Target {
    location: PathBuf,
    pub(super) draft: PathBuf,
}

impl Target {
    /// # Errors
    /// [`Error::Invalid`] if the location is no absolute path of a file.
    pub(super) fn new(location: &str, container: &str) -> Result<Self> {
        let path = Path::new(location);
        let is_file = path.is_absolute() && path.file_name().is_some();
        if !is_file || location.ends_with('/') || location.contains('\0') {
            return Err(Error::invalid("the location is no absolute path of a file"));
        }
        Ok(Self {
            // Short, regardless of the length of the name.
            draft: path.with_file_name(format!(".checkpoint-{container}")),
            location: path.to_owned(),
        })
    }

    /// Checks the directory, before the container is paused.
    pub(super) fn check(&self) -> Result<()> {
        if self.location.is_dir() {
            return Err(Error::invalid(format!(
                "the location {} is a directory",
                self.location.display()
            )));
        }
        match self.location.parent() {
            Some(dir) if dir.is_dir() => Ok(()),
            _ => Err(Error::invalid(format!(
                "the location {} is in no directory",
                self.location.display()
            ))),
        }
    }
}

/// Bounds on what a checkpoint writes. A container may have sparse files, which are written in full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// The end of the request's time.
    pub(super) until: Instant,
    /// The space that stays free on the disk.
    pub(super) min_free: MinFree,
}

#[cfg(test)]
impl Bounds {
    /// Bounds of time alone.
    pub(super) fn of_time(until: Instant) -> Self {
        Self {
            until,
            min_free: MinFree::default(),
        }
    }
}

/// A file of a checkpoint, which refuses writes beyond the bounds.
pub(super) struct BoundedFile {
    file: File,
    bounds: Bounds,
    /// Bytes that may be written before the free space is looked at again.
    unchecked: u64,
}

impl BoundedFile {
    pub(super) fn new(file: File, bounds: Bounds) -> Self {
        Self {
            file,
            bounds,
            unchecked: 0,
        }
    }
}

impl Write for BoundedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if Instant::now() > self.bounds.until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if self.unchecked < bytes.len() as u64 {
            let planned = CHECK_EVERY_BYTES.max(bytes.len() as u64);
            if let Some(shortage) = self.bounds.min_free.shortage(&self.file, planned)? {
                return Err(io::Error::new(
                    io::ErrorKind::StorageFull,
                    shortage.to_string(),
                ));
            }
            self.unchecked = planned;
        }
        let written = self.file.write(bytes)?;
        self.unchecked -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The error of an archive that could not be written.
pub(super) fn failed(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
    move |error| match error.kind() {
        io::ErrorKind::TimedOut => late(),
        _ => Error::io("write", path, error),
    }
}

/// Exactly `size` bytes of a file: one that grows is cut off, one that shrinks is filled up, since the size precedes the content.
pub(super) fn exactly(file: impl Read, size: u64) -> impl Read {
    file.chain(io::repeat(0)).take(size)
}

/// Writes the archive from the directory of the attempt. The container is running again.
pub(super) fn write(
    target: &Target,
    dir: &Path,
    dumps: &[Dump],
    log: Option<File>,
    bounds: Bounds,
) -> Result<()> {
    let failed = failed(&target.location);
    // Left by an attempt that was interrupted, if anything.
    if let Err(error) = fs::remove_file(&target.draft)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(failed(error));
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&target.draft)
        .map_err(&failed)?;
    let written = fill(BoundedFile::new(file, bounds), dir, dumps, log).and_then(|file| {
        file.sync_all()?;
        fs::rename(&target.draft, &target.location)?;
        File::open(target.location.parent().unwrap_or(Path::new("/")))?.sync_all()
    });
    written.map_err(failed)
}

fn fill(out: BoundedFile, dir: &Path, dumps: &[Dump], log: Option<File>) -> io::Result<File> {
    let mut archive = Archive(Builder::new(out));
    for (name, text) in dumps {
        archive.add(name, &text[..], text.len() as u64)?;
    }
    if let Some(log) = log {
        archive.add_file("container.log", log)?;
    }
    for name in [DUMP_LOG, "stats-dump", diff::CHANGED, diff::DELETED] {
        match untrusted::open(&dir.join(name)) {
            Ok(file) => archive.add_file(name, file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    archive.add_dir(IMAGES)?;
    for entry in fs::read_dir(dir.join(IMAGES))? {
        let entry = entry?;
        let name = Path::new(IMAGES).join(entry.file_name());
        archive.add_file(name, untrusted::open(&entry.path())?)?;
    }
    Ok(archive.0.into_inner()?.file)
}

struct Archive(Builder<BoundedFile>);

impl Archive {
    fn add(&mut self, name: impl AsRef<Path>, content: impl Read, size: u64) -> io::Result<()> {
        let mut header = header(EntryType::Regular, 0o600);
        header.set_size(size);
        self.0.append_data(&mut header, name, content)
    }

    fn add_file(&mut self, name: impl AsRef<Path>, file: File) -> io::Result<()> {
        let size = file.metadata()?.len();
        self.add(name, exactly(file, size), size)
    }

    fn add_dir(&mut self, name: &str) -> io::Result<()> {
        let mut header = header(EntryType::Directory, 0o700);
        self.0
            .append_data(&mut header, format!("{name}/"), io::empty())
    }
}

fn header(kind: EntryType, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    let now = crate::id::now() / 1_000_000_000;
    header.set_mtime(now.try_into().unwrap_or_default());
    header.set_size(0);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_the_absolute_path_of_a_file() {
        for location in ["", "relative", "/", "/a/", "/a/..", "/a\0b"] {
            assert!(Target::new(location, "id").is_err(), "{location:?}");
        }
        let target = Target::new("/a/b.tar", "id").expect("valid");
        assert_eq!(target.draft, Path::new("/a/.checkpoint-id"));
    }

    #[test]
    fn nothing_is_left_of_an_archive_that_takes_too_much_time_or_space() {
        let dir = tempfile::tempdir().expect("dir");
        let location = dir.path().join("c.tar");
        fs::create_dir_all(dir.path().join("work").join(IMAGES)).expect("dir");
        let target = Target::new(location.to_str().expect("text"), "id").expect("valid");
        let work = dir.path().join("work");
        let error = write(&target, &work, &[], None, Bounds::of_time(Instant::now()));
        assert!(matches!(error, Err(Error::Deadline(_))), "{error:?}");
        assert!(!location.exists());
        let bounds = Bounds::of_time(Instant::now() + std::time::Duration::from_secs(60));
        let no_space = MinFree {
            bytes: u64::MAX / 2,
            inodes: 0,
        };
        let full = Bounds {
            min_free: no_space,
            ..bounds
        };
        write(&target, &work, &[], None, full).expect_err("it would fill the disk");
        assert!(!target.location.exists());
        write(&target, &work, &[], None, bounds).expect("a second try");
        assert!(location.exists() && !target.draft.exists());
    }
}
