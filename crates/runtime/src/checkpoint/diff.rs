//! The changes of a container to its root file system: changed and new files in a tar archive, and a list of deleted files.
//! Podman's format, which CRI-O shares; containerd writes a layer with whiteouts instead.
//!
//! The container is paused, so nothing changes meanwhile. It chose the names, kinds and numbers of its files: links are not followed,
//! and nothing is kept whose size it chooses, except for a bounded number of names of files with several links.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use criscope_linux::walk::{Missed, Step, Walk, is_dir};
use rustix::fs::{
    CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fgetxattr, flistxattr, openat, openat2,
    readlinkat,
};
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};

use super::archive::{BoundedFile, Bounds, exactly, failed};
use crate::error::{Error, Result};

/// New and changed files.
pub(super) const CHANGED: &str = "rootfs-diff.tar";
/// A JSON array of absolute paths.
pub(super) const DELETED: &str = "deleted.files";

/// How many files with several links are recognised; others are stored once for each link.
const LINKS: usize = 1 << 16;
/// Longest list of the attributes of a file, and longest value, which the kernel limits too (xattr(7)).
const ATTRIBUTES: usize = 64 << 10;
const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Writes both files into `to`, if the container has changed something. `layers` are those of its image.
pub(super) fn write(upper: &Path, layers: &[PathBuf], to: &Path, bounds: Bounds) -> Result<()> {
    let top = match openat(CWD, upper, DIR, Mode::empty()) {
        Ok(top) => top,
        // A read-only root file system has none.
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(Error::io("open", upper, error)),
    };
    let changed = to.join(CHANGED);
    let copied = (|| {
        let file = File::create(&changed)?;
        let mut diff = Diff {
            tar: Builder::new(BoundedFile::new(file, bounds)),
            deleted: Deleted::new(to)?,
            layers,
            path: PathBuf::new(),
            links: HashMap::new(),
        };
        diff.copy(top)?;
        diff.tar.into_inner()?.flush()?;
        diff.deleted.end()
    })();
    copied.map_err(failed(&changed))
}

struct Diff<'a> {
    tar: Builder<BoundedFile>,
    deleted: Deleted,
    layers: &'a [PathBuf],
    /// The directory that the walk is in, relative to the root.
    path: PathBuf,
    links: HashMap<u64, PathBuf>,
}

impl Diff<'_> {
    fn copy(&mut self, top: OwnedFd) -> io::Result<()> {
        let mut walk = Walk::new(top)?;
        loop {
            match walk.step()? {
                Step::Found(name, stat) => {
                    let path = self.path.join(OsStr::from_bytes(name.to_bytes()));
                    if !is_dir(&stat) {
                        self.entry(walk.dir()?, &name, &path, &stat)?;
                    } else if walk.enter(&name)? {
                        self.directory(walk.dir()?, &path, &stat)?;
                        self.path = path;
                    }
                }
                Step::Left => {
                    self.path.pop();
                }
                Step::Done => break,
            }
        }
        match walk.missed() {
            None => Ok(()),
            Some(Missed::Moved | Missed::TooDeep) => Err(io::Error::other(
                "directories of the container are nested too long, or were moved",
            )),
        }
    }

    fn directory(&mut self, dir: BorrowedFd<'_>, path: &Path, stat: &Stat) -> io::Result<()> {
        let mut header = header(stat, EntryType::Directory);
        self.attributes(dir)?;
        let mut name = path.as_os_str().to_owned();
        name.push("/");
        self.tar.append_data(&mut header, name, io::empty())?;
        // Nothing of a directory of this path in the image is left.
        let mut value = [0; 1];
        match fgetxattr(dir, "trusted.overlay.opaque", &mut value[..]) {
            Ok(1) if value == *b"y" => self.hidden(dir, path),
            _ => Ok(()),
        }
    }

    /// Lists what an opaque directory hides. The tar archive is applied first, so the directory itself cannot be deleted.
    fn hidden(&mut self, upper: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
        for layer in self.layers {
            let layer = openat(CWD, layer, DIR, Mode::empty())?;
            let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            // In this layer it may be something else, or a link.
            let Ok(below) = openat2(&layer, path, DIR, Mode::empty(), inside) else {
                continue;
            };
            for entry in rustix::fs::Dir::new(below)? {
                let entry = entry?;
                let name = entry.file_name();
                let is_new =
                    || rustix::fs::statat(upper, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
                if !matches!(name.to_bytes(), b"." | b"..") && is_new().is_err() {
                    self.deleted
                        .add(&path.join(OsStr::from_bytes(name.to_bytes())))?;
                }
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        path: &Path,
        stat: &Stat,
    ) -> io::Result<()> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::CharacterDevice && stat.st_rdev == 0 {
            // A whiteout.
            return self.deleted.add(path);
        }
        if stat.st_nlink > 1 {
            if let Some(first) = self.links.get(&stat.st_ino) {
                let mut header = header(stat, EntryType::Link);
                return self.tar.append_link(&mut header, path, first);
            }
            if self.links.len() < LINKS {
                self.links.insert(stat.st_ino, path.to_owned());
            }
        }
        match kind {
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = openat(dir, name, flags, Mode::empty())?;
                self.attributes(file.as_fd())?;
                let mut header = header(stat, EntryType::Regular);
                let size = stat.st_size.cast_unsigned();
                header.set_size(size);
                self.tar
                    .append_data(&mut header, path, exactly(File::from(file), size))
            }
            FileType::Symlink => {
                let target = readlinkat(dir, name, Vec::new())?;
                let mut header = header(stat, EntryType::Symlink);
                let target = Path::new(OsStr::from_bytes(target.as_bytes()));
                self.tar.append_link(&mut header, path, target)
            }
            FileType::CharacterDevice => self.device(path, stat, EntryType::Char),
            FileType::BlockDevice => self.device(path, stat, EntryType::Block),
            FileType::Fifo => self.device(path, stat, EntryType::Fifo),
            // CRIU makes the sockets of processes again; a tar archive has none.
            _ => Ok(()),
        }
    }

    fn device(&mut self, path: &Path, stat: &Stat, kind: EntryType) -> io::Result<()> {
        let mut header = header(stat, kind);
        header.set_device_major(rustix::fs::major(stat.st_rdev))?;
        header.set_device_minor(rustix::fs::minor(stat.st_rdev))?;
        self.tar.append_data(&mut header, path, io::empty())
    }

    /// Writes the extended attributes of the next entry that a layer may have.
    fn attributes(&mut self, file: BorrowedFd<'_>) -> io::Result<()> {
        let mut names = vec![0; ATTRIBUTES];
        let length = match flistxattr(file, &mut names[..]) {
            Ok(length) => length,
            Err(Errno::NOTSUP) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mut all = Vec::new();
        for name in names[..length].split(|byte| *byte == 0) {
            let Ok(name) = std::str::from_utf8(name) else {
                continue;
            };
            if name != "security.capability" && !name.starts_with("user.") {
                continue;
            }
            let mut value = vec![0; ATTRIBUTES];
            let length = fgetxattr(file, name, &mut value[..])?;
            value.truncate(length);
            all.push((format!("SCHILY.xattr.{name}"), value));
        }
        if all.is_empty() {
            return Ok(());
        }
        let all = all.iter().map(|(name, value)| (name.as_str(), &value[..]));
        self.tar.append_pax_extensions(all)
    }
}

fn header(stat: &Stat, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(stat.st_mode & 0o7777);
    header.set_uid(stat.st_uid.into());
    header.set_gid(stat.st_gid.into());
    header.set_mtime(stat.st_mtime.try_into().unwrap_or_default());
    header.set_size(0);
    header
}

/// The list of deleted files, made with the first of them.
struct Deleted {
    path: PathBuf,
    file: Option<BufWriter<File>>,
}

impl Deleted {
    fn new(dir: &Path) -> io::Result<Self> {
        Ok(Self {
            path: dir.join(DELETED),
            file: None,
        })
    }

    fn add(&mut self, path: &Path) -> io::Result<()> {
        // JSON has no other text, and another name would delete another file.
        let Some(name) = path.to_str() else {
            return Ok(());
        };
        let (file, before) = match &mut self.file {
            Some(file) => (file, ","),
            empty => {
                let file = BufWriter::new(File::create(&self.path)?);
                (empty.insert(file), "[")
            }
        };
        write!(
            file,
            "{before}{}",
            serde_json::Value::from(format!("/{name}"))
        )
    }

    fn end(self) -> io::Result<()> {
        match self.file {
            Some(mut file) => {
                file.write_all(b"]")?;
                file.flush()
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::time::{Duration, Instant};

    use nix::sys::stat::{Mode, SFlag, mknod};
    use rustix::fs::{XattrFlags, setxattr};

    use super::*;

    fn written(upper: &Path, layers: &[PathBuf], to: &Path) {
        write(
            upper,
            layers,
            to,
            Bounds::of_time(Instant::now() + Duration::from_secs(60)),
        )
        .expect("written");
    }

    #[test]
    fn changes_of_every_kind_are_told() {
        let dir = tempfile::tempdir().expect("dir");
        let (upper, layer, to) = (
            dir.path().join("upper"),
            dir.path().join("layer"),
            dir.path().join("to"),
        );
        for dir in [upper.join("new"), layer.join("new/old"), to.clone()] {
            fs::create_dir_all(dir).expect("dir");
        }
        fs::write(layer.join("new/same"), "").expect("file");
        fs::write(upper.join("new/same"), "content").expect("file");
        fs::set_permissions(upper.join("new/same"), fs::Permissions::from_mode(0o4750))
            .expect("mode");
        setxattr(upper.join("new/same"), "user.a", b"b", XattrFlags::empty()).expect("attribute");
        fs::hard_link(upper.join("new/same"), upper.join("new/twice")).expect("link");
        symlink("/etc/shadow", upper.join("link")).expect("link");
        let none = Mode::empty();
        mknod(&upper.join("gone \"it\""), SFlag::S_IFCHR, none, 0).expect("whiteout");
        mknod(&upper.join("pipe"), SFlag::S_IFIFO, none, 0).expect("pipe");
        std::os::unix::net::UnixListener::bind(upper.join("socket")).expect("socket");
        setxattr(
            upper.join("new"),
            "trusted.overlay.opaque",
            b"y",
            XattrFlags::empty(),
        )
        .expect("root");
        written(&upper, &[layer], &to);

        let deleted: Vec<String> =
            serde_json::from_slice(&fs::read(to.join(DELETED)).expect("list")).expect("json");
        let mut deleted = deleted;
        deleted.sort();
        assert_eq!(deleted, ["/gone \"it\"", "/new/old"]);
        let mut tar = tar::Archive::new(File::open(to.join(CHANGED)).expect("tar"));
        let mut found = Vec::new();
        for entry in tar.entries().expect("entries") {
            let mut entry = entry.expect("entry");
            let path = entry.path().expect("path").display().to_string();
            let kind = entry.header().entry_type();
            if kind == EntryType::Regular {
                assert_eq!(entry.header().mode().expect("mode"), 0o4750);
                let mut more = entry.pax_extensions().expect("pax").expect("some");
                let more = more.next().expect("one").expect("valid");
                assert_eq!(more.key(), Ok("SCHILY.xattr.user.a"));
                let mut text = String::new();
                entry.read_to_string(&mut text).expect("content");
                assert_eq!(text, "content");
            }
            found.push((path, kind));
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let kinds: Vec<_> = found
            .iter()
            .map(|(path, kind)| (path.as_str(), *kind))
            .collect();
        assert_eq!(kinds.len(), 5, "{kinds:?}");
        assert_eq!(kinds[0], ("link", EntryType::Symlink));
        assert_eq!(kinds[1], ("new/", EntryType::Directory));
        assert_eq!(kinds[4], ("pipe", EntryType::Fifo));
        let pair = [kinds[2].1, kinds[3].1];
        assert!(
            pair.contains(&EntryType::Regular) && pair.contains(&EntryType::Link),
            "{pair:?}"
        );
    }

    #[test]
    fn a_container_without_changes_has_no_list() {
        let dir = tempfile::tempdir().expect("dir");
        written(&dir.path().join("none"), &[], dir.path());
        assert!(!dir.path().join(CHANGED).exists());
        fs::create_dir(dir.path().join("upper")).expect("dir");
        written(&dir.path().join("upper"), &[], dir.path());
        assert!(!dir.path().join(DELETED).exists());
    }
}
